#include "data/text/spacy_words.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <string>

#include "data/text/byte_runs.h"
#include "data/text/characters.h"
#include "data/text/short_hash.h"
#include "data/text/spacy_rules.h"

namespace strata::data {
namespace {

// The cache grows up to here, then it forgets everything: about 10 MB.
constexpr size_t kFirstSlots = size_t{1} << 12;
constexpr size_t kMaxRuns = size_t{1} << 17;
constexpr size_t kMaxParts = size_t{1} << 19;
constexpr size_t kLongestRun = 128;
constexpr size_t kInlineParts = 9;

struct Part {
  uint8_t size, code_points;
  bool symbol, alpha, punctuation, end_mark;
};

// A run of characters that was cut before, identified only by its hash: two of the runs in the cache have the
// same one with odds of 10^-9. Tokens of ASCII are stored in place, so that a look-up reads one line of
// memory.
struct alignas(32) Run {
  uint64_t hash = 0;
  uint32_t parts = 0;     // where the tokens start in the list, if they are there
  uint8_t count = 0;      // tokens; 0: a free entry
  bool in_place = false;  // each a size and its flags
  uint8_t tokens[kInlineParts][2] = {};
};
static_assert(sizeof(Run) == 32);

enum TokenFlag : uint8_t { kSymbolToken = 1, kAlphaToken = 2, kPunctuationToken = 4, kEndMarkToken = 8 };

struct ByteClasses {
  uint8_t bits[256];  // 1: a letter, 2: a digit, 4: another character of a run, 8: white space, 16: not ASCII
  ByteClasses() : bits() {
    const uint8_t* table = character_table();
    for (int b = 0; b < 256; ++b) {
      if (b >= 0x80) {
        bits[b] = 16;
      } else if (table[b] & kSpaceBit) {
        bits[b] = 8;
      } else {
        bits[b] = table[b] & kAlphaBit ? 1 : table[b] & kDecimalBit ? 2 : 4;
      }
    }
  }
};

const ByteClasses& byte_classes() {
  static const ByteClasses classes;
  return classes;
}

}  // namespace

struct SpacyWords::State {
  SpacyRules rules;
  std::vector<Run> slots = std::vector<Run>(kFirstSlots);  // a power of two of them, at most half full
  std::vector<Part> parts;
  size_t runs = 0;
  std::vector<uint32_t> sizes;
  std::bitset<4096> maybe_exception;  // by hash: exceptions made of letters
  AsciiSet spaces, no_letters;
  std::vector<uint32_t> edges;
  std::vector<uint64_t> no_letter_bits;

  State() {
    for (uint8_t c = 0; c < 0x80; ++c) {
      const uint8_t bits = byte_classes().bits[c];
      if (bits == 8) spaces.add(c);
      if (bits != 1) no_letters.add(c);
    }
    for (const std::string_view text : rules.letter_exceptions())
      maybe_exception.set(place(short_hash(text)));
  }
  size_t place(uint64_t hash) const { return hash % maybe_exception.size(); }

  void add_mixed(std::string_view text, uint64_t hash_of_text, std::vector<Word>& words);
  void add_run(std::string_view run, uint64_t hash, std::vector<Word>& words);
  // The run of this hash that was cut before; nullptr: none.
  const Run* find(uint64_t hash) const {
    const size_t mask = slots.size() - 1;
    for (size_t slot = hash & mask; slots[slot].count != 0; slot = (slot + 1) & mask) {
      if (slots[slot].hash == hash) return &slots[slot];
    }
    return nullptr;
  }
  void add_known(const Run& known, const char* at, std::vector<Word>& words) const;
  static Run& free_slot(std::vector<Run>& slots, uint64_t hash) {
    size_t slot = hash & (slots.size() - 1);
    while (slots[slot].count != 0) slot = (slot + 1) & (slots.size() - 1);
    return slots[slot];
  }
  void remember(uint64_t hash, std::span<const Word> words);
};

void SpacyWords::State::remember(uint64_t hash, std::span<const Word> words) {
  if (runs >= kMaxRuns || parts.size() > kMaxParts) {
    std::fill(slots.begin(), slots.end(), Run{});
    parts.clear();
    runs = 0;
  } else if (runs >= slots.size() / 2) {
    std::vector<Run> larger(slots.size() * 2);
    for (const Run& known : slots) {
      if (known.count != 0) free_slot(larger, known.hash) = known;
    }
    slots.swap(larger);
  }
  Run& run = free_slot(slots, hash);
  run.hash = hash;
  run.count = static_cast<uint8_t>(words.size());
  run.in_place = words.size() <= kInlineParts &&
                 std::all_of(words.begin(), words.end(),
                             [](const Word& word) { return word.code_points == word.bytes.size(); });
  if (run.in_place) {
    for (size_t i = 0; i < words.size(); ++i) {
      const Word& word = words[i];
      run.tokens[i][0] = static_cast<uint8_t>(word.bytes.size());
      run.tokens[i][1] = static_cast<uint8_t>(
          (word.symbol ? kSymbolToken : 0) | (word.alpha ? kAlphaToken : 0) |
          (word.punctuation ? kPunctuationToken : 0) | (word.end_mark ? kEndMarkToken : 0));
    }
  } else {
    run.parts = static_cast<uint32_t>(parts.size());
    for (const Word& word : words) {
      parts.push_back({static_cast<uint8_t>(word.bytes.size()), static_cast<uint8_t>(word.code_points),
                       word.symbol, word.alpha, word.punctuation, word.end_mark});
    }
  }
  ++runs;
}

// The tokens stored in a run's entry, at `to`, with capacity for kInlineParts; returns the next place.
Word* put_tokens(const Run& known, const char* at, Word* to) {
  for (size_t i = 0; i < known.count; ++i) {
    const uint8_t size = known.tokens[i][0], flags = known.tokens[i][1];
    *to++ = {.bytes = {at, size},
             .code_points = size,
             .symbol = (flags & kSymbolToken) != 0,
             .alpha = (flags & kAlphaToken) != 0,
             .punctuation = (flags & kPunctuationToken) != 0,
             .end_mark = (flags & kEndMarkToken) != 0};
    at += size;
  }
  return to;
}

void SpacyWords::State::add_known(const Run& known, const char* at, std::vector<Word>& words) const {
  if (known.in_place) {
    Word tokens[kInlineParts];
    words.insert(words.end(), tokens, put_tokens(known, at, tokens));
    return;
  }
  for (size_t i = 0; i < known.count; ++i) {
    const Part& part = parts[known.parts + i];
    words.push_back({.bytes = {at, part.size},
                     .code_points = part.code_points,
                     .symbol = part.symbol,
                     .alpha = part.alpha,
                     .punctuation = part.punctuation,
                     .end_mark = part.end_mark});
    at += part.size;
  }
}

void SpacyWords::State::add_run(std::string_view run, uint64_t hash, std::vector<Word>& words) {
  const bool cached = run.size() <= kLongestRun;
  if (const Run* const known = cached ? find(hash) : nullptr) return add_known(*known, run.data(), words);
  rules.cut(run, sizes);
  const size_t first = words.size();
  const char* at = run.data();
  for (const uint32_t size : sizes) {
    words.push_back(make_word({at, size}));
    at += size;
  }
  if (cached) remember(hash, std::span<const Word>(words).subspan(first));
}

SpacyWords::SpacyWords() : state_(std::make_unique<State>()) {}
SpacyWords::~SpacyWords() = default;
SpacyWords::SpacyWords(SpacyWords&&) noexcept = default;
SpacyWords& SpacyWords::operator=(SpacyWords&&) noexcept = default;

namespace {

// Iterates over the tokens of a text and finds where sentences start.
class SentenceStarts {
 public:
  explicit SentenceStarts(const char* begin) : begin_(begin), end_(begin) {}

  // Whether a sentence starts at this token, or at white space before it; that is where the token before
  // ended.
  bool add(const Word& word) {
    const bool starts = space_before(word.bytes.data()) || (ended_ && !word.punctuation && !word.end_mark);
    if (starts) ended_ = false;
    if (word.end_mark) ended_ = true;
    end_ = word.bytes.data() + word.bytes.size();
    return starts;
  }
  // Whether a sentence starts at white space at the end.
  bool add_end(const char* end) const { return space_before(end); }

  bool ended() const { return ended_; }  // an end mark came, and nothing since but end marks and punctuation
  const char* end() const { return end_; }  // where the last token ended

 private:
  // White space is a token, and not punctuation; one space after a word belongs to the word.
  bool space_before(const char* next) const {
    const char* from = end_ < next && *end_ == ' ' && end_ > begin_ ? end_ + 1 : end_;
    return ended_ && from < next;
  }

  const char* begin_;
  const char* end_;
  bool ended_ = false;
};

// The run that starts at `at`, up to white space; `seen` (of ByteClasses) gathers the classes of its
// characters.
std::string_view next_run(const char* at, const char* end, const uint8_t* classes, uint8_t& seen) {
  const char* begin = at;
  uint8_t bits = 0;
  seen = 0;
  while (at < end && (bits = classes[static_cast<uint8_t>(*at)]) < 8) {
    seen |= bits;
    ++at;
  }
  if (at < end && bits == 16) {
    const uint8_t* table = character_table();
    seen |= 16;
    while (at < end) {
      const Character c = decode_utf8(at, end);
      if (table[c.value] & kSpaceBit) break;
      at += c.size;
    }
  }
  return {begin, static_cast<size_t>(at - begin)};
}

}  // namespace

void SpacyWords::split(std::string_view text, std::vector<Word>& words) {
  State& state = *state_;
  find_runs(text, state.spaces, state.edges);
  mark_bytes(text, state.no_letters, true, state.no_letter_bits);
  // Words of letters, and tokens of runs that were cut before, are appended to the others in batches.
  std::array<Word, 64> waiting;
  Word* next = waiting.data();
  Word* const full = next + waiting.size() - kInlineParts;
  const auto put = [&] {
    words.insert(words.end(), waiting.data(), next);
    next = waiting.data();
  };
  // The cache is larger than the processor's: a run's entry is prefetched some runs ahead.
  struct Ahead {
    bool mixed;
    uint64_t hash;
  };
  std::array<Ahead, 16> ahead;
  const size_t runs = state.edges.size() / 2;
  for (size_t first = 0; first < runs; first += ahead.size()) {
    const size_t last = std::min(runs, first + ahead.size());
    for (size_t i = first; i < last; ++i) {
      const size_t begin = state.edges[2 * i], end = state.edges[2 * i + 1];
      const bool mixed = any_marked(state.no_letter_bits.data(), begin, end);
      const uint64_t hash = short_hash(text.substr(begin, end - begin));
      ahead[i - first] = {mixed, hash};
      if (mixed) __builtin_prefetch(&state.slots[hash & (state.slots.size() - 1)]);
    }
    for (size_t i = first; i < last; ++i) {
      const size_t begin = state.edges[2 * i], end = state.edges[2 * i + 1];
      const std::string_view run = text.substr(begin, end - begin);
      const Ahead& found = ahead[i - first];
      if (!found.mixed && !state.maybe_exception[state.place(found.hash)]) {
        *next++ = {.bytes = run, .code_points = static_cast<uint32_t>(run.size()), .alpha = true};
      } else if (const Run* const known = run.size() <= kLongestRun ? state.find(found.hash) : nullptr;
                 known != nullptr && known->in_place) {
        next = put_tokens(*known, run.data(), next);
      } else {
        put();
        if (found.mixed) {
          state.add_mixed(run, found.hash, words);
        } else {
          state.add_run(run, found.hash, words);
        }
      }
      if (next > full) put();
    }
  }
  put();
}

// A text without white space but such as is not ASCII, and its hash.
void SpacyWords::State::add_mixed(std::string_view text, uint64_t hash_of_text, std::vector<Word>& words) {
  const uint8_t* classes = byte_classes().bits;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    uint8_t seen;
    const std::string_view run = next_run(at, end, classes, seen);
    at += run.size();
    const uint64_t hash = run.size() == text.size() ? hash_of_text : short_hash(run);
    if ((seen == 1 && !maybe_exception[place(hash)]) || seen == 2) {
      words.push_back({.bytes = run, .code_points = static_cast<uint32_t>(run.size()), .alpha = seen == 1});
    } else if (seen != 0) {
      add_run(run, hash, words);
    }
    // The white space after it: one character; more of it comes back here as an empty run.
    if (at < end) at += decode_utf8(at, end).size;
  }
}

int64_t SpacyWords::count_sentences(std::string_view text, int64_t limit, std::vector<Word>& scratch) {
  const uint8_t* classes = byte_classes().bits;
  SentenceStarts sentences(text.data());
  int64_t number = 1;
  const char* at = text.data();
  const char* end = at + text.size();
  for (; at < end; at += at < end ? decode_utf8(at, end).size : 0) {
    uint8_t seen;
    const std::string_view run = next_run(at, end, classes, seen);
    at += run.size();
    if (run.empty()) continue;
    const bool may_end = (seen & 16) != 0 || ((seen & 4) != 0 && run.find_first_of(".!?") != run.npos);
    if (!may_end && (!sentences.ended() || (classes[static_cast<uint8_t>(run[0])] & 3) != 0)) {
      // Without end marks; and its first token is not punctuation, if that matters.
      if (sentences.add({.bytes = run}) && ++number >= limit) return number;
      continue;
    }
    scratch.clear();
    state_->add_run(run, short_hash(run), scratch);
    for (const Word& word : scratch) {
      if (sentences.add(word) && ++number >= limit) return number;
    }
  }
  return number + (sentences.add_end(end) ? 1 : 0);
}

int64_t count_sentences(std::string_view text, std::span<const Word> words, int64_t limit) {
  SentenceStarts starts(text.data());
  int64_t sentences = 1;
  for (const Word& word : words) {
    if (starts.add(word) && ++sentences >= limit) return sentences;
  }
  return sentences + (starts.add_end(text.data() + text.size()) ? 1 : 0);
}

void split_sentences(std::string_view text, std::span<const Word> words,
                     std::vector<std::string_view>& sentences) {
  SentenceStarts starts(text.data());
  const char* from = text.data();
  const auto cut = [&](const char* at) {
    sentences.emplace_back(from, static_cast<size_t>(at - from));
    from = at;
  };
  for (const Word& word : words) {
    const char* at = starts.end();
    if (starts.add(word)) cut(at);
  }
  if (starts.add_end(text.data() + text.size())) cut(starts.end());
  cut(text.data() + text.size());
}

}  // namespace strata::data
