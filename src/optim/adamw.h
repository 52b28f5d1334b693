// AdamW (Loshchilov and Hutter 2019; PyTorch's order of operations) with clipping by global norm, as an
// update graph.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op.h"

namespace strata::optim {

// Elements whose squares one partial sum holds: norms are reduced in a fixed order, whatever the thread
// count.
inline constexpr int64_t kNormBlock = 1 << 16;

// What changes between steps, in the step block; the trainer writes it before each update.
struct UpdateHyper {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double max_grad_norm = 0;  // 0: no clipping
  float lr = 0;
  float eps = 1e-8f;
  float bias_correction1 = 1;  // 1 - beta1^t, t = updates made, this one included
  float bias_correction2 = 1;
};
// Bytes of "hyper" and "scalars" in the step block; the kernels' own struct of scalars has at most as many.
inline constexpr int64_t kScalarBytes = 64;
static_assert(sizeof(UpdateHyper) <= kScalarBytes);

// How one parameter is updated.
struct ParameterRule {
  double weight_decay = 0;
  double lr_scale = 1;
  // Further factors on lr_scale, one for each segment of the parameter; its weight decay is divided by it, so
  // that the share of a weight that a step takes away stays the same. Empty: all 1.
  std::vector<double> part_scales = {};
};
using RuleOf = std::function<ParameterRule(const std::string& name, graph::ParameterRole role)>;

// Moments of one parameter, named "m.<parameter>" and "v.<parameter>".
struct Moments {
  graph::ValueId parameter = graph::kNone, first = graph::kNone, second = graph::kNone;
};

struct UpdateGraph {
  graph::ValueId hyper = graph::kNone;       // u8[kScalarBytes], an UpdateHyper
  graph::ValueId scalars = graph::kNone;     // u8[kScalarBytes], what the update kernels read
  graph::ValueId grad_norm = graph::kNone;   // f32[1]: norm of the mean gradient, before clipping
  graph::ValueId param_norm = graph::kNone;  // f32[1]: norm of all parameters after the update
  std::vector<Moments> moments;
};

// Appends the update of every parameter of a differentiated graph. `token_count` is the accumulator by which
// the summed gradients are divided. A norm that is not finite skips the update: parameters and moments stay
// as they were.
UpdateGraph add_adamw_update(graph::Graph& graph, graph::ValueId token_count, const RuleOf& rule_of);

extern const graph::OpDef kSumOfSquares;   // (x) → partials f64[ceil(n / kNormBlock)]
extern const graph::OpDef kUpdateScalars;  // (hyper, token_count, partials…) → scalars, grad_norm
extern const graph::OpDef kRootOfSum;      // (partials…) → f32[1]
struct AdamWAttrs {
  double weight_decay = 0;
  double lr_scale = 1;
  // Rows of the parameter's parts (of a shard: in these proportions) and their own factors on the rate;
  // empty: one part.
  std::vector<double> part_rows = {}, part_scales = {};
  bool operator==(const AdamWAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};
extern const graph::OpDef kAdamW;  // (master, m, v, grad, scalars) → master, m, v
// The parts of a kAdamW node: elements and rate of each, in order.
struct UpdatePart {
  int64_t elements = 0;
  double lr_scale = 1;
  double weight_decay = 0;
};
std::vector<UpdatePart> update_parts(const AdamWAttrs& attrs, const Shape& shape);

}  // namespace strata::optim
