// Runs a corpus stage over texts that are split into given parts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "data/pipeline/stage_kinds.h"
#include "fixtures/scratch_folder.h"

namespace strata::data::dedup {

// A decision with a document number that counts through all parts.
struct Outcome {
  bool drop = false;
  std::string reason;
  int64_t original = -1;
  std::vector<TextSpan> cut{};
  bool operator==(const Outcome&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const Outcome& o) {
  out << (o.drop ? "drop " : "keep ") << o.reason << " of " << o.original;
  for (const TextSpan& span : o.cut) out << " [" << span.begin << ", " << span.end << ")";
  return out;
}

struct RunOptions {
  std::vector<size_t> parts{};  // sizes; empty: one part with all
  int64_t memory_limit = int64_t{1} << 30;
};

// The record files of the texts, in `folder`.
inline std::vector<Path> collect_records(const CorpusStage& stage, const std::vector<std::string>& texts,
                                         const std::vector<size_t>& parts, const Path& folder,
                                         StageStats& stats) {
  std::vector<Path> records;
  TextView view;
  size_t at = 0;
  for (const size_t size : parts) {
    records.push_back(folder / ("part" + std::to_string(records.size())));
    auto collector = stage.collect(posix_file_system(), records.back());
    for (size_t i = 0; i < size; ++i) {
      std::string text = texts[at++];
      view.reset(text);
      collector->add(view, Document{}, stats);
    }
    collector->finish();
  }
  EXPECT_EQ(at, texts.size());
  return records;
}

// The decisions of the stage on every text; adds its counters to `stats`.
inline std::vector<Outcome> run_stage(const CorpusStage& stage, const std::vector<std::string>& texts,
                                      RunOptions options = {}, StageStats* stats = nullptr) {
  if (options.parts.empty()) options.parts = {texts.size()};
  const ScratchFolder folder;
  StageStats own;
  if (stats == nullptr) stats = &own;
  const std::vector<Path> records = collect_records(stage, texts, options.parts, folder.path(), *stats);
  std::filesystem::create_directories(folder / "scratch");
  std::vector<size_t> first(options.parts.size() + 1);
  std::partial_sum(options.parts.begin(), options.parts.end(), first.begin() + 1);
  std::vector<Outcome> outcomes(texts.size());
  uint32_t expected_part = 0;
  const DecideContext context{records, folder / "scratch", options.memory_limit, &posix_file_system()};
  stage.decide(context, *stats, [&](uint32_t part, std::span<const Decision> decisions) {
    EXPECT_EQ(part, expected_part++);
    int64_t last = -1;
    for (const Decision& d : decisions) {
      EXPECT_GT(int64_t{d.document}, last);
      last = d.document;
      if (d.document >= options.parts[part]) {
        ADD_FAILURE() << "document " << d.document << " of " << options.parts[part];
        continue;
      }
      outcomes[first[part] + d.document] = {
          d.drop, std::string(d.reason),
          d.has_original ? static_cast<int64_t>(first[d.original.part] + d.original.document) : -1, d.cut};
    }
  });
  EXPECT_EQ(expected_part, options.parts.size());
  return outcomes;
}

// The texts after the decisions, in order.
inline std::vector<std::string> apply_outcomes(const std::vector<std::string>& texts,
                                               const std::vector<Outcome>& outcomes) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (outcomes[i].drop) continue;
    std::string text;
    size_t at = 0;
    for (const TextSpan& span : outcomes[i].cut) {
      text += texts[i].substr(at, span.begin - at);
      at = span.end;
    }
    kept.push_back(text + texts[i].substr(at));
  }
  return kept;
}

// A stage of a kind, with some parameters set and the defaults for the rest.
inline std::unique_ptr<CorpusStage> make_stage(const std::string& name,
                                               const std::map<std::string, StageValue>& set = {}) {
  for (const StageKind& kind : dedup_stage_kinds()) {
    if (kind.name != name) continue;
    std::map<std::string, StageValue> values;
    for (const StageParameter& parameter : kind.parameters) values[parameter.name] = parameter.value;
    for (const auto& [key, value] : set) {
      if (!values.contains(key)) ADD_FAILURE() << name << " has no parameter " << key;
      values[key] = value;
    }
    return std::get<std::unique_ptr<CorpusStage>>(kind.make(StageParameters(std::move(values), ".")));
  }
  ADD_FAILURE() << "no stage " << name;
  return nullptr;
}

// Small random numbers, the same on every platform.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : seed_(seed) {}
  uint32_t below(uint32_t n) { return philox({seed_, 7}, counter_++)[0] % n; }

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

inline std::string random_words(Numbers& numbers, size_t count, uint32_t vocabulary) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    uint32_t word = numbers.below(vocabulary);
    do text += static_cast<char>('a' + word % 26);
    while ((word /= 26) > 0);
  }
  return text;
}

// Several splits of n documents into parts, some of them empty.
inline std::vector<std::vector<size_t>> ways_to_cut(size_t n) {
  std::vector<std::vector<size_t>> ways = {{n}, {0, n, 0}, {n / 3, n - n / 3}};
  std::vector<size_t> sevens(n / 7, 7);
  sevens.push_back(n % 7);
  ways.push_back(std::move(sevens));
  return ways;
}

}  // namespace strata::data::dedup
