// Decontamination as datatrove does it: a document that shares an n-gram of simplified words with an
// evaluation set is dropped. n-grams of the label, and those across the border of query and label, are looked
// for.
#include <fmt/format.h>
#include <algorithm>

#include <bit>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "data/filter/kinds.h"
#include "data/filter/list_file.h"
#include "data/text/characters.h"
#include "data/text/short_hash.h"

namespace strata::data {
namespace {

constexpr std::string_view kKind = "decontaminate";
using Strings = std::vector<std::string>;

uint64_t extend(uint64_t key, uint64_t word) {
  return mix_hash(key ^ 0xA0761D6478BD642Fu, word);
}

// 64-bit keys of n-grams with the set that they come from: a wrong hit has odds of keys × n-grams / 2^64.
class GramTable {
 public:
  void add(uint64_t key, uint32_t set) { entries_.emplace_back(key, set); }
  void build() {
    std::sort(entries_.begin(), entries_.end());
    entries_.erase(std::unique(entries_.begin(), entries_.end(),
                               [](const auto& a, const auto& b) { return a.first == b.first; }),
                   entries_.end());
    mask_ = std::bit_ceil(std::max<size_t>(entries_.size(), 8) * 4) - 1;
    slots_.assign(mask_ + 1, 0);
    for (size_t i = 0; i < entries_.size(); ++i) {
      size_t slot = entries_[i].first & mask_;
      while (slots_[slot] != 0) slot = (slot + 1) & mask_;
      slots_[slot] = static_cast<uint32_t>(i + 1);
    }
  }
  size_t size() const { return entries_.size(); }
  // The set, or -1.
  int64_t find(uint64_t key) const {
    for (size_t slot = key & mask_; slots_[slot] != 0; slot = (slot + 1) & mask_) {
      const auto& entry = entries_[slots_[slot] - 1];
      if (entry.first == key) return entry.second;
    }
    return -1;
  }

 private:
  std::vector<std::pair<uint64_t, uint32_t>> entries_;
  std::vector<uint32_t> slots_;
  size_t mask_ = 0;
};

uint64_t gram_key(const uint64_t* words, size_t n) {
  uint64_t key = n;
  for (size_t i = 0; i < n; ++i) key = extend(key, words[i]);
  return key;
}

struct Scratch {
  std::vector<uint64_t> hashes;
};

class Decontaminate final : public DocumentStage {
 public:
  explicit Decontaminate(const StageParameters& parameters)
      : rule_(word_rule(kKind, parameters)),
        n_(static_cast<size_t>(parameters.get<int64_t>("n_grams"))),
        query_grams_(parameters.get<bool>("find_query_ngrams")),
        overlap_grams_(parameters.get<bool>("find_overlap_ngrams")) {
    if (parameters.get<int64_t>("n_grams") < 1) throw ConfigError("[{}] n_grams is below 1", kKind);
    const auto& files = parameters.get<Strings>("files");
    if (files.empty()) throw ConfigError("[{}] files is empty; name the evaluation sets", kKind);
    TextView view;
    for (const std::string& file : files) {
      const Path path = recipe_path(parameters, file);
      sets_.push_back("contaminated_" + path.stem().string());
      read_set(view, path, parameters.get<Strings>("label_fields"), parameters.get<Strings>("query_fields"));
    }
    table_.build();
    if (table_.size() == 0) {
      throw ConfigError(
          "[{}] no text of the evaluation sets has {} words: nothing would ever be found; lower n_grams",
          kKind, n_);
    }
  }

  std::string_view apply(TextView& text, const Document&, StageStats& stats) const override {
    auto& hashes = text.scratch<Scratch>().hashes;
    hash_words(text.simplified_words(rule_), hashes);
    for (size_t i = 0; i + n_ <= hashes.size(); ++i) {
      const int64_t set = table_.find(gram_key(hashes.data() + i, n_));
      if (set < 0) continue;
      stats.count(sets_[static_cast<size_t>(set)]);
      return "contaminated";
    }
    return {};
  }

 private:
  static void hash_words(std::span<const Word> words, std::vector<uint64_t>& out) {
    out.clear();
    for (const Word& word : words) out.push_back(short_hash(word.bytes));
  }
  std::vector<uint64_t> words_of(TextView& view, std::string text) const {
    view.reset(text);
    std::vector<uint64_t> out;
    hash_words(view.simplified_words(rule_), out);
    return out;
  }

  // Labels and queries of a jsonl file; any other file is text, a label a line.
  void read_set(TextView& view, const Path& path, const Strings& label_fields, const Strings& query_fields);
  void add_sample(const std::vector<uint64_t>& query, const std::vector<uint64_t>& label, uint32_t set);
  void add_grams(const std::vector<uint64_t>& words, uint32_t set) {
    for (size_t i = 0; i + n_ <= words.size(); ++i) table_.add(gram_key(words.data() + i, n_), set);
  }

  const WordRule rule_;
  const size_t n_;
  const bool query_grams_, overlap_grams_;
  Strings sets_;
  GramTable table_;
};

// The values of the fields that are present, concatenated.
std::string field_text(const nlohmann::json& record, const Strings& fields) {
  std::string out;
  for (const std::string& field : fields) {
    const auto found = record.find(field);
    if (found == record.end() || !found->is_string()) continue;
    if (!out.empty()) out += ' ';
    out += found->get<std::string>();
  }
  return out;
}

void Decontaminate::read_set(TextView& view, const Path& path, const Strings& label_fields,
                             const Strings& query_fields) {
  const std::string content = read_file(path);
  const auto set = static_cast<uint32_t>(sets_.size() - 1);
  const std::string extension = path.extension().string();
  const bool jsonl = extension == ".jsonl" || extension == ".json" || extension == ".ndjson";
  std::string_view rest = content;
  for (int64_t line = 1; !rest.empty(); ++line) {
    const size_t end = rest.find('\n');
    const std::string_view text = strip(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (text.empty()) continue;
    if (!jsonl) {
      add_sample({}, words_of(view, std::string(text)), set);
      continue;
    }
    const auto record = parse_json_or_discard<nlohmann::json>(text);
    if (!record.is_object())
      throw DataError("[{}] {}:{} is not a JSON object, expected one per line", kKind, path.string(), line);
    const std::string label = field_text(record, label_fields), query = field_text(record, query_fields);
    if (label.empty() && query.empty()) {
      throw DataError("[{}] {}:{} has none of the fields {} and {}; set label_fields and query_fields", kKind,
                      path.string(), line, fmt::join(label_fields, ", "), fmt::join(query_fields, ", "));
    }
    add_sample(words_of(view, query), words_of(view, label), set);
  }
}

void Decontaminate::add_sample(const std::vector<uint64_t>& query, const std::vector<uint64_t>& label,
                               uint32_t set) {
  add_grams(label, set);
  if (query_grams_) add_grams(query, set);
  if (!overlap_grams_) return;
  std::vector<uint64_t> gram;
  for (size_t of_label = 1; of_label < n_; ++of_label) {
    const size_t of_query = n_ - of_label;
    if (query.size() < of_query || label.size() < of_label) continue;
    gram.assign(query.end() - static_cast<ptrdiff_t>(of_query), query.end());
    gram.insert(gram.end(), label.begin(), label.begin() + static_cast<ptrdiff_t>(of_label));
    table_.add(gram_key(gram.data(), n_), set);
  }
}

}  // namespace

StageKind decontaminate_kind() {
  return {.name = std::string(kKind),
          .help = "drops documents that share an n-gram with an evaluation set (as datatrove)",
          .parameters =
              {
                  {"files", Strings{}, "the evaluation sets: jsonl, or text with a sample a line"},
                  {"n_grams", int64_t{12}, "words of an n-gram (GPT-3: 13)"},
                  {"find_query_ngrams", false, "whether n-grams that are only in the query count"},
                  {"find_overlap_ngrams", true, "whether n-grams across the border of query and label count"},
                  {"label_fields", Strings{"text", "label", "answer"},
                   "fields of a jsonl record that hold the label"},
                  {"query_fields", Strings{"query", "question", "prompt"}, "fields that hold the query"},
                  words_parameter(),
              },
          .make = [](const StageParameters& parameters) -> AnyStage {
            return std::make_unique<Decontaminate>(parameters);
          }};
}

}  // namespace strata::data
