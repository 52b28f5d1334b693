// The report that ranks exchange after every step: loss, time, and requests to stop, save or evaluate.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace strata::training {

// The halves of a digest of 64 bits: a double holds only 53.
struct SplitDigest {
  SplitDigest() = default;
  explicit SplitDigest(uint64_t digest)
      : high(static_cast<double>(digest >> 32)), low(static_cast<double>(digest & 0xffffffff)) {}
  uint64_t joined() const { return static_cast<uint64_t>(high) << 32 | static_cast<uint64_t>(low); }
  bool operator==(const SplitDigest&) const = default;

  double high = 0, low = 0;
};

struct RankReport {
  double loss_sum = 0;
  double tokens = 0;                                   // valid targets
  double balance_loss_sum = 0, router_z_loss_sum = 0;  // models with experts
  double indexer_loss_sum = 0, indexer_share_sum = 0;  // models with an indexer
  double mtp_loss = 0;                                 // this rank's contribution
  double compute_seconds = 0;                          // of the step, excluding waits for other ranks
  double data_wait_seconds = 0;
  double memory_bytes = 0;
  // Digests of weights before and after the update and of gradients' sums, and the first rank with the same ones.
  SplitDigest used_weights = {}, weights = {}, gradients = {};
  double first_replica = 0;
  double is_first_with_weights = 0;      // 0 or 1: no earlier rank has the same weights after the update
  SplitDigest judgement = {};            // of the update and all that it is compared with
  double stops = 0, is_out_of_time = 0;  // 0 or 1
  // 0 or 1; only rank 0's are used.
  double wants_evaluation = 0, wants_save = 0, wants_copy = 0;
  double is_steered = 0;  // 0 or 1: requests have arrived (rank 0)
  double is_saving = 0;   // 0 or 1: a save is in progress
};

class StepExchange {
 public:
  explicit StepExchange(comm::Communicator& ranks);
  // Returns the reports of all ranks in rank order, the same on all ranks.
  const std::vector<RankReport>& exchange(const RankReport& mine);

 private:
  comm::Communicator& ranks_;
  std::unique_ptr<comm::Prepared> prepared_;
  std::vector<RankReport> all_;
};

// Whether any rank has set `flag`.
bool any(const std::vector<RankReport>& all, double RankReport::*flag);

}  // namespace strata::training
