// C4's line and page rules (Raffel et al. 2020) as datatrove runs them: 3 words a line and 5 sentences a
// page, where the original has 5 and 3. The text becomes the kept lines.
#include <algorithm>

#include "base/error.h"
#include "data/filter/kinds.h"
#include "data/filter/phrases.h"
#include "data/text/characters.h"

namespace strata::data {
namespace {

constexpr std::string_view kKind = "c4_quality";
constexpr int64_t kSentencesShown = 50;  // the histogram's end: sentences are counted no further

struct LineScratch {
  std::string line, lowered, text;
  std::vector<std::string_view> sentences;
  std::vector<Word> words;  // of one sentence
};

class C4Quality final : public DocumentStage {
 public:
  explicit C4Quality(const StageParameters& parameters)
      : split_paragraph_(parameters.get<bool>("split_paragraph")),
        remove_citations_(parameters.get<bool>("remove_citations")),
        filter_no_terminal_punct_(parameters.get<bool>("filter_no_terminal_punct")),
        min_num_sentences_(parameters.get<int64_t>("min_num_sentences")),
        min_words_per_line_(parameters.get<int64_t>("min_words_per_line")),
        max_word_length_(parameters.get<int64_t>("max_word_length")),
        filter_lorem_ipsum_(parameters.get<bool>("filter_lorem_ipsum")),
        filter_javascript_(parameters.get<bool>("filter_javascript")),
        filter_curly_bracket_(parameters.get<bool>("filter_curly_bracket")),
        filter_policy_(parameters.get<bool>("filter_policy")) {
    word_rule(kKind, parameters);
  }

  std::vector<MetricSpec> metrics() const override {
    return {{"min_num_sentences", 0, static_cast<double>(kSentencesShown),
             static_cast<double>(min_num_sentences_), true},
            {"kept_lines", 0, 1, 0, true}};
  }

  std::string_view apply(TextView& text, const Document&, StageStats& stats) const override;

 private:
  struct Removed {
    int64_t long_word = 0, no_end = 0, few_words = 0, javascript = 0, policy = 0;
  };
  enum class Verdict { kKeep, kRemove, kLoremIpsum, kCurlyBracket };
  // `line` comes back without citations.
  Verdict judge(std::string_view& line, std::span<const Word> words, bool phrases, LineScratch& scratch,
                Removed& removed) const;

  const bool split_paragraph_, remove_citations_, filter_no_terminal_punct_;
  const int64_t min_num_sentences_, min_words_per_line_, max_word_length_;  // -1: not tested
  const bool filter_lorem_ipsum_, filter_javascript_, filter_curly_bracket_, filter_policy_;
};

// Bytes of a citation at `line[at]`, a '[': [123], [edit], [citation needed]; 0 for none.
size_t citation_size(std::string_view line, size_t at) {
  const std::string_view rest = line.substr(at + 1);
  for (const std::string_view word : {std::string_view("edit]"), std::string_view("citation needed]")}) {
    if (rest.starts_with(word)) return word.size() + 1;
  }
  const char* begin = rest.data();
  const char* end = begin + rest.size();
  for (const char* p = begin; p < end;) {
    const Character c = decode_utf8(p, end);
    p += c.size;
    if (c.value == ']') return static_cast<size_t>(p - begin) + 1;
    if (!(character_table()[c.value] & kDecimalBit)) return 0;
  }
  return 0;
}

// The line without citations: the line itself if there are none, else in `buffer`.
std::string_view without_citations(std::string_view line, std::string& buffer) {
  size_t done = 0;
  bool changed = false;
  for (size_t at = line.find('['); at != std::string_view::npos; at = line.find('[', at)) {
    const size_t size = citation_size(line, at);
    if (size == 0) {
      ++at;
      continue;
    }
    if (!changed) buffer.clear();
    changed = true;
    buffer += line.substr(done, at - done);
    at += size;
    done = at;
  }
  if (!changed) return line;
  buffer += line.substr(done);
  return buffer;
}

bool ends_a_sentence(std::string_view line) {
  if (line.empty()) return false;
  switch (line.back()) {
    case '.':
      return !line.ends_with("...");
    case '?':
    case '!':
    case '"':
    case '\'':
      return true;
    default:
      return false;
  }
}

C4Quality::Verdict C4Quality::judge(std::string_view& line, std::span<const Word> words, bool phrases,
                                    LineScratch& scratch, Removed& removed) const {
  const auto too_long = [&](const Word& word) { return int64_t{word.code_points} > max_word_length_; };
  if (max_word_length_ != -1 && std::any_of(words.begin(), words.end(), too_long)) {
    ++removed.long_word;
    return Verdict::kRemove;
  }
  if (remove_citations_) line = without_citations(line, scratch.line);
  if (filter_no_terminal_punct_ && !ends_a_sentence(line)) {
    ++removed.no_end;
    return Verdict::kRemove;
  }
  if (static_cast<int64_t>(words.size()) < min_words_per_line_) {
    ++removed.few_words;
    return Verdict::kRemove;
  }
  LinePhrases found;
  if (phrases && may_have_phrases(line)) {
    lower(line, scratch.lowered);
    found = find_phrases(scratch.lowered);
  }
  if (filter_lorem_ipsum_ && found.lorem_ipsum) return Verdict::kLoremIpsum;
  if (filter_javascript_ && found.javascript) {
    ++removed.javascript;
    return Verdict::kRemove;
  }
  if (filter_curly_bracket_ && line.find('{') != std::string_view::npos) return Verdict::kCurlyBracket;
  if (filter_policy_ && found.policy) {
    ++removed.policy;
    return Verdict::kRemove;
  }
  return Verdict::kKeep;
}

std::string_view C4Quality::apply(TextView& text, const Document&, StageStats& stats) const {
  LineScratch& scratch = text.scratch<LineScratch>();
  const std::string_view bytes = text.bytes();
  std::span<const std::string_view> lines;
  if (split_paragraph_) {
    lines = text.python_lines();
  } else {
    text.split_sentences(scratch.sentences);
    lines = scratch.sentences;
  }
  std::span<const Word> words;
  if (split_paragraph_) words = text.words(WordRule::kWhitespace);
  const bool phrases = may_have_phrases(bytes);
  const int64_t enough = std::max(min_num_sentences_, kSentencesShown);
  Removed removed;
  int64_t sentences = 0, kept = 0;
  scratch.text.clear();
  scratch.text.reserve(bytes.size());
  const Word* word = words.data();
  const Word* const last = word + words.size();
  for (const std::string_view whole : lines) {
    std::span<const Word> of_line;
    if (split_paragraph_) {
      const Word* const first = word;
      while (word < last && word->bytes.data() < whole.data() + whole.size()) ++word;
      of_line = {first, static_cast<size_t>(word - first)};
    } else {
      // Sentences may be cut inside a word.
      scratch.words.clear();
      split_whitespace(whole, scratch.words);
      of_line = scratch.words;
    }
    // A line without its white space: from its first word to its last.
    std::string_view line;
    if (!of_line.empty()) {
      const std::string_view back = of_line.back().bytes;
      const char* begin = of_line.front().bytes.data();
      line = {begin, static_cast<size_t>(back.data() + back.size() - begin)};
    }
    switch (judge(line, of_line, phrases, scratch, removed)) {
      case Verdict::kLoremIpsum:
        return "lorem_ipsum";
      case Verdict::kCurlyBracket:
        return "curly_bracket";
      case Verdict::kRemove:
        continue;
      case Verdict::kKeep:
        break;
    }
    if (min_num_sentences_ != -1) {
      if (!split_paragraph_) {
        ++sentences;
      } else if (sentences < enough) {
        sentences += text.count_sentences(line, enough - sentences);
      }
    }
    if (kept > 0) scratch.text += split_paragraph_ ? '\n' : ' ';
    scratch.text += line;
    ++kept;
  }
  stats.record(0, static_cast<double>(sentences));
  stats.record(1, lines.empty() ? 0 : static_cast<double>(kept) / static_cast<double>(lines.size()));
  const auto count = [&](std::string_view name, int64_t n) {
    if (n > 0) stats.count(name, n);
  };
  count("lines_too_long_word", removed.long_word);
  count("lines_no_terminal_punct", removed.no_end);
  count("lines_too_few_words", removed.few_words);
  count("lines_javascript", removed.javascript);
  count("lines_policy", removed.policy);
  count("lines_kept", kept);
  if (sentences < min_num_sentences_) return "too_few_sentences";

  const std::string_view stripped = strip(scratch.text);
  if (stripped == bytes) return {};
  const auto begin = static_cast<size_t>(stripped.data() - scratch.text.data());
  scratch.text.resize(begin + stripped.size());
  scratch.text.erase(0, begin);
  text.replace(scratch.text);
  return {};
}

}  // namespace

StageKind c4_quality_kind() {
  return {
      .name = std::string(kKind),
      .help = "lines and pages as C4 keeps them (with datatrove's thresholds); rewrites the text",
      .parameters =
          {
              {"split_paragraph", true, "whether lines are judged; else sentences"},
              {"remove_citations", true, "whether [1], [edit] and [citation needed] are taken out"},
              {"filter_no_terminal_punct", true, "whether lines that do not end with . ? ! \" ' are removed"},
              {"min_num_sentences", int64_t{5},
               "least number of sentences in the kept lines; -1: not tested"},
              {"min_words_per_line", int64_t{3}, "least number of words in a line; -1: not tested"},
              {"max_word_length", int64_t{1000}, "longest word that a line may have; -1: not tested"},
              {"filter_lorem_ipsum", true, "whether documents with \"lorem ipsum\" are dropped"},
              {"filter_javascript", true, "whether lines with \"javascript\" are removed"},
              {"filter_curly_bracket", true, "whether documents with { are dropped"},
              {"filter_policy", true, "whether lines about cookies and terms of use are removed"},
              {"words", std::string("whitespace"),
               "taken as in the other filters; here words are split at white space and sentences are "
               "spaCy's"},
          },
      .make = [](const StageParameters& parameters) -> AnyStage {
        return std::make_unique<C4Quality>(parameters);
      }};
}

}  // namespace strata::data
