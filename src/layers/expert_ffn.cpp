// The experts' FFNs of a layer: of one rank, or shared by ranks (ops/expert_parallel).
#include "layers/expert_ffn.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "graph/reshard.h"
#include "ops/activation/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/expert_bias/expert_bias.h"
#include "ops/expert_parallel/expert_parallel.h"
#include "ops/experts/experts.h"

namespace strata::layers {

using graph::Init;
using graph::ParameterRole;
using graph::Value;

namespace {

// How many experts there are, and how wide they are.
struct ExpertShape {
  int64_t experts = 0, ffn_width = 0;
};

// kNone: experts have no biases.
struct ExpertWeights {
  ValueId up = kNone, down = kNone, up_bias = kNone, down_bias = kNone;
};

// All experts one behind the other, a segment for each matrix.
ExpertWeights expert_weights(Graph& graph, const MoeLayer& layer, const ExpertShape& shape,
                             const std::string& prefix) {
  const MoeSpec& spec = layer.spec;
  const int64_t width = layer.ffn.hidden_size, parts = layer.ffn.gated ? 2 : 1,
                gate_up = parts * shape.ffn_width;
  const auto add = [&](const char* name, ParameterRole role, const Shape& of_all, int64_t matrices,
                       int64_t rows) {
    return graph.add_parameter(prefix + name, role, of_all, {Init::Kind::kNormal}, {},
                               std::vector<int64_t>(static_cast<size_t>(matrices), rows));
  };
  const auto bias = [&](const char* name, int64_t parts_of_each, int64_t columns) {
    if (!spec.biases) return kNone;
    const int64_t count = shape.experts * parts_of_each;
    return graph.add_parameter(prefix + name, ParameterRole::kExpertBias, {count * columns},
                               {Init::Kind::kZeros}, {},
                               std::vector<int64_t>(static_cast<size_t>(count), columns));
  };
  ExpertWeights weights;
  weights.up = add("up.weight", ParameterRole::kExpertIn, {shape.experts * gate_up, width},
                   parts * shape.experts, shape.ffn_width);
  weights.up_bias = bias("up.bias", parts, shape.ffn_width);
  weights.down = add("down.weight", ParameterRole::kExpertOut, {shape.experts * width, shape.ffn_width},
                     shape.experts, width);
  weights.down_bias = bias("down.bias", 1, width);
  return weights;
}

// What `count` experts make of tokens, or of rows that other ranks have sent. `terms`: ranks that give a term
// of the result each.
ValueId experts(Graph& graph, const MoeLayer& layer, int64_t count, const ExpertWeights& weights,
                const ops::ExpertInputs& in, int64_t terms = 1) {
  const MoeSpec& spec = layer.spec;
  ValueId gate_up =
      graph::add<ops::ExpertsIn>(
          graph, {.x = in.rows, .ids = in.ids, .weight = weights.up, .offsets = in.offsets}, {count})
          .y;
  // A token's weight of an expert passes through its products, which are linear: there are fewer numbers to
  // multiply between them, and what the expert gives need not be kept.
  const bool weighs = in.weights != kNone;
  if (spec.weighs_input && weighs) gate_up = ops::scale_rows(graph, gate_up, in.weights);
  if (spec.biases) {
    gate_up =
        graph::add<ops::ExpertBias>(
            graph, {.x = gate_up, .ids = in.ids, .bias = weights.up_bias, .offsets = in.offsets}, {count})
            .y;
  }
  ValueId hidden = spec.clamp.limit > 0
                       ? graph::add<ops::ClampedGated>(graph, {.gate_up = gate_up}, spec.clamp).y
                   : layer.ffn.gated ? ops::gated(graph, gate_up, layer.ffn.activation)
                                     : ops::activation(graph, gate_up, layer.ffn.activation);
  if (!spec.weighs_input && weighs) hidden = ops::scale_rows(graph, hidden, in.weights);
  const ValueId y =
      graph::add<ops::ExpertsOut>(
          graph, {.x = hidden, .ids = in.ids, .weight = weights.down, .offsets = in.offsets}, {count})
          .y;
  if (!spec.biases) return y;
  // Behind the last product a token's weights multiply biases by themselves, of which a term has its share.
  const ValueId of_bias =
      terms > 1 ? ops::scale(graph, in.weights, 1.0 / static_cast<double>(terms)) : in.weights;
  return graph::add<ops::ExpertBias>(
             graph,
             {.x = y, .ids = in.ids, .weights = of_bias, .bias = weights.down_bias, .offsets = in.offsets},
             {count})
      .y;
}

std::vector<ValueId> list_of(const ExpertWeights& weights) {
  if (weights.up_bias == kNone) return {weights.up, weights.down};
  return {weights.up, weights.down, weights.up_bias, weights.down_bias};
}
ExpertWeights of_list(const std::vector<ValueId>& list) {
  if (list.size() == 2) return {.up = list[0], .down = list[1]};
  return {.up = list[0], .down = list[1], .up_bias = list[2], .down_bias = list[3]};
}

void place(Graph& graph, ValueId weight, const std::vector<Axis>& dealt_axes, std::optional<Axis> tensor_axis,
           graph::Placement on_tensor_axis) {
  Value& value = graph.value(weight);
  value.sharding.dealt_axes = dealt_axes;
  for (const Axis axis : dealt_axes) value.placements.set(axis, graph::Placement::sharded(0));
  if (tensor_axis) value.placements.set(*tensor_axis, on_tensor_axis);
}

// The experts of ranks that share them. Tokens that are the same on ranks of an axis go nowhere along it:
// each rank adds what its own experts make of them.
ValueId shared_experts(Context& context, const MoeLayer& layer, const ExpertWeights& weights, ValueId x,
                       const ops::Routed& routed) {
  const MoeSpec& spec = layer.spec;
  STRATA_CHECK(routed.weights != kNone, "slots of experts that ranks share have weights");
  Graph& graph = context.graph;
  const graph::Mesh& mesh = graph.mesh();
  const ExpertLayout& layout = context.settings.expert_layout;
  const auto whole = graph::Placement::replicated(), rows = graph::Placement::sharded(0);
  const std::vector<Axis> axes = axes_of(layout, mesh, context.words);
  const auto tensor_axis = layout.tensor > 1 ? std::optional(Axis::kTensor) : std::nullopt;
  const std::vector<ValueId> parameters = list_of(weights);
  std::vector<graph::Placement> on_tensor_axis{rows, graph::Placement::sharded(1), rows, whole};
  on_tensor_axis.resize(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i)
    place(graph, parameters[i], axes, tensor_axis, on_tensor_axis[i]);
  ops::Routed to = routed;
  if (tensor_axis) {
    x = gathered(context, x);
    to = {context.settings.sequence_parallel ? graph::reshard(graph, to.ids, *tensor_axis, whole) : to.ids,
          gathered(context, to.weights)};
  }
  ops::ExpertParallelAttrs attrs;
  attrs.tensor_axis = tensor_axis;
  attrs.on_tensor_axis = on_tensor_axis;
  ops::OwnExpertsAttrs own{.axes = {}, .experts = spec.count};
  attrs.k = graph.value(to.ids).shape[1];
  attrs.experts = spec.count;
  attrs.tokens = graph.value(x).shape[0];
  for (const Axis axis : graph::kAllAxes) {
    const bool is_whole = graph.placement(x, axis) == whole;
    if (axis != Axis::kPipeline) attrs.parts *= mesh.size(axis);
    if (!is_whole) attrs.tokens /= mesh.size(axis);
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) continue;
    own.axes.push_back({axis, mesh.size(axis), is_whole});
    if (is_whole) {
      attrs.experts /= mesh.size(axis);
    } else {
      attrs.ranks *= mesh.size(axis);
    }
    (is_whole ? attrs.summed_axes : attrs.axes).push_back(axis);
  }
  if (!attrs.summed_axes.empty()) {
    for (const Axis axis : attrs.summed_axes) {
      x = graph::enter_shards(graph, x, axis);
      to.weights = graph::enter_shards(graph, to.weights, axis);
    }
    to.ids = graph::add<ops::OwnExperts>(graph, {.ids = to.ids, .rank = graph::rank_block(graph)}, own).own;
  }
  if (layout.node_ranks > 1 && attrs.ranks % layout.node_ranks == 0) attrs.node_ranks = layout.node_ranks;
  attrs.room = attrs.ranks == 1 ? ops::ExpertRoom{attrs.tokens, attrs.tokens * attrs.hits()}
               : layout.room
                   ? ops::expert_room(attrs.tokens, attrs.k, attrs.experts, attrs.ranks, *layout.room)
                   : ops::expert_room(attrs.tokens, attrs.k, attrs.experts, attrs.ranks);
  const ExpertShape shape{attrs.own_experts(), spec.intermediate_size / layout.tensor};
  ops::ExpertBodySpec body{.rows = attrs.rows(),
                           .slots = attrs.slots(),
                           .width = layer.ffn.hidden_size,
                           .dtype = graph.value(x).dtype,
                           .trains = context.settings.trains_experts};
  body.parameters = [&](Graph& of_rank) { return list_of(expert_weights(of_rank, layer, shape, "")); };
  body.build = [&](Graph& of_rank, const ops::ExpertInputs& in) {
    return experts(of_rank, layer, shape.experts, of_list(in.parameters), in, layout.tensor);
  };
  attrs.body = ops::make_expert_body(body);
  const auto made = ops::expert_parallel(graph, x, to.ids, to.weights, parameters, attrs);
  if (context.settings.trains_experts) {
    const ValueId rounds = router_metric(context, layer, graph::MetricKind::kExpertRounds, DType::kI64, 1);
    graph::add_into<ops::ExpertRounds>(graph, {.end = made.end}, {.rounds = rounds});
  }
  ValueId y = made.y;
  for (const Axis axis : attrs.summed_axes) y = graph::reshard(graph, y, axis, whole);
  return tensor_axis
             ? graph::reshard(graph, y, *tensor_axis, context.settings.sequence_parallel ? rows : whole)
             : y;
}

}  // namespace

std::vector<Axis> axes_of(const ExpertLayout& layout, const graph::Mesh& mesh, const Words& words) {
  std::vector<Axis> axes;
  std::string possible;
  int64_t ranks = 1, all = 1;
  for (const Axis axis : {Axis::kTensor, Axis::kContext, Axis::kShard}) {
    if (mesh.size(axis) == 1 || (layout.tensor > 1 && axis == Axis::kTensor)) continue;
    all *= mesh.size(axis);
    possible += fmt::format("{}{}", possible.empty() ? "" : ", ", all);
    if (ranks == layout.ranks) continue;
    axes.insert(axes.begin(), axis);
    ranks *= mesh.size(axis);
  }
  if (layout.tensor != 1 && layout.tensor != mesh.size(Axis::kTensor)) {
    throw ConfigError("[{}] found {} with tensor = {}, expected 1 or that", words.expert_tensor,
                      layout.tensor, mesh.size(Axis::kTensor));
  }
  if (ranks == layout.ranks) return axes;
  throw ConfigError(
      "[{}] found {} with shard = {}, context = {}, tensor = {}, expected the ranks of the innermost of "
      "these "
      "together ({}); what is left of the ranks are replicas: take shard smaller and replicate larger",
      words.expert, layout.ranks, mesh.size(Axis::kShard), mesh.size(Axis::kContext),
      mesh.size(Axis::kTensor), possible.empty() ? "there is one" : possible);
}

ValueId router_metric(Context& context, const MoeLayer& layer, graph::MetricKind kind, DType dtype,
                      int64_t elements) {
  return context.graph.add_metric(kind, dtype, elements, static_cast<int32_t>(layer.number),
                                  layer.ffn.name + ".");
}

ValueId experts_of(Context& context, const MoeLayer& layer, ValueId x, ValueId ids,
                   ValueId weights_of_slots) {
  const MoeSpec& spec = layer.spec;
  const ExpertWeights weights = expert_weights(context.graph, layer, {spec.count, spec.intermediate_size},
                                               layer.ffn.name + ".experts.");
  if (context.settings.expert_layout.ranks * context.settings.expert_layout.tensor > 1)
    return shared_experts(context, layer, weights, x, {ids, weights_of_slots});
  return experts(context.graph, layer, spec.count, weights,
                 {.rows = x, .ids = ids, .weights = weights_of_slots, .parameters = {}});
}

}  // namespace strata::layers
