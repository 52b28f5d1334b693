// What ranks tell each other behind every step: its loss, how long it took each of them, and whether one of
// them wants the run to stop.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace strata::train {

struct RankReport {
  double loss_sum = 0;
  double tokens = 0;                                   // valid targets
  double balance_loss_sum = 0, router_z_loss_sum = 0;  // of models with experts
  double mtp_loss = 0;                                 // this rank's part of it
  double compute_seconds = 0;                          // of the step, without waiting for other ranks
  double data_wait_seconds = 0;
  double memory_bytes = 0;
  double stops = 0, is_out_of_time = 0;         // 0 or 1
  double wants_evaluation = 0, wants_save = 0;  // of rank 0, whose clock counts
  double is_saving = 0;                         // 0 or 1: the save that was begun goes on
};

class StepExchange {
 public:
  explicit StepExchange(comm::Communicator& ranks);
  // Of all ranks, in their order; the same on all of them.
  const std::vector<RankReport>& exchange(const RankReport& mine);

 private:
  comm::Communicator& ranks_;
  std::unique_ptr<comm::Prepared> prepared_;
  std::vector<RankReport> all_;
};

// Whether some rank says so.
bool any(const std::vector<RankReport>& all, double RankReport::*flag);

}  // namespace strata::train
