// How busy the experts of a model were in a step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/model.h"
#include "observe/expert_load.h"
#include "program/metrics.h"

namespace strata::train {

struct ExpertLoad {
  double max_violation = 0;  // of the layer where it is greatest
  double entropy = 0;        // the mean over layers
  int64_t dead = 0;          // over all layers
  // Root mean square over tokens of log Σ exp of the router's logits, of the layer where it is greatest.
  double router_z = 0;
  // Where experts have bounded room: the share of all layers' slots that found none.
  std::optional<double> dropped;
  // Where ranks share experts: rounds of a rank behind the first ones, over all layers and micro-batches; and
  // how far the busiest rank is above the mean, over the mean, of the layer where that is greatest.
  bool is_shared = false;
  double rounds = 0, rank_violation = 0;
  std::vector<observe::LayerTokens> layers;  // ascending, of all ranks
};

// Reads what was counted of all layers with experts, those that predict further tokens among them. In a
// pipeline the ranks at the first place of all other axes tell each other what their stages have counted, so
// that the first rank knows all layers; others know their own.
class ExpertWatch {
 public:
  // Of this rank's training program.
  ExpertWatch(const program::Executor& executor, size_t program);
  bool has_experts() const { return !layers_.empty(); }
  // `targets`: of all ranks in the step.
  ExpertLoad read(double targets) const;

 private:
  struct Layer {
    int64_t layer = 0;
    program::Metric counts, squares, rounds, kept;  // absent where another stage has the layer
  };
  const program::CompileOptions& options_;
  std::vector<Layer> layers_;
  size_t experts_ = 0;
  bool drops_ = false;
  comm::Communicator* stages_ = nullptr;  // that tell each other; nullptr: nobody needs to
};

}  // namespace strata::train
