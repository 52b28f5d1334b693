// The experts' FFNs of a layer: of one rank, or shared by ranks (ops/expert_dispatch).
#include "layers/expert_ffn.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "graph/reshard.h"
#include "ops/activation/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/expert_bias/expert_bias.h"
#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/experts/experts.h"

namespace strata::layers {

using graph::Init;
using graph::ParameterRole;
using graph::Value;

namespace {

// kNone: experts have no biases.
struct ExpertWeights {
  ValueId up = kNone, down = kNone, up_bias = kNone, down_bias = kNone;
};

// All experts, consecutively, with a segment for each matrix.
ExpertWeights expert_weights(Graph& graph, const MoeLayer& layer) {
  const MoeSpec& spec = layer.spec;
  const std::string prefix = layer.ffn.name + ".experts.";
  const int64_t width = layer.ffn.hidden_size, ffn_width = spec.intermediate_size,
                parts = layer.ffn.gated ? 2 : 1;
  const auto add = [&](const char* name, ParameterRole role, const Shape& of_all, int64_t matrices,
                       int64_t rows) {
    return graph.add_parameter(prefix + name, role, of_all, {Init::Kind::kNormal}, {},
                               std::vector<int64_t>(static_cast<size_t>(matrices), rows));
  };
  const auto bias = [&](const char* name, int64_t parts_of_each, int64_t columns) {
    if (!spec.biases) return kNone;
    const int64_t count = spec.count * parts_of_each;
    return graph.add_parameter(prefix + name, ParameterRole::kExpertBias, {count * columns},
                               {Init::Kind::kZeros}, {},
                               std::vector<int64_t>(static_cast<size_t>(count), columns));
  };
  ExpertWeights weights;
  weights.up = add("up.weight", ParameterRole::kExpertIn, {spec.count * parts * ffn_width, width},
                   parts * spec.count, ffn_width);
  weights.up_bias = bias("up.bias", parts, ffn_width);
  weights.down =
      add("down.weight", ParameterRole::kExpertOut, {spec.count * width, ffn_width}, spec.count, width);
  weights.down_bias = bias("down.bias", 1, width);
  return weights;
}

// Rows that pass through experts, one per token or as offsets specify; see ops/experts/experts.h.
struct Slots {
  ValueId rows = kNone, ids = kNone, weights = kNone, offsets = kNone;
};

// What experts make of them. `terms`: ranks that give a term of the result each.
ValueId experts(Graph& graph, const MoeLayer& layer, const ops::ExpertsAttrs& attrs,
                const ExpertWeights& weights, const Slots& in, int64_t terms = 1) {
  const MoeSpec& spec = layer.spec;
  ValueId gate_up =
      graph::add<ops::ExpertsIn>(
          graph, {.x = in.rows, .ids = in.ids, .weight = weights.up, .offsets = in.offsets}, attrs)
          .y;
  // A token's weight of an expert commutes with the expert's matmuls, which are linear. It is applied between
  // them, at the narrower rows, and the expert's output need not be saved.
  const bool weighs = in.weights != kNone;
  if (spec.weighs_input && weighs) gate_up = ops::scale_rows(graph, gate_up, in.weights);
  if (spec.biases) {
    gate_up = graph::add<ops::ExpertBias>(
                  graph, {.x = gate_up, .ids = in.ids, .bias = weights.up_bias, .offsets = in.offsets}, attrs)
                  .y;
  }
  ValueId hidden = spec.clamp.limit > 0
                       ? graph::add<ops::ClampedGated>(graph, {.gate_up = gate_up}, spec.clamp).y
                   : layer.ffn.gated ? ops::gated(graph, gate_up, layer.ffn.activation)
                                     : ops::activation(graph, gate_up, layer.ffn.activation);
  if (!spec.weighs_input && weighs) hidden = ops::scale_rows(graph, hidden, in.weights);
  const ValueId y =
      graph::add<ops::ExpertsOut>(
          graph, {.x = hidden, .ids = in.ids, .weight = weights.down, .offsets = in.offsets}, attrs)
          .y;
  if (!spec.biases) return y;
  // After the last matmul the token's weights multiply the biases separately; each term has its share.
  const ValueId of_bias =
      terms > 1 ? ops::scale(graph, in.weights, 1.0 / static_cast<double>(terms)) : in.weights;
  ops::ExpertsAttrs of_terms = attrs;
  if (terms > 1) of_terms.terms_axis = Axis::kTensor;
  return graph::add<ops::ExpertBias>(
             graph,
             {.x = y, .ids = in.ids, .weights = of_bias, .bias = weights.down_bias, .offsets = in.offsets},
             of_terms)
      .y;
}

void place(Graph& graph, ValueId weight, const std::vector<Axis>& axes, std::optional<Axis> tensor_axis,
           graph::Placement on_tensor_axis) {
  Value& value = graph.value(weight);
  value.sharding.distributed_axes = axes;
  for (const Axis axis : axes) value.placements.set(axis, graph::Placement::sharded(0));
  if (tensor_axis) value.placements.set(*tensor_axis, on_tensor_axis);
}

void place(Graph& graph, const ExpertWeights& weights, const std::vector<Axis>& axes,
           std::optional<Axis> tensor_axis) {
  const auto rows = graph::Placement::sharded(0);
  place(graph, weights.up, axes, tensor_axis, rows);
  place(graph, weights.down, axes, tensor_axis, graph::Placement::sharded(1));
  if (weights.up_bias == kNone) return;
  place(graph, weights.up_bias, axes, tensor_axis, rows);
  place(graph, weights.down_bias, axes, tensor_axis, graph::Placement::replicated());
}

// How tokens go to the ranks of their experts, along axes of which some have the same tokens on all ranks.
ops::DispatchAttrs dispatch_of(const Context& context, const MoeLayer& layer, ValueId x, int64_t k,
                               const std::vector<Axis>& axes) {
  const graph::Mesh& mesh = context.graph.mesh();
  const ExpertLayout& layout = context.settings.expert_layout;
  ops::DispatchAttrs attrs{.tokens = context.graph.value(x).shape[0], .k = k, .experts = layer.spec.count};
  for (const Axis axis : graph::kAllAxes) {
    const bool has_same_tokens = context.graph.placement(x, axis) == graph::Placement::replicated();
    const bool has_experts = std::find(axes.begin(), axes.end(), axis) != axes.end();
    const int64_t ranks = mesh.size(axis);
    if (!has_same_tokens) attrs.token_parts *= ranks;
    if (has_experts || !has_same_tokens) attrs.parts *= ranks;
    if (!has_experts) continue;
    (has_same_tokens ? attrs.experts /= ranks : attrs.ranks *= ranks);
    (has_same_tokens ? attrs.summed_axes : attrs.axes).push_back(axis);
  }
  attrs.tokens /= attrs.token_parts;
  if (layout.node_ranks > 1 && attrs.ranks % layout.node_ranks == 0) attrs.node_ranks = layout.node_ranks;
  attrs.capacity = attrs.ranks == 1 ? ops::PassCapacity{attrs.tokens, attrs.tokens * attrs.hits()}
                   : layout.capacity
                       ? ops::pass_capacity(attrs.tokens, k, attrs.experts, attrs.ranks, *layout.capacity)
                       : ops::pass_capacity(attrs.tokens, k, attrs.experts, attrs.ranks);
  return attrs;
}

// The output of experts of which each rank along `axes` has some. If some of these ranks have the same
// tokens, ids of others' experts go nowhere along those axes: each rank adds the output of the experts that
// it holds.
ValueId dispatched_experts(Context& context, const MoeLayer& layer, const ExpertWeights& weights, Slots to,
                           const std::vector<Axis>& axes) {
  Graph& graph = context.graph;
  const ops::DispatchAttrs attrs = dispatch_of(context, layer, to.rows, graph.value(to.ids).shape[1], axes);
  ops::ExpertsAttrs of_rank{.experts = layer.spec.count,
                            .parts = attrs.parts,
                            .busy_slots = attrs.parts * attrs.tokens * attrs.k,
                            .distributed_axes = axes};
  if (!attrs.summed_axes.empty()) {
    ops::OwnExpertsAttrs own{.axes = {}, .experts = layer.spec.count};
    for (const Axis axis : graph::kAllAxes) {
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) continue;
      const auto& summed = attrs.summed_axes;
      const bool is_summed = std::find(summed.begin(), summed.end(), axis) != summed.end();
      own.axes.push_back({axis, graph.mesh().size(axis), is_summed});
      if (!is_summed) continue;
      of_rank.busy_slots /= graph.mesh().size(axis);
      to.rows = graph::enter_shards(graph, to.rows, axis);
      to.weights = graph::enter_shards(graph, to.weights, axis);
    }
    to.ids = graph::add<ops::OwnExperts>(graph, {.ids = to.ids, .rank = graph::rank_block(graph)}, own).own;
  }
  const auto plan = graph::add<ops::PlanDispatch>(graph, {.ids = to.ids, .weights = to.weights}, attrs);
  const ValueId rows = graph::add<ops::DispatchRows>(graph, {.x = to.rows, .way = plan.way}, attrs).rows;
  if (context.settings.trains_experts) {
    graph::add_into<ops::ExpertRounds>(
        graph, {.way = plan.way},
        {.rounds = router_metric(context, layer, graph::MetricKind::kExpertRounds, DType::kI64, 1)});
  }
  const ValueId made =
      experts(graph, layer, of_rank, weights,
              {.rows = rows, .ids = plan.ids, .weights = plan.weights, .offsets = plan.offsets},
              context.settings.expert_layout.tensor);
  ValueId y = graph::add<ops::CombineRows>(graph, {.rows = made, .way = plan.way}, attrs).y;
  for (const Axis axis : attrs.summed_axes)
    y = graph::reshard(graph, y, axis, graph::Placement::replicated());
  return y;
}

// The output of experts that ranks share: each rank has some of them, or a part of each along the tensor
// axis, or both.
ValueId shared_experts(Context& context, const MoeLayer& layer, const ExpertWeights& weights, Slots to) {
  STRATA_CHECK(to.weights != kNone, "token-expert pairs of sharded experts have weights");
  Graph& graph = context.graph;
  const ExpertLayout& layout = context.settings.expert_layout;
  const std::vector<Axis> axes = axes_of(layout, graph.mesh(), context.words);
  const bool cuts_experts = layout.tensor > 1;
  place(graph, weights, axes, cuts_experts ? std::optional(Axis::kTensor) : std::nullopt);
  const auto whole = graph::Placement::replicated(), rows = graph::Placement::sharded(0);
  const bool has_rows = context.settings.sequence_parallel;
  if (cuts_experts) {
    to.rows = gathered(context, to.rows);
    if (has_rows) to.ids = graph::reshard(graph, to.ids, Axis::kTensor, whole);
    to.weights = gathered(context, to.weights);
  }
  const ValueId y = axes.empty()
                        ? experts(graph, layer, {.experts = layer.spec.count}, weights, to, layout.tensor)
                        : dispatched_experts(context, layer, weights, to, axes);
  return cuts_experts ? graph::reshard(graph, y, Axis::kTensor, has_rows ? rows : whole) : y;
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
      "[{}] found {} with shard = {}, context = {}, tensor = {}, expected the ranks of the innermost of these "
      "together ({}); the remaining ranks are replicas: take shard smaller and replicate larger",
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
  const ExpertWeights weights = expert_weights(context.graph, layer);
  const Slots slots{.rows = x, .ids = ids, .weights = weights_of_slots};
  if (context.settings.expert_layout.ranks * context.settings.expert_layout.tensor > 1)
    return shared_experts(context, layer, weights, slots);
  return experts(context.graph, layer, {.experts = spec.count}, weights, slots);
}

}  // namespace strata::layers
