// Ranks check each other's arithmetic: each computes the first micro-batch of its neighbour too. Data are a function of the
// sample's number and kernels have the same bits on the same instruction sets, so loss and gradients of a micro-batch do
// not depend on who computes it. A third computation shows which of the two was wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/samples/sample_source.h"
#include "program/executor.h"
#include "train/corruption.h"
#include "train/run_inputs.h"
#include "train/run_position.h"

namespace strata::training {

// A digest of the loss and of all gradients of a rank's micro-batch, before they are summed over ranks, while it exists.
class WorkDigest final : public program::Executor::Observer {
 public:
  WorkDigest(program::Executor& executor, size_t program);

  // Around the actions of the micro-batch.
  void begin() { before_ = executor_.observe(this); }
  void end() { executor_.observe(before_); }

  uint64_t value() const { return digest_; }
  void instruction(size_t program, const program::Action& action, size_t index, double begin,
                   double end) override;
  bool wants_results() const override { return true; }

 private:
  program::Executor& executor_;
  Observer* before_ = nullptr;
  size_t program_;
  uint64_t digest_ = 0;
  std::vector<std::byte> bytes_;
};

// Digests by rank: of the rank's part of the batch, of the next part, and of the part after that; if there are only two
// parts, of the rank's part again. `third` may be empty.
struct WorkVotes {
  std::vector<uint64_t> own, next, third;
};
// The rank whose result is wrong, among those that share a batch in this order; nullopt: none, or nothing shows which. Sets
// `differs` if any results differ.
std::optional<int> wrong_rank(const std::vector<int>& ranks, const WorkVotes& votes, bool& differs);

class RecomputeCheck {
 public:
  // All ranks construct one at the same point. If recovery.recompute_check is set and nothing can be checked, the first rank
  // logs the reason. All arguments must outlive it.
  RecomputeCheck(const RunInputs& inputs, program::Executor& executor);

  bool is_due(int64_t step) const;

  // The step that begins at `position`, with this program.
  void begin(const RunPosition& position, size_t program);
  // Before the step's own micro-batches: computes the next part's first one.
  void compute_next();
  // Observes the step's own first micro-batch.
  WorkDigest& own() { return *own_; }
  // After the micro-batches, before the update: whether they have to run again, since a result was wrong. Call it again
  // after that.
  bool must_repeat();
  // The error found in the step, and whether repeating the step has mended it.
  const std::optional<Corruption>& found() const { return found_; }
  bool is_mended() const { return mended_; }

 private:
  // Computes the first micro-batch of the part `ahead` places after this rank's.
  uint64_t compute(int64_t ahead);
  std::vector<int> ranks_of_batch(int64_t rank) const;

  const RunInputs& inputs_;
  program::Executor& executor_;
  bool can_check_ = true;
  // Of the step:
  const RunPosition* position_ = nullptr;
  size_t program_ = 0;
  uint64_t next_ = 0;
  std::optional<WorkDigest> own_;
  std::optional<Corruption> found_;
  bool mended_ = false;
  data::BatchScratch scratch_;
};

}  // namespace strata::training
