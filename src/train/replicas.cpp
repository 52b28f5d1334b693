#include "train/replicas.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/log.h"
#include "comm/exchange.h"

namespace strata::training {
namespace {

using ReportedDigest = SplitDigest RankReport::*;

// "0, 2 and 4"
std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return text;
}

std::optional<Corruption> difference_among(const std::vector<RankReport>& all, const std::vector<int>& ranks,
                                           ReportedDigest digest, const char* where) {
  std::vector<uint64_t> digests;
  for (const int rank : ranks) digests.push_back((all[static_cast<size_t>(rank)].*digest).joined());
  if (std::adjacent_find(digests.begin(), digests.end(), std::not_equal_to<>()) == digests.end())
    return std::nullopt;
  return Corruption{.where = where,
                    .found_by = "compare_replicas",
                    .rank = odd_one(ranks, digests),
                    .ranks = list_of(ranks)};
}

std::optional<Corruption> difference(const std::vector<RankReport>& all) {
  std::map<int, std::vector<int>> replicas;  // by the first rank
  std::vector<int> every;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    replicas[static_cast<int>(all[rank].first_replica)].push_back(static_cast<int>(rank));
    every.push_back(static_cast<int>(rank));
  }
  struct Held {
    ReportedDigest digest;
    const char* name;
  };
  for (const Held& held :
       {Held{&RankReport::used_weights, "weights"}, Held{&RankReport::gradients, "gradients"},
        Held{&RankReport::weights, "weights"}}) {
    for (const auto& [first, ranks] : replicas) {
      if (auto found = difference_among(all, ranks, held.digest, held.name)) return found;
    }
  }
  return difference_among(all, every, &RankReport::judgement, "losses");
}

}  // namespace

std::optional<int> odd_one(const std::vector<int>& ranks, const std::vector<uint64_t>& digests) {
  std::map<uint64_t, size_t> counts;
  for (const uint64_t digest : digests) ++counts[digest];
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto majority = std::find_if(counts.begin(), counts.end(),
                                       [&](const auto& one) { return 2 * one.second > ranks.size(); });
    if (majority == counts.end()) return std::nullopt;
    if (digests[i] != majority->first) return ranks[i];
  }
  return std::nullopt;
}

ReplicaCheck::ReplicaCheck(const RunInputs& inputs, const program::Executor& executor) : inputs_(inputs) {
  const auto sets = comm::gather_texts(inputs.ranks.all(), executor.device().spec().isa.str());
  const auto other =
      std::find_if(sets.begin(), sets.end(), [&](const auto& one) { return one != sets.front(); });
  can_compare_ = other == sets.end();
  const auto& interval = inputs.config.recovery.compare_replicas;
  if (can_compare_ || !inputs.is_first() || interval.kind == config::Interval::Kind::kNever) return;
  log_warning(
      "[recovery.compare_replicas] replicas are not compared: rank 0 has the instruction sets {}, rank {} has {}, and their "
      "results differ in the last bits",
      sets.front(), other - sets.begin(), *other);
}

bool ReplicaCheck::is_due(int64_t step, bool is_kept) const {
  if (!can_compare_) return false;
  const config::Interval& interval = inputs_.config.recovery.compare_replicas;
  switch (interval.kind) {
    case config::Interval::Kind::kNever:
      return false;
    case config::Interval::Kind::kSteps:
      return is_kept || step % interval.count == 0;
    default:
      return true;
  }
}

std::optional<Corruption> ReplicaCheck::compare(const std::vector<RankReport>& all) {
  std::optional<Corruption> found = difference(all);
  if (found) {
    found->splits_ranks = std::any_of(all.begin(), all.end(), [&](const RankReport& one) {
      return one.judgement != all.front().judgement;
    });
  }
  return found;
}

}  // namespace strata::training
