#include "ops/expert_parallel/expert_parallel.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "graph/reshard.h"
#include "ops/rules.h"

namespace strata::ops {

using graph::Phase;
using graph::Role;

namespace {

// --- The body

ValueId add_body_input(Graph& graph, const char* name, DType dtype, Shape shape, Role role) {
  Value value;
  value.name = name;
  value.dtype = dtype;
  value.shape = shape;
  value.role = role;
  return graph.add_value(std::move(value));
}

// Of what nodes in some phases make, what others read.
class BodyLists {
 public:
  explicit BodyLists(const ExpertBody& body) : body_(body) {
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
  body.result_grad = add_body_input(graph, "dy", result.dtype, result.shape, Role::kActivation);
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
    const BodyLists lists(body);
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
  in.rows = add_body_input(graph, "rows", spec.dtype, {spec.rows, spec.width}, Role::kActivation);
  in.ids = add_body_input(graph, "ids", DType::kI32, {spec.slots, 1}, Role::kActivation);
  in.offsets = add_body_input(graph, "offsets", DType::kI32, {spec.rows + 1}, Role::kActivation);
  in.weights = add_body_input(graph, "weights", DType::kF32, {spec.slots}, Role::kActivation);
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

ExpertRoom room_for(int64_t tokens, int64_t k, int64_t experts, int64_t ranks, double factor,
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
  return room_for(tokens, k, experts, ranks, factor, 0);
}
ExpertRoom expert_room(int64_t tokens, int64_t k, int64_t experts, int64_t ranks) {
  return room_for(tokens, k, experts, ranks, 1.25, 4);
}

namespace {

// --- Rules

template <typename Op>
void require_shared_tokens(const View<Op>& node) {
  const Shape &x = node.in.x->shape, &ids = node.in.ids->shape;
  const Shape chosen{ids[0], node.attrs.k};
  require(node, x.rank() == 2 && x[0] == ids[0], "x must have a row a token");
  require(node, ids == chosen, "ids must be i32[N, k]");
  require(node, node.in.weights->shape == chosen, "weights must be f32[N, k]");
  require(node, node.attrs.ranks >= 1 && node.attrs.experts % node.attrs.ranks == 0,
          "experts must be equally many on all ranks");
}

// Values of a body as those of the node: of all ranks one behind the other.
std::vector<Spec> body_specs(const ExpertParallelAttrs& attrs, const std::vector<ValueId>& values) {
  std::vector<Spec> specs;
  for (const ValueId value : values) {
    const Value& own = attrs.body->graph.value(value);
    specs.push_back(Spec::like(own));
    specs.back().shape.set(0, own.shape[0] * attrs.parts);
    specs.back().name = own.name;
  }
  return specs;
}

// Of the body's nodes in a phase, for as many slots as tokens have: rooms are wider.
Cost body_cost(const ExpertParallelAttrs& attrs, Phase phase) {
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

// How parameters and tokens lie along an axis.
struct LiesAlong {
  Placement tokens = kS0, ids = kS0;
  std::vector<Placement> parameters;
  bool is_term = false;  // the result is a term of a sum there
};
LiesAlong lies_along(const ExpertParallelAttrs& attrs, Axis axis) {
  const size_t count = attrs.body->inputs.parameters.size();
  const auto has = [axis](const std::vector<Axis>& axes) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  };
  if (axis == attrs.tensor_axis) return {kR, kR, attrs.on_tensor_axis, true};
  if (has(attrs.summed_axes)) return {kR, kP, std::vector(count, kS0), true};
  return {kS0, kS0, std::vector(count, has(attrs.axes) ? kS0 : kR), false};
}
ExpertParallelGrad::In<graph::Placed> split_of_gradient(const LiesAlong& lies) {
  return {.dy = lies.tokens,
          .x = lies.tokens,
          .ids = lies.ids,
          .weights = lies.tokens,
          .end = kS0,
          .of_body = {lies.parameters, kS0}};
}

template <typename Op>
ExpertParallelAttrs of_a_rank(const View<Op>& node) {
  ExpertParallelAttrs attrs = node.attrs;
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
graph::OpRanks ranks_of_experts(const ExpertParallelAttrs& attrs, int ways, int64_t words) {
  const Value& rows = attrs.body->graph.value(attrs.body->inputs.rows);
  const int64_t row = rows.shape[1] * size_of(rows.dtype), record = 4 * (3 + 2 * attrs.k);
  return {attrs.axes, attrs.by_nodes() ? attrs.node_ranks : 0, attrs.rows() * std::max(record, row),
          rows_sent(attrs) * static_cast<double>(ways * row + 4 * words)};
}

template <typename To, typename Items>
void append_ids(std::vector<To>& to, const Items& items) {
  to.insert(to.end(), items.begin(), items.end());
}

void experts_gradient(GradientBuilder& builder, const View<ExpertParallel>& node) {
  Graph& graph = builder.graph();
  const auto [x, ids, weights, parameters] = graph::inputs_of<ExpertParallel>(node.node);
  const auto [y, end, kept] = graph::outputs_of<ExpertParallel>(node.node);
  const ExpertBody& body = *node.attrs.body;
  STRATA_CHECK(body.trains(), "the experts' body was not differentiated");
  graph::InIds<ExpertParallelGradInput> of_rows{.dy = builder.gradient_of(y),
                                                .x = x,
                                                .ids = ids,
                                                .weights = weights,
                                                .end = end,
                                                .of_body = {parameters.begin(), parameters.end()}};
  graph::InIds<ExpertParallelGradWeight> of_weights = of_rows;
  append_ids(of_rows.of_body, kept);
  const auto made = add<ExpertParallelGradInput>(graph, of_rows, node.attrs);
  builder.add_gradient(x, made.dx);
  if (builder.wants(weights)) builder.add_gradient(weights, made.dweights);
  for (size_t i = 0; i < body.kept.size(); ++i) {
    const auto& wanted = body.kept_for_weights;
    if (std::find(wanted.begin(), wanted.end(), body.kept[i]) != wanted.end())
      of_weights.of_body.push_back(kept[i]);
  }
  append_ids(of_weights.of_body, made.handed);
  builder.weight_grad();
  graph::OutIds<ExpertParallelGradWeight> gradients;
  for (const ValueId parameter : parameters) gradients.dw.push_back(builder.parameter_gradient(parameter));
  add_into<ExpertParallelGradWeight>(graph, of_weights, gradients, node.attrs);
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

const OpDef OwnExperts::def = define<OwnExperts>({
    .name = "own_experts",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<OwnExperts> {
      require(node, node.in.ids->shape.rank() == 2, "ids must be i32[N, k]");
      require(node, node.in.rank->shape == Shape{static_cast<int64_t>(graph::kAxes)},
              "the rank block must be i32[axes]");
      return {.own = {DType::kI32, node.in.ids->shape}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto& node, Axis axis) -> Splits<OwnExperts> {
      for (const auto& one : node.attrs.axes)
        if (one.axis == axis && one.summed) return {{{.ids = kR, .rank = kR}, {.own = kP}}};
      return {{{.ids = kS0, .rank = kR}, {.own = kS0}}};
    },
});

const OpDef ExpertRounds::def = define<ExpertRounds>({
    .name = "expert_rounds",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ExpertRounds> {
      const Shape& end = node.in.end->shape;
      require(node, end.rank() == 1 && end[0] % 2 == 0, "end must be i32[2] of every rank");
      return {.rounds = {DType::kI64, {1}}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<ExpertRounds> {
      return {{{.end = kS0}, {.rounds = kP}}};
    },
});

const OpDef ExpertParallel::def = define<ExpertParallel>({
    .name = "expert_parallel",
    .family = "experts",
    .infer = [](const auto& node) -> Outputs<ExpertParallel> {
      require_shared_tokens(node);
      const ExpertParallelAttrs& attrs = node.attrs;
      return {.y = {node.in.x->dtype, node.in.x->shape},
              .end = {DType::kI32, {2 * attrs.parts}, {}, !attrs.body->trains()},
              .kept = body_specs(attrs, attrs.body->kept)};
    },
    .cost = [](const auto& node) { return body_cost(node.attrs, Phase::kForward); },
    .placements = [](const auto& node, Axis axis) -> Splits<ExpertParallel> {
      const LiesAlong lies = lies_along(node.attrs, axis);
      return {{{.x = lies.tokens, .ids = lies.ids, .weights = lies.tokens, .parameters = {lies.parameters}},
               {.y = lies.is_term ? kP : kS0, .end = kS0, .kept = kS0}}};
    },
    .gradient = experts_gradient,
    .localize = of_a_rank<ExpertParallel>,
    .ranks = [](const auto& node) { return ranks_of_experts(node.attrs, 2, 3 + 2 * node.attrs.hits()); },
});

const OpDef ExpertParallelGradInput::def = define<ExpertParallelGradInput>({
    .name = "expert_parallel_grad_input",
    .family = "experts",
    .infer = [](const auto& node) -> Outputs<ExpertParallelGradInput> {
      require_shared_tokens(node);
      const Value& x = *node.in.x;
      require(node, node.in.dy->shape == x.shape, "the gradient must be as the result");
      return {.dx = {x.dtype, x.shape},
              .dweights = {DType::kF32, node.in.weights->shape},
              .handed = body_specs(node.attrs, node.attrs.body->handed)};
    },
    .cost = [](const auto& node) { return body_cost(node.attrs, Phase::kInputGrad); },
    .placements = [](const auto& node, Axis axis) -> Splits<ExpertParallelGradInput> {
      const LiesAlong lies = lies_along(node.attrs, axis);
      const Placement given = lies.is_term ? kP : kS0;
      return {{split_of_gradient(lies), {.dx = given, .dweights = given, .handed = kS0}}};
    },
    .localize = of_a_rank<ExpertParallelGradInput>,
    .ranks = [](const auto& node) { return ranks_of_experts(node.attrs, 2, 3 + 3 * node.attrs.hits()); },
});

const OpDef ExpertParallelGradWeight::def = define<ExpertParallelGradWeight>({
    .name = "expert_parallel_grad_weight",
    .family = "experts_weight",
    .infer = [](const auto& node) -> Outputs<ExpertParallelGradWeight> {
      require_shared_tokens(node);
      Outputs<ExpertParallelGradWeight> out;
      for (size_t i = 0; i < node.attrs.body->inputs.parameters.size(); ++i)
        out.dw.push_back({DType::kF32, node.in.of_body[i]->shape});
      return out;
    },
    .cost = [](const auto& node) { return body_cost(node.attrs, Phase::kWeightGrad); },
    .placements = [](const auto& node, Axis axis) -> Splits<ExpertParallelGradWeight> {
      const LiesAlong lies = lies_along(node.attrs, axis);
      // What all ranks have whole each gives a term of.
      std::vector<Placement> gradients = lies.parameters;
      std::replace(gradients.begin(), gradients.end(), kR, kP);
      return {{split_of_gradient(lies), {.dw = {gradients}}}};
    },
    .localize = of_a_rank<ExpertParallelGradWeight>,
    // Further rounds alone.
    .ranks = [](const auto& node) { return ranks_of_experts(node.attrs, 0, 0); },
});

ExpertParallelResult expert_parallel(Graph& graph, ValueId x, ValueId ids, ValueId weights,
                                     const std::vector<ValueId>& parameters, ExpertParallelAttrs attrs) {
  STRATA_CHECK(std::min(attrs.k, attrs.ranks) <= kMostRanksOfToken,
               "a token goes to {} ranks, and {} are expected at most", std::min(attrs.k, attrs.ranks),
               kMostRanksOfToken);
  const auto made = add<ExpertParallel>(
      graph, {.x = x, .ids = ids, .weights = weights, .parameters = {parameters.begin(), parameters.end()}},
      std::move(attrs));
  return {made.y, made.end};
}

}  // namespace strata::ops
