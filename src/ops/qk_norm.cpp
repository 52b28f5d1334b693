#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

// (qkv, q weight, k weight) → y, rstd. A weight as wide as a head normalises each head; one as wide as the
// whole projection, that.
int64_t groups_of(const NodeView& view, const Value& qkv, int part, int weight) {
  const int64_t width = view.in(weight).shape.rank() == 1 ? view.in(weight).shape[0] : 0;
  require(view, qkv.segments.size() == 3, "qkv must have the parts [q | k | v]");
  const int64_t all = qkv.segments[static_cast<size_t>(part)];
  require(view, width > 0 && all % width == 0, "the weights must be as wide as a head or as the projection");
  return all / width;
}

std::vector<ValueSpec> infer(const NodeView& view) {
  const Value& qkv = view.in(QkNorm::kQkv);
  const int64_t q_groups = groups_of(view, qkv, 0, QkNorm::kQWeight),
                k_groups = groups_of(view, qkv, 1, QkNorm::kKWeight);
  return {{"y", qkv.dtype, qkv.shape, qkv.segments},
          {"rstd", DType::kF32, {qkv.shape[0], q_groups + k_groups}, {q_groups, k_groups}}};
}

Cost cost(const NodeView& view) {
  return streamed(view, 5);
}

// By heads only where each head is normalised by itself.
bool by_head(const NodeView& view, int qkv, int q_weight) {
  return view.in(q_weight).shape[0] < view.in(qkv).segments[0];
}

std::vector<PlacementOption> placements(const NodeView& view, int) {
  std::vector<PlacementOption> options{{{kS0, kR, kR}, {kS0, kS0}}};
  if (by_head(view, QkNorm::kQkv, QkNorm::kQWeight)) options.push_back({{kS1, kR, kR}, {kS1, kS1}});
  return options;
}

void gradient(GradientBuilder& builder, const Node& node) {
  Graph& graph = builder.graph();
  const ValueId dy = builder.gradient_of(node.outputs[QkNorm::kY]);
  const ValueId qkv = node.inputs[QkNorm::kQkv], rstd = node.outputs[QkNorm::kRstd];
  builder.add_gradient(
      qkv, graph.add_node(kQkNormGradInput,
                          {dy, qkv, rstd, node.inputs[QkNorm::kQWeight], node.inputs[QkNorm::kKWeight]},
                          node.attrs)[0]);
  builder.weight_grad();
  auto attrs = node.attrs.as<QkNormAttrs>();
  attrs.q_width = graph.value(node.inputs[QkNorm::kQWeight]).shape[0];
  attrs.k_width = graph.value(node.inputs[QkNorm::kKWeight]).shape[0];
  graph.add_node_into(kQkNormGradWeight, {dy, qkv, rstd},
                      {builder.parameter_gradient(node.inputs[QkNorm::kQWeight]),
                       builder.parameter_gradient(node.inputs[QkNorm::kKWeight])},
                      attrs);
}

// --- (dy, qkv, rstd, q weight, k weight) → dx

std::vector<ValueSpec> infer_grad_input(const NodeView& view) {
  return {{"dx", view.in(QkNormGradInput::kQkv).dtype, view.in(QkNormGradInput::kQkv).shape,
           view.in(QkNormGradInput::kQkv).segments}};
}

Cost cost_grad(const NodeView& view) {
  return streamed(view, 8);
}

std::vector<PlacementOption> placements_grad_input(const NodeView& view, int) {
  std::vector<PlacementOption> options{{{kS0, kS0, kS0, kR, kR}, {kS0}}};
  if (by_head(view, QkNormGradInput::kQkv, QkNormGradInput::kQWeight))
    options.push_back({{kS1, kS1, kS1, kR, kR}, {kS1}});
  return options;
}

// --- (dy, qkv, rstd) → accumulates into dq_weight, dk_weight

std::vector<ValueSpec> infer_grad_weight(const NodeView& view) {
  return {{"dq", DType::kF32, {view.attrs<QkNormAttrs>().q_width}},
          {"dk", DType::kF32, {view.attrs<QkNormAttrs>().k_width}}};
}

std::vector<PlacementOption> placements_grad_weight(const NodeView& view, int) {
  std::vector<PlacementOption> options{{{kS0, kS0, kS0}, {kP, kP}}};
  if (view.attrs<QkNormAttrs>().q_width < view.in(QkNormGradWeight::kQkv).segments[0])
    options.push_back({{kS1, kS1, kS1}, {kP, kP}});
  return options;
}

}  // namespace

const OpDef kQkNorm{"qk_norm", "elementwise", infer, cost, placements, gradient};
const OpDef kQkNormGradInput{"qk_norm_grad_input",  "elementwise", infer_grad_input, cost_grad,
                             placements_grad_input, nullptr,       {{0, 0}}};
const OpDef kQkNormGradWeight{"qk_norm_grad_weight", "elementwise", infer_grad_weight, cost_grad,
                              placements_grad_weight};

ValueId qk_norm(Graph& graph, ValueId qkv, ValueId q_weight, ValueId k_weight, double eps,
                double weight_offset) {
  return graph.add_node(kQkNorm, {qkv, q_weight, k_weight},
                        QkNormAttrs{.eps = eps, .weight_offset = weight_offset})[0];
}

}  // namespace strata::ops
