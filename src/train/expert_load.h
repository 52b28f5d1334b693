// The load of a model's experts in a step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/model.h"
#include "observe/expert_load.h"
#include "program/metrics.h"

namespace strata::training {

struct ExpertLoad {
  double max_violation = 0;  // maximum over layers
  double entropy = 0;        // mean over layers
  int64_t dead = 0;          // sum over layers
  // Root mean square over tokens of log Σ exp of the router's logits; maximum over layers.
  double router_z = 0;
  // If experts have a capacity: the fraction of all layers' token–expert pairs that exceeded it.
  std::optional<double> dropped;
  // If ranks share experts: passes per rank after the first ones, summed over layers and micro-batches; and
  // the busiest rank's excess over the mean, divided by the mean; maximum over layers.
  bool is_shared = false;
  double rounds = 0, rank_violation = 0;
  std::vector<observe::LayerTokens> layers;  // ascending, of all ranks
};

// Reads the counts of all layers with experts, including those that predict further tokens. In a pipeline,
// ranks whose other coordinates are 0 add up the counts of their stages, so that the first rank has all
// layers; other ranks have only the counts of one stage.
class ExpertWatch {
 public:
  // `program`: the index of this rank's training program.
  ExpertWatch(const program::Executor& executor, size_t program);
  bool has_experts() const { return !layers_.empty(); }
  // `targets`: number of targets in the step, over all ranks.
  ExpertLoad read(double targets) const;

 private:
  struct Layer {
    int64_t layer = 0;
    program::Metric counts, squares, rounds, kept;  // absent if another stage has the layer
  };
  const program::CompileOptions& options_;
  std::vector<Layer> layers_;
  size_t experts_ = 0;
  bool drops_ = false;
  comm::Communicator* stages_ = nullptr;  // the stages that exchange counts; nullptr: none
};

}  // namespace strata::training
