// The report that ranks exchange after every step: loss, time, and requests to stop, save or evaluate.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace strata::training {

struct RankReport {
  double loss_sum = 0;
  double tokens = 0;                                   // valid targets
  double balance_loss_sum = 0, router_z_loss_sum = 0;  // models with experts
  double mtp_loss = 0;                                 // this rank's contribution
  double compute_seconds = 0;                          // of the step, excluding waits for other ranks
  double data_wait_seconds = 0;
  double memory_bytes = 0;
  double digest_high = 0, digest_low = 0;       // halves of StatisticsWatch::own_digest
  double stops = 0, is_out_of_time = 0;         // 0 or 1
  double wants_evaluation = 0, wants_save = 0;  // only rank 0's are used
  double is_steered = 0;                        // 0 or 1: requests have arrived (rank 0)
  double is_saving = 0;                         // 0 or 1: a save is in progress
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
