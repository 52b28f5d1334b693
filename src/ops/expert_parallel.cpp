#include "ops/expert_parallel.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "graph/reshard.h"
#include "ops/rules.h"

namespace strata::ops {

using graph::OpDef;
using graph::Phase;
using graph::Role;

namespace {

// --- The body

ValueId add_input(Graph& graph, const char* name, DType dtype, Shape shape, Role role) {
  Value value;
  value.name = name;
  value.dtype = dtype;
  value.shape = shape;
  value.role = role;
  return graph.add_value(std::move(value));
}

// Of what nodes in some phases make, what others read.
class Lists {
 public:
  explicit Lists(const ExpertBody& body) : body_(body) {
    for (const Node& node : body.graph.nodes()) {
      for (const ValueId output : node.outputs) {
        if (output != kNone && graph::is_temporary(body.graph.value(output).role))
          made_[index(node.phase)].insert(output);
      }
      for (const ValueId input : node.inputs) {
        if (input != kNone) read_[index(node.phase)].insert(input);
      }
    }
    const ExpertInputs& in = body.inputs;
    made_[0].insert({in.rows, in.ids, in.offsets, in.weights});
    made_[1].insert(body.result_grad);
  }
  std::vector<ValueId> of(Phase made, std::initializer_list<Phase> readers) const {
    std::vector<ValueId> list;
    for (const ValueId value : made_[index(made)]) {
      const bool is_read = std::any_of(readers.begin(), readers.end(),
                                       [&](Phase phase) { return read_[index(phase)].contains(value); });
      // A row's slots are needed for the way back, too.
      if (is_read || value == body_.inputs.offsets) list.push_back(value);
    }
    return list;
  }

 private:
  static size_t index(Phase phase) {
    return phase == Phase::kForward ? 0 : phase == Phase::kInputGrad ? 1 : 2;
  }
  const ExpertBody& body_;
  std::set<ValueId> made_[3], read_[3];
};

void differentiate_body(ExpertBody& body) {
  Graph& graph = body.graph;
  const Value result = graph.value(body.result);
  body.result_grad = add_input(graph, "dy", result.dtype, result.shape, Role::kActivation);
  const auto gradients =
      graph::differentiate(graph, {}, std::vector<graph::GivenGradient>{{body.result, body.result_grad}});
  body.rows_grad = gradients[static_cast<size_t>(body.inputs.rows)];
  body.weights_grad = gradients[static_cast<size_t>(body.inputs.weights)];
  for (const ValueId parameter : body.inputs.parameters) {
    const auto& all = graph.parameters();
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const graph::Parameter& one) { return one.value == parameter; });
    STRATA_CHECK(found != all.end(), "{} is no parameter of a body of experts", graph.value(parameter).name);
    body.parameter_grads.push_back(found->gradient);
  }
  STRATA_CHECK(body.rows_grad != kNone && body.weights_grad != kNone,
               "a body of experts passes no gradient to its rows or weights");
}

}  // namespace

void list_values(ExpertBody& body) {
  if (body.trains()) {
    const Lists lists(body);
    body.kept = lists.of(Phase::kForward, {Phase::kInputGrad, Phase::kWeightGrad});
    body.kept_for_weights = lists.of(Phase::kForward, {Phase::kWeightGrad});
    body.handed = lists.of(Phase::kInputGrad, {Phase::kWeightGrad});
  }
  body.key = graph::str(body.graph);
  for (const Node& node : body.graph.nodes()) node.attrs.append_to(body.key);
}

std::shared_ptr<const ExpertBody> make_expert_body(const ExpertBodySpec& spec) {
  auto body = std::make_shared<ExpertBody>();
  Graph& graph = body->graph;
  ExpertInputs& in = body->inputs;
  in.rows = add_input(graph, "rows", spec.dtype, {spec.rows, spec.width}, Role::kActivation);
  in.ids = add_input(graph, "ids", DType::kI32, {spec.slots, 1}, Role::kActivation);
  in.offsets = add_input(graph, "offsets", DType::kI32, {spec.rows + 1}, Role::kActivation);
  in.weights = add_input(graph, "weights", DType::kF32, {spec.slots}, Role::kActivation);
  in.parameters = spec.parameters(graph);
  body->result = spec.build(graph, in);
  STRATA_CHECK(graph.value(body->result).shape == Shape({spec.rows, spec.width}) &&
                   graph.value(body->result).dtype == spec.dtype,
               "a body of experts gives {}, not what rows are", graph.value(body->result).shape.str());
  if (spec.trains) differentiate_body(*body);
  list_values(*body);
  return body;
}

// --- Attributes

bool ExpertParallelAttrs::operator==(const ExpertParallelAttrs& other) const {
  return body->key == other.body->key && axes == other.axes && summed_axes == other.summed_axes &&
         tensor_axis == other.tensor_axis && on_tensor_axis == other.on_tensor_axis &&
         tokens == other.tokens && k == other.k && experts == other.experts && ranks == other.ranks &&
         node_ranks == other.node_ranks && room == other.room && parts == other.parts;
}

void ExpertParallelAttrs::describe(graph::AttributeText& to) const {
  to("experts", experts);
  to("k", k);
  to("ranks", ranks);
  if (node_ranks > 0) to("node_ranks", node_ranks);
  to("tokens", tokens);
  to("rows", room.rows);
  to("slots", room.slots);
  for (const Axis axis : axes) to("axis", name_of(axis));
  for (const Axis axis : summed_axes) to("summed_axis", name_of(axis));
  if (tensor_axis) to("tensor_axis", name_of(*tensor_axis));
  if (parts > 1) to("parts", parts);
  to("body", fmt::format("{:016x}", std::hash<std::string>{}(body->key)));
}

namespace {

// The share of tokens that any of a rank's experts gets when each token's k experts are any.
double share_of_tokens(int64_t k, int64_t experts, int64_t ranks) {
  double none = 1;  // C(E - E/R, k) / C(E, k)
  const int64_t others = experts - experts / ranks;
  for (int64_t i = 0; i < k; ++i)
    none *= std::max(0.0, static_cast<double>(others - i)) / static_cast<double>(experts - i);
  return 1 - none;
}

ExpertRoom room_of(int64_t tokens, int64_t k, int64_t experts, int64_t ranks, double factor,
                   double deviations) {
  const int64_t hits = std::min(k, experts / ranks);
  const auto fit = [&](double balanced, int64_t least, int64_t most) {
    const double wanted = std::ceil(factor * balanced + deviations * std::sqrt(balanced));
    return wanted >= static_cast<double>(most) ? most : std::max(least, static_cast<int64_t>(wanted));
  };
  const auto n = static_cast<double>(tokens);
  return {fit(n * share_of_tokens(k, experts, ranks), std::min<int64_t>(1, tokens), tokens),
          fit(n * static_cast<double>(k) / static_cast<double>(ranks), std::min(hits, tokens * hits),
              tokens * hits)};
}

}  // namespace

ExpertRoom expert_room(int64_t tokens, int64_t k, int64_t experts, int64_t ranks, double factor) {
  return room_of(tokens, k, experts, ranks, factor, 0);
}
ExpertRoom expert_room(int64_t tokens, int64_t k, int64_t experts, int64_t ranks) {
  return room_of(tokens, k, experts, ranks, 1.25, 4);
}

namespace {

// --- Rules

const ExpertParallelAttrs& attrs_of(const NodeView& view) {
  return view.attrs<ExpertParallelAttrs>();
}

void require_tokens(const NodeView& view, int x, int ids, int weights) {
  const auto& attrs = attrs_of(view);
  const Shape chosen{view.in(ids).shape[0], attrs.k};
  require(view, view.in(x).shape.rank() == 2 && view.in(x).shape[0] == chosen[0],
          "x must have a row a token");
  require(view, view.in(ids).dtype == DType::kI32 && view.in(ids).shape == chosen, "ids must be i32[N, k]");
  require(view, view.in(weights).dtype == DType::kF32 && view.in(weights).shape == chosen,
          "weights must be f32[N, k]");
  require(view, attrs.ranks >= 1 && attrs.experts % attrs.ranks == 0,
          "experts must be equally many on all ranks");
}

// Values of a body as those of the node: of all ranks one behind the other.
ValueSpec spec_of(const NodeView& view, ValueId value) {
  const auto& attrs = attrs_of(view);
  const Value& own = attrs.body->graph.value(value);
  Shape shape = own.shape;
  shape.set(0, shape[0] * attrs.parts);
  return {own.name, own.dtype, shape, own.segments, false, own.segments_along};
}

void add_specs(const NodeView& view, const std::vector<ValueId>& values, std::vector<ValueSpec>& specs) {
  for (const ValueId value : values) specs.push_back(spec_of(view, value));
}

std::vector<ValueSpec> infer_forward(const NodeView& view) {
  using Op = ExpertParallel;
  require_tokens(view, Op::kX, Op::kIds, Op::kWeights);
  const auto& attrs = attrs_of(view);
  const Value& x = view.in(Op::kX);
  const bool trains = attrs.body->trains();
  std::vector<ValueSpec> specs{{"y", x.dtype, x.shape}, {"end", DType::kI32, {2 * attrs.parts}, {}, !trains}};
  add_specs(view, attrs.body->kept, specs);
  return specs;
}

std::vector<ValueSpec> infer_grad_input(const NodeView& view) {
  using Op = ExpertParallelGrad;
  require_tokens(view, Op::kX, Op::kIds, Op::kWeights);
  const Value& x = view.in(Op::kX);
  require(view, view.in(Op::kDy).shape == x.shape, "the gradient must be as the result");
  std::vector<ValueSpec> specs{{"dx", x.dtype, x.shape},
                               {"dweights", DType::kF32, view.in(Op::kWeights).shape}};
  add_specs(view, attrs_of(view).body->handed, specs);
  return specs;
}

std::vector<ValueSpec> infer_grad_weight(const NodeView& view) {
  using Op = ExpertParallelGrad;
  require_tokens(view, Op::kX, Op::kIds, Op::kWeights);
  std::vector<ValueSpec> specs;
  for (size_t i = 0; i < attrs_of(view).body->inputs.parameters.size(); ++i)
    specs.push_back({"dw", DType::kF32, view.in(Op::kParameters + static_cast<int>(i)).shape});
  return specs;
}

// Of the body's nodes in a phase, for as many slots as tokens have: rooms are wider.
Cost cost_of(const NodeView& view, Phase phase) {
  const auto& attrs = attrs_of(view);
  const ExpertBody& body = *attrs.body;
  Cost sum{0, 0};
  for (const Node& node : body.graph.nodes()) {
    if (node.phase != phase) continue;
    const Cost one = node.op->cost({body.graph, node});
    sum.flops += one.flops;
    sum.bytes += one.bytes;
  }
  const double share = static_cast<double>(attrs.parts * attrs.tokens * attrs.k) /
                       static_cast<double>(std::max<int64_t>(1, attrs.slots()));
  return {sum.flops * share, sum.bytes * share};
}
Cost cost_forward(const NodeView& view) {
  return cost_of(view, Phase::kForward);
}
Cost cost_grad_input(const NodeView& view) {
  return cost_of(view, Phase::kInputGrad);
}
Cost cost_grad_weight(const NodeView& view) {
  return cost_of(view, Phase::kWeightGrad);
}

// How parameters and tokens lie along an axis.
struct Along {
  Placement tokens = kS0, ids = kS0;
  std::vector<Placement> parameters;
  bool is_term = false;  // the result is a term of a sum there
};
Along along(const NodeView& view, Axis axis) {
  const auto& attrs = attrs_of(view);
  const size_t count = attrs.body->inputs.parameters.size();
  const auto has = [axis](const std::vector<Axis>& axes) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  };
  if (axis == attrs.tensor_axis) return {kR, kR, attrs.on_tensor_axis, true};
  if (has(attrs.summed_axes)) return {kR, kP, std::vector(count, kS0), true};
  return {kS0, kS0, std::vector(count, has(attrs.axes) ? kS0 : kR), false};
}

std::vector<PlacementOption> placements_forward(const NodeView& view, Axis axis) {
  const Along lies = along(view, axis);
  PlacementOption option{{lies.tokens, lies.ids, lies.tokens}, {}};
  option.inputs.insert(option.inputs.end(), lies.parameters.begin(), lies.parameters.end());
  option.outputs.assign(view.node.outputs.empty() ? ExpertParallel::kKept + attrs_of(view).body->kept.size()
                                                  : view.node.outputs.size(),
                        kS0);
  if (lies.is_term) option.outputs[ExpertParallel::kY] = kP;
  return {option};
}

PlacementOption gradient_option(const NodeView& view, const Along& lies) {
  PlacementOption option{{lies.tokens, lies.tokens, lies.ids, lies.tokens, kS0}, {}};
  option.inputs.insert(option.inputs.end(), lies.parameters.begin(), lies.parameters.end());
  option.inputs.resize(view.node.inputs.size(), kS0);
  return option;
}

std::vector<PlacementOption> placements_grad_input(const NodeView& view, Axis axis) {
  const Along lies = along(view, axis);
  PlacementOption option = gradient_option(view, lies);
  option.outputs.assign(ExpertParallelGrad::kHanded + attrs_of(view).body->handed.size(), kS0);
  if (lies.is_term)
    option.outputs[ExpertParallelGrad::kDx] = option.outputs[ExpertParallelGrad::kDweights] = kP;
  return {option};
}

std::vector<PlacementOption> placements_grad_weight(const NodeView& view, Axis axis) {
  const Along lies = along(view, axis);
  PlacementOption option = gradient_option(view, lies);
  // What all ranks have whole each gives a term of.
  for (const Placement parameter : lies.parameters)
    option.outputs.push_back(parameter == kR ? kP : parameter);
  return {option};
}

graph::Attributes localize(const NodeView& view) {
  ExpertParallelAttrs attrs = attrs_of(view);
  attrs.parts = 1;
  return attrs;
}

// Rows that a rank sends to others on one way, where experts are equally busy.
double rows_sent(const ExpertParallelAttrs& attrs) {
  const auto to_each = [&](int64_t places) {
    return static_cast<double>(attrs.tokens) * share_of_tokens(attrs.k, attrs.experts, places);
  };
  const auto ranks = static_cast<double>(attrs.ranks);
  if (!attrs.by_nodes()) return to_each(attrs.ranks) * (ranks - 1);
  // To each other node, and what has come on to the other ranks of this one.
  const auto of_node = static_cast<double>(attrs.node_ranks);
  return to_each(attrs.ranks / attrs.node_ranks) * (ranks / of_node - 1) +
         to_each(attrs.ranks) * ranks * (of_node - 1) / of_node;
}

// `ways`: how often a row goes, to its experts or back; `words`: what else goes with it.
graph::OpRanks ranks_of(const NodeView& view, int ways, int64_t words) {
  const auto& attrs = attrs_of(view);
  const Value& rows = attrs.body->graph.value(attrs.body->inputs.rows);
  const int64_t row = rows.shape[1] * size_of(rows.dtype), record = 4 * (3 + 2 * attrs.k);
  return {attrs.axes, attrs.by_nodes() ? attrs.node_ranks : 0, attrs.rows() * std::max(record, row),
          rows_sent(attrs) * static_cast<double>(ways * row + 4 * words)};
}
graph::OpRanks ranks_of_forward(const NodeView& view) {
  return ranks_of(view, 2, 3 + 2 * attrs_of(view).hits());
}
graph::OpRanks ranks_of_grad_input(const NodeView& view) {
  return ranks_of(view, 2, 3 + 3 * attrs_of(view).hits());
}
// Further rounds alone.
graph::OpRanks ranks_of_grad_weight(const NodeView& view) {
  return ranks_of(view, 0, 0);
}

template <typename Items>
void append(std::vector<ValueId>& to, const Items& items) {
  to.insert(to.end(), items.begin(), items.end());
}

void gradient(GradientBuilder& builder, const Node& node) {
  using Op = ExpertParallel;
  Graph& graph = builder.graph();
  const ExpertBody& body = *node.attrs.as<ExpertParallelAttrs>().body;
  STRATA_CHECK(body.trains(), "the experts' body was not differentiated");
  const auto parameters = std::span(node.inputs).subspan(Op::kParameters);
  const auto kept = std::span(node.outputs).subspan(Op::kKept);
  std::vector<ValueId> inputs{builder.gradient_of(node.outputs[Op::kY]), node.inputs[Op::kX],
                              node.inputs[Op::kIds], node.inputs[Op::kWeights], node.outputs[Op::kEnd]};
  append(inputs, parameters);
  std::vector<ValueId> of_weights = inputs;
  append(inputs, kept);
  const auto made = graph.add_node(kExpertParallelGradInput, inputs, node.attrs);
  builder.add_gradient(node.inputs[Op::kX], made[ExpertParallelGrad::kDx]);
  if (builder.wants(node.inputs[Op::kWeights]))
    builder.add_gradient(node.inputs[Op::kWeights], made[ExpertParallelGrad::kDweights]);
  for (size_t i = 0; i < body.kept.size(); ++i) {
    const auto& wanted = body.kept_for_weights;
    if (std::find(wanted.begin(), wanted.end(), body.kept[i]) != wanted.end()) of_weights.push_back(kept[i]);
  }
  append(of_weights, std::span(made).subspan(ExpertParallelGrad::kHanded));
  builder.weight_grad();
  std::vector<ValueId> gradients;
  for (const ValueId parameter : parameters) gradients.push_back(builder.parameter_gradient(parameter));
  graph.add_node_into(kExpertParallelGradWeight, of_weights, gradients, node.attrs);
}

}  // namespace

void OwnExpertsAttrs::describe(graph::AttributeText& to) const {
  to("experts", experts);
  for (const Cut& one : axes) {
    to(one.summed ? "summed_axis" : "axis", name_of(one.axis));
    to("ranks", one.ranks);
  }
}

int32_t OwnExpertsAttrs::own(int32_t id, const graph::Coordinates& rank) const {
  if (id < 0) return -1;
  int64_t blocks = 1;
  for (const Cut& one : axes) blocks *= one.ranks;
  const int64_t each = experts / blocks;
  int64_t block = id / each, among = 0, stride = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    const int64_t place = block % axes[i].ranks;
    block /= axes[i].ranks;
    if (axes[i].summed) {
      if (place != rank[axes[i].axis]) return -1;
      continue;
    }
    among += place * stride;
    stride *= axes[i].ranks;
  }
  return static_cast<int32_t>(among * each + id % each);
}

namespace {

std::vector<ValueSpec> infer_own(const NodeView& view) {
  const Value& ids = view.in(OwnExperts::kIds);
  require(view, ids.dtype == DType::kI32 && ids.shape.rank() == 2, "ids must be i32[N, k]");
  graph::require_rank_block(view, OwnExperts::kRank);
  return {{"own", DType::kI32, ids.shape}};
}

Cost cost_own(const NodeView& view) {
  return streamed(view, 1);
}

std::vector<PlacementOption> placements_own(const NodeView& view, Axis axis) {
  for (const auto& one : view.attrs<OwnExpertsAttrs>().axes)
    if (one.axis == axis && one.summed) return {{{kR, kR}, {kP}}};
  return {{{kS0, kR}, {kS0}}};
}

}  // namespace

const OpDef kOwnExperts{"own_experts", "elementwise", infer_own, cost_own, placements_own};

ValueId own_experts(Graph& graph, ValueId ids, const OwnExpertsAttrs& attrs) {
  return graph.add_node(kOwnExperts, {ids, graph::rank_block(graph)}, attrs)[0];
}

const OpDef kExpertParallel{.name = "expert_parallel",
                            .family = "experts",
                            .infer = infer_forward,
                            .cost = cost_forward,
                            .placements = placements_forward,
                            .gradient = gradient,
                            .localize = localize,
                            .ranks = ranks_of_forward};
const OpDef kExpertParallelGradInput{.name = "expert_parallel_grad_input",
                                     .family = "experts",
                                     .infer = infer_grad_input,
                                     .cost = cost_grad_input,
                                     .placements = placements_grad_input,
                                     .localize = localize,
                                     .ranks = ranks_of_grad_input};
const OpDef kExpertParallelGradWeight{.name = "expert_parallel_grad_weight",
                                      .family = "experts_weight",
                                      .infer = infer_grad_weight,
                                      .cost = cost_grad_weight,
                                      .placements = placements_grad_weight,
                                      .localize = localize,
                                      .ranks = ranks_of_grad_weight};

ExpertParallelResult expert_parallel(Graph& graph, ValueId x, ValueId ids, ValueId weights,
                                     std::vector<ValueId> parameters, ExpertParallelAttrs attrs) {
  STRATA_CHECK(std::min(attrs.k, attrs.ranks) <= kMostRanksOfToken,
               "a token goes to {} ranks, and {} are expected at most", std::min(attrs.k, attrs.ranks),
               kMostRanksOfToken);
  std::vector<ValueId> inputs{x, ids, weights};
  append(inputs, parameters);
  const auto made = graph.add_node(kExpertParallel, std::move(inputs), std::move(attrs));
  return {made[ExpertParallel::kY], made[ExpertParallel::kEnd]};
}

namespace {

std::vector<ValueSpec> infer_rounds(const NodeView& view) {
  const Value& end = view.in(ExpertRounds::kEnd);
  require(view, end.dtype == DType::kI32 && end.shape.rank() == 1 && end.shape[0] % 2 == 0,
          "end must be i32[2] of every rank");
  return {{"rounds", DType::kI64, {1}}};
}

std::vector<PlacementOption> placements_rounds(const NodeView&, Axis) {
  return {{{kS0}, {kP}}};
}

}  // namespace

const OpDef kExpertRounds{"expert_rounds", "elementwise", infer_rounds, cost_own, placements_rounds};

void count_rounds(Graph& graph, ValueId end, ValueId rounds) {
  graph.add_node_into(kExpertRounds, {end}, {rounds});
}

}  // namespace strata::ops
