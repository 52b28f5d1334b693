#include "layers/layers.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "layers/context_parallel.h"
#include "ops/expert_parallel.h"
#include "ops/experts.h"

namespace strata::layers {

using graph::Init;
using graph::ParameterRole;
using graph::Role;
using graph::Value;

namespace {

// Logits in fp32 whatever the activations are: which experts are chosen hangs on small differences.
ValueId logits_of(Context& context, const std::string& name, int64_t outputs, int64_t width, ValueId x) {
  const ValueId weight = context.graph.add_parameter(name + ".weight", ParameterRole::kRouter,
                                                     {outputs, width}, {Init::Kind::kNormal});
  return ops::linear(context.graph, ops::cast(context.graph, x, DType::kF32), weight);
}

ValueId metric(Context& context, std::string name, DType dtype, int64_t elements) {
  Value value;
  value.name = std::move(name);
  value.dtype = dtype;
  value.shape = {elements};
  value.role = Role::kMetric;
  return context.graph.add_value(std::move(value));
}

// The sum of this name, which the layers of a graph share.
ValueId shared_sum(Context& context, const char* name) {
  const ValueId there = context.graph.find_value(name);
  if (there != kNone) return there;
  context.losses.push_back(metric(context, name, DType::kF64, 1));
  return context.losses.back();
}

void add_loss(Context& context, const ops::RouterSumsOf& sums, double coefficient, int64_t k) {
  const ValueId targets = whole_sequences(context, context.targets, context.sequence_length);
  ops::balance_loss(context.graph, sums, targets, shared_sum(context, "balance_loss_sum"),
                    {.coefficient = coefficient, .k = k});
}

// Sums over whole sequences, also where ranks share their tokens: those of "tensor" have any part of the
// rows, which all of them put together, and those of "context" a part of each sequence, whose sums are added
// up.
ops::RouterSumsOf sums_of(Context& context, const MoeSpec& spec, ValueId logits, ValueId ids) {
  Graph& graph = context.graph;
  const auto whole = graph::Placement::replicated();
  if (context.sequence_parallel) {
    logits = graph::reshard(graph, logits, "tensor", whole);
    ids = graph::reshard(graph, ids, "tensor", whole);
  }
  // Each rank's part of the micro-batch is a group, where sequences are none.
  const int64_t sequences = spec.balance_by_sequence ? 1 : context.sequences / graph.mesh().batch_ranks();
  const auto sums = ops::router_sums(
      graph, logits, ids, {.score = spec.route.score, .rows = sequences * context.sequence_length});
  if (!shares_sequences(context)) return sums;
  return {graph::reshard(graph, sums.probabilities, "context", whole),
          graph::reshard(graph, sums.counts, "context", whole)};
}

void add_balance(Context& context, const MoeSpec& spec, ValueId logits, const ops::Routed& routed) {
  Graph& graph = context.graph;
  const ValueId targets = rows_of_stream(context, context.targets);
  context.expert_tokens.push_back(metric(context, spec.name + ".router_squares", DType::kF64, 1));
  ops::router_z_loss(graph, logits, targets, context.expert_tokens.back(), 1);
  context.expert_tokens.push_back(metric(context, spec.name + ".expert_tokens", DType::kI64, spec.experts));
  ops::count_experts(graph, routed.ids, targets, context.expert_tokens.back());
  if (spec.balance_coefficient != 0) {
    const ops::RouterSumsOf sums = sums_of(context, spec, logits, routed.ids);
    if (spec.pool_layers) {
      if (context.stages != nullptr) {
        throw ConfigError(
            "[moe.pool_layers] the stages of a pipeline do not have all layers; leave it out, or take "
            "pipeline = 1");
      }
      const bool is_first = context.pooled.counts == kNone;
      context.pooled = is_first ? sums
                                : ops::RouterSumsOf{
                                      graph::add_sum(graph, context.pooled.probabilities, sums.probabilities),
                                      graph::add_sum(graph, context.pooled.counts, sums.counts)};
    } else {
      add_loss(context, sums, spec.balance_coefficient, spec.route.k);
    }
  }
  if (spec.z_coefficient != 0) {
    ops::router_z_loss(graph, logits, targets, shared_sum(context, "router_z_loss_sum"), spec.z_coefficient);
  }
}

ValueId shared_expert(Context& context, const MoeSpec& spec, ValueId x) {
  Graph& graph = context.graph;
  const ValueId y = ffn(context,
                        {.name = spec.name + ".shared",
                         .hidden_size = spec.hidden_size,
                         .intermediate_size = spec.shared_size,
                         .activation = spec.activation},
                        x);
  if (!spec.shared_gate) return y;
  // One score a token and nothing to choose from: the sigmoid of the gate.
  const ValueId gate = logits_of(context, spec.name + ".shared.gate", 1, spec.hidden_size, x);
  return ops::scale_rows(graph, y,
                         ops::route(graph, gate, kNone, {.score = ops::RouteAttrs::Score::kSigmoid}).weights);
}

// How many experts there are, and how wide they are.
struct ExpertShape {
  int64_t experts = 0, ffn_width = 0;
};
ExpertShape expert_shape(const MoeSpec& spec) {
  return {spec.experts, spec.intermediate_size};
}

struct ExpertWeights {
  ValueId up, down;
};

// All experts one behind the other, a segment for each matrix.
ExpertWeights expert_weights(Graph& graph, const MoeSpec& spec, const ExpertShape& shape,
                             const std::string& prefix) {
  const auto add = [&](const char* name, ParameterRole role, const Shape& of_all, int64_t matrices,
                       int64_t rows) {
    return graph.add_parameter(prefix + name, role, of_all, {Init::Kind::kNormal}, {},
                               std::vector<int64_t>(static_cast<size_t>(matrices), rows));
  };
  const int64_t width = spec.hidden_size;
  return {add("up.weight", ParameterRole::kExpertIn, {shape.experts * 2 * shape.ffn_width, width},
              2 * shape.experts, shape.ffn_width),
          add("down.weight", ParameterRole::kExpertOut, {shape.experts * width, shape.ffn_width},
              shape.experts, width)};
}

// What the experts make of tokens, or of rows that other ranks have sent.
ValueId experts(Graph& graph, const MoeSpec& spec, int64_t count, const ExpertWeights& weights,
                const ops::ExpertInputs& in) {
  const ValueId gate_up = ops::experts_in(graph, in.rows, in.ids, weights.up, count, in.offsets);
  // A token's weight of an expert passes through its last product, which is linear: there are fewer numbers
  // to multiply here, and what the expert gives need not be kept.
  const ValueId hidden = ops::scale_rows(graph, ops::gated(graph, gate_up, spec.activation), in.weights);
  return ops::experts_out(graph, hidden, in.ids, weights.down, count, in.offsets);
}

void place(Graph& graph, ValueId weight, const std::vector<int>& dealt_axes, int tensor_axis,
           graph::Placement on_tensor_axis) {
  Value& value = graph.value(weight);
  value.dealt_axes = dealt_axes;
  for (const int axis : dealt_axes)
    value.placements[static_cast<size_t>(axis)] = graph::Placement::sharded(0);
  if (tensor_axis >= 0) value.placements[static_cast<size_t>(tensor_axis)] = on_tensor_axis;
}

// The experts of ranks that share them. Tokens that are the same on ranks of an axis go nowhere along it:
// each rank adds what its own experts make of them.
ValueId shared_experts(Context& context, const MoeSpec& spec, const ExpertWeights& weights, ValueId x,
                       const ops::Routed& routed) {
  Graph& graph = context.graph;
  const graph::Mesh& mesh = graph.mesh();
  const ExpertLayout& layout = context.expert_layout;
  const auto whole = graph::Placement::replicated(), rows = graph::Placement::sharded(0);
  const std::vector<int> axes = axes_of(layout, mesh);
  const int tensor_axis = layout.tensor > 1 ? mesh.axis("tensor") : -1;
  const std::vector<graph::Placement> on_tensor_axis{rows, graph::Placement::sharded(1)};
  place(graph, weights.up, axes, tensor_axis, on_tensor_axis[0]);
  place(graph, weights.down, axes, tensor_axis, on_tensor_axis[1]);
  ops::Routed to = routed;
  if (tensor_axis >= 0) {
    x = gathered(context, x);
    to = {context.sequence_parallel ? graph::reshard(graph, to.ids, "tensor", whole) : to.ids,
          gathered(context, to.weights)};
  }
  ops::ExpertParallelAttrs attrs;
  attrs.tensor_axis = tensor_axis;
  attrs.on_tensor_axis = on_tensor_axis;
  ops::OwnExpertsAttrs own{.axes = {}, .experts = spec.experts};
  attrs.k = spec.route.k;
  attrs.experts = spec.experts;
  attrs.tokens = graph.value(x).shape[0];
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    const auto mesh_axis = static_cast<int>(axis);
    const bool is_whole = graph.placement(x, axis) == whole;
    if (mesh.axes[axis].name != "pipeline") attrs.parts *= mesh.axes[axis].size;
    if (!is_whole) attrs.tokens /= mesh.axes[axis].size;
    if (std::find(axes.begin(), axes.end(), mesh_axis) == axes.end()) continue;
    own.axes.push_back({mesh_axis, mesh.axes[axis].size, is_whole});
    if (is_whole) {
      attrs.experts /= mesh.axes[axis].size;
    } else {
      attrs.ranks *= mesh.axes[axis].size;
    }
    (is_whole ? attrs.summed_axes : attrs.axes).push_back(mesh_axis);
  }
  if (!attrs.summed_axes.empty()) {
    for (const int axis : attrs.summed_axes) {
      const std::string& name = mesh.axes[static_cast<size_t>(axis)].name;
      x = graph::enter_shards(graph, x, name);
      to.weights = graph::enter_shards(graph, to.weights, name);
    }
    to.ids = ops::own_experts(graph, to.ids, own);
  }
  if (layout.node_ranks > 1 && attrs.ranks % layout.node_ranks == 0) attrs.node_ranks = layout.node_ranks;
  attrs.room = attrs.ranks == 1 ? ops::ExpertRoom{attrs.tokens, attrs.tokens * attrs.hits()}
               : layout.room
                   ? ops::expert_room(attrs.tokens, attrs.k, attrs.experts, attrs.ranks, *layout.room)
                   : ops::expert_room(attrs.tokens, attrs.k, attrs.experts, attrs.ranks);
  const ExpertShape shape{attrs.own_experts(), spec.intermediate_size / layout.tensor};
  ops::ExpertBodySpec body{.rows = attrs.rows(),
                           .slots = attrs.slots(),
                           .width = spec.hidden_size,
                           .dtype = graph.value(x).dtype,
                           .trains = context.trains_experts};
  body.parameters = [&](Graph& of_rank) {
    const ExpertWeights own_weights = expert_weights(of_rank, spec, shape, "");
    return std::vector{own_weights.up, own_weights.down};
  };
  body.build = [&](Graph& of_rank, const ops::ExpertInputs& in) {
    return experts(of_rank, spec, shape.experts, {in.parameters[0], in.parameters[1]}, in);
  };
  attrs.body = ops::make_expert_body(body);
  const auto made = ops::expert_parallel(graph, x, to.ids, to.weights, {weights.up, weights.down}, attrs);
  if (context.trains_experts) {
    context.expert_tokens.push_back(metric(context, spec.name + ".expert_rounds", DType::kI64, 1));
    ops::count_rounds(graph, made.end, context.expert_tokens.back());
  }
  ValueId y = made.y;
  for (const int axis : attrs.summed_axes)
    y = graph::reshard(graph, y, mesh.axes[static_cast<size_t>(axis)].name, whole);
  return tensor_axis < 0 ? y : graph::reshard(graph, y, "tensor", context.sequence_parallel ? rows : whole);
}

}  // namespace

std::vector<int> axes_of(const ExpertLayout& layout, const graph::Mesh& mesh) {
  std::vector<int> axes;
  std::string possible;
  int64_t ranks = 1, all = 1;
  for (const char* name : {"tensor", "context", "shard"}) {
    if (mesh.size(name) == 1 || (layout.tensor > 1 && std::string_view(name) == "tensor")) continue;
    all *= mesh.size(name);
    possible += fmt::format("{}{}", possible.empty() ? "" : ", ", all);
    if (ranks == layout.ranks) continue;
    axes.insert(axes.begin(), mesh.axis(name));
    ranks *= mesh.size(name);
  }
  if (layout.tensor != 1 && layout.tensor != mesh.size("tensor")) {
    throw ConfigError("[parallel.expert_tensor] found {} with tensor = {}, expected 1 or that", layout.tensor,
                      mesh.size("tensor"));
  }
  if (ranks == layout.ranks) return axes;
  throw ConfigError(
      "[parallel.expert] found {} with shard = {}, context = {}, tensor = {}, expected the ranks of the "
      "innermost "
      "of these together ({}); what is left of the ranks are replicas: take shard smaller and replicate "
      "larger",
      layout.ranks, mesh.size("shard"), mesh.size("context"), mesh.size("tensor"),
      possible.empty() ? "there is one" : possible);
}

void end_of_experts(Context& context, const MoeSpec& spec) {
  if (context.pooled.counts == kNone) return;
  const auto k = static_cast<double>(spec.route.k);
  add_loss(context, context.pooled, k * spec.balance_coefficient, spec.route.k);
}

ValueId moe(Context& context, const MoeSpec& spec, ValueId x) {
  Graph& graph = context.graph;
  const ValueId logits = logits_of(context, spec.name + ".router", spec.experts, spec.hidden_size, x);
  ValueId bias = kNone;
  if (spec.router_bias) {
    bias = graph.add_parameter(spec.name + ".router.bias", ParameterRole::kRouterBias, {spec.experts},
                               {Init::Kind::kZeros});
  }
  const ops::Routed routed = ops::route(graph, logits, bias, spec.route);
  if (context.trains_experts) {
    add_balance(context, spec, logits, routed);
    if (bias != kNone) {
      graph.parameters().back().loads = context.expert_tokens.back();
      graph.parameters().back().balance_rate = spec.bias_rate;
    }
  }
  const ExpertWeights weights = expert_weights(graph, spec, expert_shape(spec), spec.name + ".experts.");
  const ExpertLayout& layout = context.expert_layout;
  const ValueId y = layout.ranks * layout.tensor == 1
                        ? experts(graph, spec, spec.experts, weights,
                                  {.rows = x, .ids = routed.ids, .weights = routed.weights, .parameters = {}})
                        : shared_experts(context, spec, weights, x, routed);
  if (spec.shared_size == 0) return y;
  return graph::add_sum(graph, y, shared_expert(context, spec, x));
}

}  // namespace strata::layers
