// Compares what several ranks hold in duplicate. Replicas have the same bits after every step, because sums over ranks have
// the same bits on all of them and updates are the same program on the same instruction sets: a difference is an error of a
// machine.
#pragma once

#include <optional>
#include <vector>

#include "program/executor.h"
#include "train/corruption.h"
#include "train/rank_report.h"
#include "train/run_inputs.h"

namespace strata::training {

class ReplicaCheck {
 public:
  // All ranks construct one at the same point. If recovery.compare_replicas is on and nothing can be compared, the first
  // rank logs the reason. `inputs` must outlive it.
  ReplicaCheck(const RunInputs& inputs, const program::Executor& executor);

  // Whether the reports of a step are compared: by recovery.compare_replicas, and wherever a state is kept that a run may go
  // back to.
  bool is_due(int64_t step, bool is_kept) const;
  // The first difference between ranks that hold the same, the same on all ranks: of gradients, of weights, or of what all
  // ranks judge the step by.
  static std::optional<Corruption> compare(const std::vector<RankReport>& all);

 private:
  const RunInputs& inputs_;
  bool can_compare_ = true;  // all ranks have the same instruction sets
};

// The rank whose digest differs from that of the majority among `ranks`; nullopt: no majority. They are not all equal.
std::optional<int> odd_one(const std::vector<int>& ranks, const std::vector<uint64_t>& digests);

}  // namespace strata::training
