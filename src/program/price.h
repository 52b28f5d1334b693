// How long a step takes: the programs of all ranks that differ, over time. Kernels run on the compute queue, exchanges
// on the communication queue; each starts when its queue is free and its waits are over, as in the executor.
// Messages go from place to place of a pipeline.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "graph/placement.h"
#include "hardware/cluster_spec.h"
#include "program/program.h"

namespace strata::program {

// A rank for each place on the pipeline axis: those that differ on other axes only take the same time. All times are
// in seconds.
struct PricedRank {
  int32_t place = 0;
  double end = 0;            // from the start of the step
  double computing = 0;      // kernels
  double communicating = 0;  // exchanges and messages, hidden or not
  // Time in which compute waits for exchanges along an axis, or is slowed by them. Messages count along the pipeline
  // axis with their transfer; waiting for their sender is bubble.
  graph::PerAxis<double> exposed;
  double exposed_experts = 0;  // the same for rows to and from experts
  double bubble = 0;           // waiting for other places
  struct Span {
    double begin = 0, end = 0;
    // The place whose message it has waited for, and that place's action which sent it; −1: it has not waited.
    int32_t sender = -1;
    size_t sent_by = 0;
  };
  std::vector<Span> actions;  // by index in Program::script
};

struct StepPrice {
  double seconds = 0;             // of the slowest rank
  std::vector<PricedRank> ranks;  // by place
  // The fraction of all ranks' time spent waiting for other places.
  double bubble_share() const;
};

// Hears of everything that takes time, in the order of each place.
class PriceObserver {
 public:
  enum class Queue : uint8_t { kCompute, kCommunication, kMessages };
  virtual ~PriceObserver() = default;
  // `index`: of the instruction in the action's list; of the message in the program on kMessages.
  virtual void work(int32_t place, Queue queue, size_t action, size_t index, double begin, double end) = 0;
};

// `places`: the program sets of all places of the pipeline in order, or one; `index`: of the training program.
StepPrice price_step(std::span<const std::shared_ptr<const ProgramSet>> places, size_t index,
                     const hardware::Machine& machine, PriceObserver* observer = nullptr);

}  // namespace strata::program
