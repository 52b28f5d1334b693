#include "data/dedup/minhash_decide.h"

#include <algorithm>
#include <optional>

#include "data/dedup/clusters.h"
#include "data/dedup/external_sort.h"
#include "data/dedup/record_file.h"
#include "data/dedup/shingle_sets.h"

namespace strata::data::dedup {
namespace {

struct Entry {
  uint64_t key, document;
  bool operator<(const Entry& other) const {
    return key != other.key ? key < other.key : document < other.document;
  }
  uint64_t leading() const { return key; }
};

// Calls use(members) for every key that several documents share, members rising.
void for_each_group(ExternalSorter<Entry>& sorter, FunctionRef<void(std::span<const uint64_t>)> use) {
  std::vector<uint64_t> members;
  uint64_t key = 0;
  const auto end_group = [&] {
    if (members.size() > 1) use(members);
    members.clear();
  };
  sorter.drain([&](const Entry& entry) {
    if (entry.key != key) end_group();
    key = entry.key;
    members.push_back(entry.document);
  });
  end_group();
}

class Decider {
 public:
  Decider(const DecideContext& context, uint64_t tag, const MinhashStageOptions& options)
      : options_(options),
        scratch_{context.files, context.scratch, context.memory_limit / 4},
        records_(context, tag),
        clusters_(scratch_, records_.documents()) {
    records_.for_each_block([&](const RecordFile::Block& block, BlockCursor cursor, uint64_t first) {
      const auto words = cursor.column<uint32_t>(block.documents);
      for (size_t i = 0; i < words.size(); ++i) clusters_.set_words(first + i, words[i]);
    });
  }

  void join(StageStats& stats) {
    if (options_.min_jaccard > 0) {
      sets_.emplace(records_, options_.signature.buckets);
      twins_.emplace(scratch_, "twins", records_.documents());
      for_each_group_of(options_.signature.buckets, [&](auto members) { find_twins(members); });
    }
    int64_t below = 0;
    for (int64_t bucket = 0; bucket < options_.signature.buckets; ++bucket) {
      for_each_group_of(bucket, [&](std::span<const uint64_t> members) {
        if (options_.min_jaccard > 0) {
          below += join_if_alike(members);
        } else {
          for (size_t i = 1; i < members.size(); ++i) clusters_.join(members[0], members[i]);
        }
      });
    }
    if (options_.min_jaccard > 0) stats.count("pairs_below_min_jaccard", below);
  }

  void report(StageStats& stats, FunctionRef<void(uint32_t, std::span<const Decision>)> sink) {
    ScratchArray<uint32_t> dropped(scratch_, "dropped",
                                   records_.documents());  // of the cluster that one heads
    std::vector<Decision> decisions;
    for (uint32_t part = 0; part < records_.parts(); ++part) {
      decisions.clear();
      const uint64_t first = records_.first_of(part), end = records_.first_of(part + 1);
      for (uint64_t document = first; document < end; ++document) {
        const uint64_t best = clusters_.find(document);
        if (best == document) continue;
        ++dropped[best];
        decisions.push_back({.document = static_cast<uint32_t>(document - first),
                             .drop = true,
                             .reason = "near_duplicate",
                             .has_original = true,
                             .original = records_.number(best)});
      }
      sink(part, decisions);
    }
    count_clusters(dropped, stats);
  }

 private:
  void for_each_group_of(int64_t column, FunctionRef<void(std::span<const uint64_t>)> use) {
    ExternalSorter<Entry> sorter({scratch_.files, scratch_.folder, 2 * scratch_.memory},
                                 "keys" + std::to_string(column));
    records_.for_each_block([&](const RecordFile::Block& block, BlockCursor cursor, uint64_t first) {
      const auto words = cursor.column<uint32_t>(block.documents);
      cursor.skip(static_cast<uint64_t>(column) * block.documents * sizeof(uint64_t));
      const auto keys = cursor.column<uint64_t>(block.documents);
      for (size_t i = 0; i < keys.size(); ++i) {
        if (words[i] > 0) sorter.add({keys[i], first + i});
      }
    });
    for_each_group(sorter, use);
  }

  // Members of a group whose sets have the same hash: equal sets hang together, and one stands for all from
  // here on.
  void find_twins(std::span<const uint64_t> members) {
    for (size_t i = 1; i < members.size(); ++i) {
      const auto a = sets_->of(members[0]), b = sets_->of(members[i]);
      if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) continue;
      (*twins_)[members[i]] = 1;
      clusters_.join(members[0], members[i]);
    }
  }

  // Returns how many pairs were looked at and too different.
  int64_t join_if_alike(std::span<const uint64_t> members) {
    int64_t below = 0;
    different_.clear();
    for (const uint64_t member : members) {
      if ((*twins_)[member] == 0) different_.push_back(member);
    }
    for (size_t i = 1; i < different_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (clusters_.find(different_[i]) == clusters_.find(different_[j])) continue;
        if (jaccard(sets_->of(different_[i]), sets_->of(different_[j])) >= options_.min_jaccard) {
          clusters_.join(different_[i], different_[j]);
        } else {
          ++below;
        }
      }
    }
    return below;
  }

  static void count_clusters(ScratchArray<uint32_t>& dropped, StageStats& stats) {
    int64_t clusters = 0, documents = 0, largest = 0;
    for (uint64_t i = 0; i < dropped.size(); ++i) {
      if (dropped[i] == 0) continue;
      const int64_t size = int64_t{dropped[i]} + 1;
      ++clusters;
      documents += size;
      largest = std::max(largest, size);
      stats.count(size == 2     ? "clusters_of_2"
                  : size <= 10  ? "clusters_of_3_to_10"
                  : size <= 100 ? "clusters_of_11_to_100"
                                : "clusters_of_101_or_more");
    }
    stats.count("clusters", clusters);
    stats.count("documents_in_clusters", documents);
    stats.count("largest_cluster", largest);
  }

  const MinhashStageOptions& options_;
  Scratch scratch_;
  Records records_;
  Clusters clusters_;
  std::optional<ShingleSets> sets_;
  std::optional<ScratchArray<uint8_t>> twins_;  // 1: an earlier document has the same set
  std::vector<uint64_t> different_;
};

}  // namespace

void decide_near_duplicates(const DecideContext& context, uint64_t tag, const MinhashStageOptions& options,
                            StageStats& stats, FunctionRef<void(uint32_t, std::span<const Decision>)> sink) {
  Decider decider(context, tag, options);
  decider.join(stats);
  decider.report(stats, sink);
}

}  // namespace strata::data::dedup
