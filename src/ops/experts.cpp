#include "ops/experts.h"

#include "ops/rules.h"

namespace strata::ops {

using graph::OpDef;

namespace {

constexpr int kOffsets = ExpertsIn::kOffsets;  // of all products
static_assert(kOffsets == ExpertsOut::kOffsets && kOffsets == ExpertsGradInput::kOffsets &&
              kOffsets == ExpertsGradWeight::kOffsets);

// Rows of one expert's matrix.
int64_t outputs_of(const NodeView& view, int weight) {
  const int64_t experts = view.attrs<ExpertsAttrs>().experts;
  const Value& w = view.in(weight);
  require(view, w.shape.rank() == 2 && experts > 0 && w.shape[0] % experts == 0,
          "the weight must be [experts · outputs, inputs]");
  return w.shape[0] / experts;
}

int64_t slots_of(const NodeView& view, int ids) {
  return view.in(ids).shape.elements();
}

// Of a product of all slots with matrices of this many elements.
Cost product(const NodeView& view, int ids, int64_t elements) {
  return {2.0 * static_cast<double>(slots_of(view, ids)) * static_cast<double>(elements),
          graph::streamed_bytes(view)};
}

Cost cost(const NodeView& view) {
  const int64_t experts = view.attrs<ExpertsAttrs>().experts;
  return product(view, ExpertsIn::kIds, view.in(ExpertsIn::kWeight).shape.elements() / experts);
}

// Segments of one expert's outputs, which the parameter repeats for each.
std::vector<int64_t> segments_of(const NodeView& view, int weight) {
  const auto& all = view.in(weight).segments;
  const auto experts = static_cast<size_t>(view.attrs<ExpertsAttrs>().experts);
  if (all.size() <= experts || all.size() % experts != 0) return {};
  return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / experts)};
}

std::vector<ValueSpec> infer_in(const NodeView& view) {
  using Op = ExpertsIn;
  require_slots(view, Op::kIds, kOffsets);
  const Value& x = view.in(Op::kX);
  const int64_t outputs = outputs_of(view, Op::kWeight);
  require(view, x.shape.rank() == 2 && x.shape[0] == tokens_of(view, Op::kIds, kOffsets),
          "x must have a row a token");
  require(view, x.shape[1] == view.in(Op::kWeight).shape[1],
          "the last axis of x must equal the last axis of the weight");
  return {{"y", x.dtype, {slots_of(view, Op::kIds), outputs}, segments_of(view, Op::kWeight)}};
}

std::vector<ValueSpec> infer_out(const NodeView& view) {
  using Op = ExpertsOut;
  require_slots(view, Op::kIds, kOffsets);
  const Value& h = view.in(Op::kH);
  const int64_t outputs = outputs_of(view, Op::kWeight);
  require(view, h.shape.rank() == 2 && h.shape[0] == slots_of(view, Op::kIds), "h must have a row a slot");
  require(view, h.shape[1] == view.in(Op::kWeight).shape[1],
          "the last axis of h must equal the last axis of the weight");
  return {{"y", h.dtype, {tokens_of(view, Op::kIds, kOffsets), outputs}}};
}

// `rows`: of dy, and of dx.
std::vector<ValueSpec> infer_grad_input(const NodeView& view, int64_t rows, int64_t rows_before) {
  using Op = ExpertsGradInput;
  const Value& dy = view.in(Op::kDy);
  require(view, dy.shape == Shape({rows, outputs_of(view, Op::kWeight)}),
          "the gradient must be as the product's result");
  return {{"dx", dy.dtype, {rows_before, view.in(Op::kWeight).shape[1]}}};
}

std::vector<ValueSpec> infer_in_grad_input(const NodeView& view) {
  require_slots(view, ExpertsGradInput::kIds, kOffsets);
  return infer_grad_input(view, slots_of(view, ExpertsGradInput::kIds),
                          tokens_of(view, ExpertsGradInput::kIds, kOffsets));
}

std::vector<ValueSpec> infer_out_grad_input(const NodeView& view) {
  require_slots(view, ExpertsGradInput::kIds, kOffsets);
  return infer_grad_input(view, tokens_of(view, ExpertsGradInput::kIds, kOffsets),
                          slots_of(view, ExpertsGradInput::kIds));
}

std::vector<ValueSpec> infer_grad_weight(const NodeView& view, int64_t rows_of_dy, int64_t rows_of_x) {
  using Op = ExpertsGradWeight;
  const Value &dy = view.in(Op::kDy), &x = view.in(Op::kX);
  require(view,
          dy.shape.rank() == 2 && x.shape.rank() == 2 && dy.shape[0] == rows_of_dy && x.shape[0] == rows_of_x,
          "of the gradient and x the one must have a row a slot, the other a row a token");
  return {{"dw", DType::kF32, {view.attrs<ExpertsAttrs>().experts * dy.shape[1], x.shape[1]}}};
}

std::vector<ValueSpec> infer_in_grad_weight(const NodeView& view) {
  require_slots(view, ExpertsGradWeight::kIds, kOffsets);
  return infer_grad_weight(view, slots_of(view, ExpertsGradWeight::kIds),
                           tokens_of(view, ExpertsGradWeight::kIds, kOffsets));
}

std::vector<ValueSpec> infer_out_grad_weight(const NodeView& view) {
  require_slots(view, ExpertsGradWeight::kIds, kOffsets);
  return infer_grad_weight(view, tokens_of(view, ExpertsGradWeight::kIds, kOffsets),
                           slots_of(view, ExpertsGradWeight::kIds));
}

Cost cost_grad_weight(const NodeView& view) {
  using Op = ExpertsGradWeight;
  return product(view, Op::kIds, view.in(Op::kDy).shape[1] * view.in(Op::kX).shape[1]);
}

// Tokens alone are split here: how ranks share experts is not a placement of one dimension of the weight.
// Tokens with offsets are one rank's.
std::vector<PlacementOption> placements(const NodeView& view, Axis) {
  if (view.has(kOffsets)) return {};
  return {{{kS0, kS0, kR}, {kS0}}};
}
std::vector<PlacementOption> placements_grad_weight(const NodeView& view, Axis) {
  if (view.has(kOffsets)) return {};
  return {{{kS0, kS0, kS0}, {kP}}};
}

std::vector<ValueSpec> infer_counts(const NodeView& view) {
  using Op = ExpertCounts;
  const Value& ids = view.in(Op::kIds);
  require(view, ids.dtype == DType::kI32 && ids.shape.rank() == 2, "ids must be i32[N, k]");
  if (view.has(Op::kTargets)) {
    const Value& targets = view.in(Op::kTargets);
    require(view, targets.dtype == DType::kI32 && targets.shape == Shape({ids.shape[0]}),
            "targets must be i32[N]");
  }
  return {{"counts", DType::kI64, {view.attrs<ExpertsAttrs>().experts}}};
}
Cost cost_counts(const NodeView& view) {
  return streamed(view, 1);
}
std::vector<PlacementOption> placements_counts(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kP}}};
}

std::vector<ValueSpec> infer_running(const NodeView& view) {
  const Value& counts = view.in(RunningCounts::kCounts);
  require(view, counts.dtype == DType::kI64 && counts.shape.rank() == 1, "counts must be i64[experts]");
  return {{"now", DType::kF32, {1, counts.shape[0]}}};
}
std::vector<PlacementOption> placements_running(const NodeView&, Axis) {
  return {{{kP}, {kP}}};
}

template <const OpDef* kGradInput, const OpDef* kGradWeight>
void gradient(GradientBuilder& builder, const Node& node) {
  using Op = ExpertsIn;
  Graph& graph = builder.graph();
  const ValueId dy = builder.gradient_of(node.outputs[Op::kY]), ids = node.inputs[Op::kIds];
  const ValueId offsets = node.inputs[kOffsets];
  if (builder.wants(node.inputs[Op::kX])) {
    builder.add_gradient(
        node.inputs[Op::kX],
        graph.add_node(*kGradInput, {dy, ids, node.inputs[Op::kWeight], offsets}, node.attrs)[0]);
  }
  builder.weight_grad();
  graph.add_node_into(*kGradWeight, {dy, node.inputs[Op::kX], ids, offsets},
                      {builder.parameter_gradient(node.inputs[Op::kWeight])}, node.attrs);
}

}  // namespace

const OpDef kExpertsIn{"experts_in", "experts",  infer_in,
                       cost,         placements, gradient<&kExpertsInGradInput, &kExpertsInGradWeight>};
const OpDef kExpertsInGradInput{"experts_in_grad_input", "experts", infer_in_grad_input, cost, placements};
const OpDef kExpertsInGradWeight{"experts_in_grad_weight", "experts_weight", infer_in_grad_weight,
                                 cost_grad_weight, placements_grad_weight};
const OpDef kExpertsOut{"experts_out", "experts",  infer_out,
                        cost,          placements, gradient<&kExpertsOutGradInput, &kExpertsOutGradWeight>};
const OpDef kExpertsOutGradInput{"experts_out_grad_input", "experts", infer_out_grad_input, cost, placements};
const OpDef kExpertsOutGradWeight{"experts_out_grad_weight", "experts_weight", infer_out_grad_weight,
                                  cost_grad_weight, placements_grad_weight};

const OpDef kExpertCounts{"expert_counts", "elementwise", infer_counts, cost_counts, placements_counts};
const OpDef kRunningCounts{"running_counts", "elementwise", infer_running, cost_counts, placements_running};

void require_slots(const NodeView& view, int ids, int offsets) {
  require(view, view.in(ids).dtype == DType::kI32 && view.in(ids).shape.rank() == 2, "ids must be i32[N, k]");
  if (!view.has(offsets)) return;
  const Value& begins = view.in(offsets);
  require(view, begins.dtype == DType::kI32 && begins.shape.rank() == 1 && begins.shape[0] > 0,
          "offsets must be i32[N + 1]");
  require(view, view.in(ids).shape[1] == 1, "beside offsets ids must be i32[S, 1]");
}

int64_t tokens_of(const NodeView& view, int ids, int offsets) {
  return view.has(offsets) ? view.in(offsets).shape[0] - 1 : view.in(ids).shape[0];
}

ValueId experts_in(Graph& graph, ValueId x, ValueId ids, ValueId weight, int64_t experts, ValueId offsets) {
  return graph.add_node(kExpertsIn, {x, ids, weight, offsets}, ExpertsAttrs{experts})[0];
}
ValueId experts_out(Graph& graph, ValueId h, ValueId ids, ValueId weight, int64_t experts, ValueId offsets) {
  return graph.add_node(kExpertsOut, {h, ids, weight, offsets}, ExpertsAttrs{experts})[0];
}
void count_experts(Graph& graph, ValueId ids, ValueId targets, ValueId counts) {
  graph.add_node_into(kExpertCounts, {ids, targets}, {counts}, ExpertsAttrs{graph.value(counts).shape[0]});
}

ValueId running_counts(Graph& graph, ValueId counts) {
  return graph.add_node(kRunningCounts, {counts})[0];
}

}  // namespace strata::ops
