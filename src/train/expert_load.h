// How busy the experts of a model were in a step.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"
#include "program/executor.h"

namespace strata::train {

struct ExpertLoad {
  // Of the layer where it is greatest: the busiest expert's tokens above the mean, over the mean ("MaxVio",
  // arXiv 2408.15664).
  double max_violation = 0;
  // The mean over layers of the entropy of the shares that experts have of the tokens, over that of equal
  // shares: 1 where all are equally busy.
  double entropy = 0;
  int64_t dead = 0;  // experts that had no token, over all layers
};

// Reads what a rank's layers counted, of all ranks that have them.
class ExpertWatch {
 public:
  ExpertWatch(const models::ModelConfig& model, const graph::Graph& graph);
  bool has_experts() const { return !names_.empty(); }
  ExpertLoad read(const program::Executor& executor) const;

 private:
  std::vector<std::string> names_;  // of the counts
};

// Of the counts of each layer.
ExpertLoad load_of(const std::vector<std::vector<int64_t>>& layers);

}  // namespace strata::train
