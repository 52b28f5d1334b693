// Reverse-mode differentiation of a graph, split into input gradients (I) and weight gradients (W).
#pragma once

#include <vector>

#include "graph/graph.h"

namespace strata::graph {

// What a gradient rule works with. It runs once per forward node, last node first; the nodes that it adds go
// to the end of the graph. Each W goes right after the I of its node, so that no output gradient outlives its
// layer.
class GradientBuilder {
 public:
  explicit GradientBuilder(Graph& graph);

  Graph& graph() { return graph_; }
  // The gradient of a forward value so far; kNone where none flows. Contributions are added in the order in
  // which they came, in fp32, rounded to the value's dtype.
  ValueId gradient_of(ValueId forward) const { return gradients_[static_cast<size_t>(forward)]; }
  // Whether anybody wants the gradient of this value: false for the batch and for constants.
  bool wants(ValueId forward) const;
  void add_gradient(ValueId forward, ValueId gradient);
  // Takes the gradient of `forward` away from the builder: for rules that fold it into their own result.
  ValueId take_gradient(ValueId forward);
  // The accumulator of a parameter's gradient, made on first use.
  ValueId parameter_gradient(ValueId parameter);

  // Nodes added from here on are I or W.
  void input_grad() { graph_.set_phase(Phase::kInputGrad); }
  void weight_grad() { graph_.set_phase(Phase::kWeightGrad); }

 private:
  Graph& graph_;
  // By forward value.
  std::vector<ValueId> gradients_;
  std::vector<int32_t> parameters_;  // its index among the graph's parameters; kNone
};

// Adds to `graph` the nodes that compute the gradient of its last node, a loss, with respect to every
// parameter. The loss node itself is replaced by its training form, which gives loss and gradients in one
// instruction.
void differentiate(Graph& graph);

}  // namespace strata::graph
