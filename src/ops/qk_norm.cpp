#include "graph/reshard.h"
#include "graph/shard.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

// (qkv, q weight, k weight, means?) → y, rstd. A weight as wide as a head normalises each head; one as wide
// as the whole projection, that.
int64_t groups_of(const NodeView& view, const Value& qkv, int part, int weight) {
  const int64_t width = view.in(weight).shape.rank() == 1 ? view.in(weight).shape[0] : 0;
  require(view, qkv.segments.size() == 3, "qkv must have the parts [q | k | v]");
  const int64_t all = qkv.segments[static_cast<size_t>(part)];
  require(view, width > 0 && all % width == 0, "the weights must be as wide as a head or as the projection");
  return all / width;
}

void require_means(const NodeView& view, int qkv, int means) {
  if (!view.has(means)) return;
  require(view,
          view.in(means).shape == Shape{view.in(qkv).shape[0], 2} && view.in(means).dtype == DType::kF32,
          "means must be f32[N, 2]");
}

std::vector<ValueSpec> infer(const NodeView& view) {
  require_means(view, QkNorm::kQkv, QkNorm::kMeans);
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

std::vector<PlacementOption> placements(const NodeView& view, Axis) {
  std::vector<PlacementOption> options{{{kS0, kR, kR, kS0}, {kS0, kS0}}};
  if (by_head(view, QkNorm::kQkv, QkNorm::kQWeight)) options.push_back({{kS1, kR, kR, kR}, {kS1, kS1}});
  if (view.has(QkNorm::kMeans)) options.push_back({{kS1, kS0, kS0, kR}, {kS1, kR}});
  return options;
}

QkMeansAttrs attrs_of_means(const Graph& graph, ValueId qkv, QkMeansAttrs attrs) {
  attrs.q_width = graph.value(qkv).segments[0];
  attrs.k_width = graph.value(qkv).segments[1];
  return attrs;
}

void gradient(GradientBuilder& builder, const Node& node) {
  Graph& graph = builder.graph();
  const ValueId dy = builder.gradient_of(node.outputs[QkNorm::kY]);
  const ValueId qkv = node.inputs[QkNorm::kQkv], rstd = node.outputs[QkNorm::kRstd];
  const ValueId q_weight = node.inputs[QkNorm::kQWeight], k_weight = node.inputs[QkNorm::kKWeight];
  const bool over_ranks = node.inputs[QkNorm::kMeans] != kNone;
  ValueId means = kNone;
  if (over_ranks) {
    const auto attrs = attrs_of_means(graph, qkv, node.attrs.as<QkNormAttrs>());
    means = graph::sum_over_ranks(graph, graph.add_node(kQkMeans, {qkv, dy, q_weight, k_weight}, attrs)[0]);
  }
  builder.add_gradient(
      qkv, graph.add_node(kQkNormGradInput, {dy, qkv, rstd, q_weight, k_weight, means}, node.attrs)[0]);
  if (!builder.wants(q_weight)) return;
  builder.weight_grad();
  auto attrs = node.attrs.as<QkNormAttrs>();
  attrs.q_width = over_ranks ? 0 : graph.value(q_weight).shape[0];
  attrs.k_width = over_ranks ? 0 : graph.value(k_weight).shape[0];
  graph.add_node_into(kQkNormGradWeight, {dy, qkv, rstd},
                      {builder.parameter_gradient(node.inputs[QkNorm::kQWeight]),
                       builder.parameter_gradient(node.inputs[QkNorm::kKWeight])},
                      attrs);
}

// --- (dy, qkv, rstd, q weight, k weight, means?) → dx

std::vector<ValueSpec> infer_grad_input(const NodeView& view) {
  require_means(view, QkNormGradInput::kQkv, QkNormGradInput::kMeans);
  return {{"dx", view.in(QkNormGradInput::kQkv).dtype, view.in(QkNormGradInput::kQkv).shape,
           view.in(QkNormGradInput::kQkv).segments}};
}

Cost cost_grad(const NodeView& view) {
  return streamed(view, 8);
}

std::vector<PlacementOption> placements_grad_input(const NodeView& view, Axis) {
  std::vector<PlacementOption> options{{{kS0, kS0, kS0, kR, kR, kS0}, {kS0}}};
  if (by_head(view, QkNormGradInput::kQkv, QkNormGradInput::kQWeight))
    options.push_back({{kS1, kS1, kS1, kR, kR, kR}, {kS1}});
  if (view.has(QkNormGradInput::kMeans)) options.push_back({{kS1, kS1, kR, kS0, kS0, kR}, {kS1}});
  return options;
}

// --- (dy, qkv, rstd) → accumulates into dq_weight, dk_weight

std::vector<ValueSpec> infer_grad_weight(const NodeView& view) {
  const auto& attrs = view.attrs<QkNormAttrs>();
  const auto& parts = view.in(QkNormGradWeight::kQkv).segments;
  return {{"dq", DType::kF32, {attrs.q_width > 0 ? attrs.q_width : parts[0]}},
          {"dk", DType::kF32, {attrs.k_width > 0 ? attrs.k_width : parts[1]}}};
}

std::vector<PlacementOption> placements_grad_weight(const NodeView& view, Axis) {
  std::vector<PlacementOption> options{{{kS0, kS0, kS0}, {kP, kP}}};
  const int64_t q_width = view.attrs<QkNormAttrs>().q_width;
  if (q_width == 0) {
    options.push_back({{kS1, kS1, kR}, {kS0, kS0}});
  } else if (q_width < view.in(QkNormGradWeight::kQkv).segments[0]) {
    options.push_back({{kS1, kS1, kS1}, {kP, kP}});
  }
  return options;
}

// --- (qkv, dy?, q weight?, k weight?) → means

std::vector<ValueSpec> infer_means(const NodeView& view) {
  const Value& qkv = view.in(QkMeans::kQkv);
  require(view, qkv.segments.size() == 3, "qkv must have the parts [q | k | v]");
  require(view,
          view.has(QkMeans::kDy) == view.has(QkMeans::kQWeight) &&
              view.has(QkMeans::kDy) == view.has(QkMeans::kKWeight),
          "the gradient and both weights come together");
  return {{"means", DType::kF32, {qkv.shape[0], 2}}};
}

Cost cost_means(const NodeView& view) {
  return streamed(view, 3);
}

std::vector<PlacementOption> placements_means(const NodeView&, Axis) {
  return {{{kS0, kS0, kR, kR}, {kS0}}, {{kS1, kS1, kS0, kS0}, {kP}}};
}

}  // namespace

const OpDef kQkNorm{"qk_norm", "elementwise", infer, cost, placements, gradient};
const OpDef kQkNormGradInput{"qk_norm_grad_input",  "elementwise", infer_grad_input, cost_grad,
                             placements_grad_input, nullptr,       {{0, 0}}};
const OpDef kQkNormGradWeight{"qk_norm_grad_weight", "elementwise", infer_grad_weight, cost_grad,
                              placements_grad_weight};

const OpDef kQkMeans{"qk_means", "elementwise", infer_means, cost_means, placements_means};

ValueId qk_norm(Graph& graph, ValueId qkv, ValueId q_weight, ValueId k_weight, double eps,
                double weight_offset) {
  const QkNormAttrs attrs{.eps = eps, .weight_offset = weight_offset};
  ValueId means = kNone;
  if (graph::is_sharded(graph, graph.value(q_weight))) {
    const auto squares =
        graph.add_node(kQkMeans, {qkv, kNone, kNone, kNone}, attrs_of_means(graph, qkv, attrs))[0];
    means = graph::sum_over_ranks(graph, squares);
  }
  return graph.add_node(kQkNorm, {qkv, q_weight, k_weight, means}, attrs)[0];
}

}  // namespace strata::ops
