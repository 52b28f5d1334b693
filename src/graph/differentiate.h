// Reverse-mode differentiation of a graph, split into input gradients (I) and weight gradients (W).
#pragma once

#include <span>
#include <utility>
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
  // The gradient of a forward value so far; kNone if there is none. Contributions are added in order of
  // arrival, in fp32, rounded to the value's dtype.
  ValueId gradient_of(ValueId forward) const { return gradients_[static_cast<size_t>(forward)]; }
  // Whether anybody wants the gradient of this value: false for the batch and for constants.
  bool wants(ValueId forward) const;
  // Whether it is a parameter, or one that was put together of its shards.
  bool is_parameter(ValueId forward) const;
  void add_gradient(ValueId forward, ValueId gradient);
  // Takes the gradient of `forward` away from the builder: for rules that fold it into their own result.
  ValueId take_gradient(ValueId forward);
  // The gradients of all values that existed when the builder was made.
  std::vector<ValueId> gradients() && { return std::move(gradients_); }
  // The nodes that the rule adds give the forward node's outputs too: it is taken out of the graph. Its
  // outputs must be such that no other forward node reads them, as those of a loss.
  void replace_forward() { replaced_ = true; }
  // Whether the last rule called replace_forward().
  bool take_replaced() { return std::exchange(replaced_, false); }
  // The accumulator of the gradient of a parameter, or of one put together of its shards; made on first use.
  ValueId parameter_gradient(ValueId parameter);

  // Nodes added from here on are I or W.
  void input_grad() { graph_.set_phase(Phase::kInputGrad); }
  void weight_grad() { graph_.set_phase(Phase::kWeightGrad); }

 private:
  Graph& graph_;
  bool replaced_ = false;
  // By forward value.
  std::vector<ValueId> gradients_;
  std::vector<int32_t> parameters_;  // its index among the graph's parameters; kNone
};

// A loss of the step: a sum over terms, divided in the update by the number of terms of the main loss.
struct WeightedLoss {
  ValueId sum = kNone;  // f64[1], what its nodes add up
  double weight = 1;
  // Its terms in the global batch, i64[1], known before the first micro-batch; may be kNone if there is only
  // one loss.
  ValueId terms = kNone;
  // For a loss besides the main one: its nodes already express it in terms of the main loss, weight included,
  // so its seed is the main one's. The losses that balance experts are of this kind: they are a share of
  // each token's loss.
  bool in_main_terms = false;
};

// A gradient that is not made here: of what another stage of a pipeline goes on with.
struct GivenGradient {
  ValueId value = kNone, gradient = kNone;
};

// Adds to `graph` the nodes that compute the gradient of the losses with respect to every parameter. Returns
// the gradient of every forward value (kNone if there is none; the caller saves those that it wants to read
// by its role). The first loss is the main one, of weight 1. Loss i of weight wᵢ and Nᵢ terms counts wᵢ · N /
// Nᵢ times, with N the main loss's terms: each has its own denominator. A fused loss's node is replaced by
// its training form, which computes loss and gradients in one instruction; a loss in the split form stays.
// `scale`: f32[1], what all losses are multiplied by for the gradients, as in fp16; given gradients have it
// already. kNone: 1, without an operand.
std::vector<ValueId> differentiate(Graph& graph, std::span<const WeightedLoss> losses,
                                   std::span<const GivenGradient> given = {}, ValueId scale = kNone);

}  // namespace strata::graph
