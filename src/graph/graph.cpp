#include "graph/graph.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "graph/typed_op.h"

namespace strata::graph {

std::string_view name_of(Role role) {
  static constexpr std::string_view kNames[] = {"input",  "parameter", "gradient", "terms",
                                                "metric", "state",     "encoded",  "constant",
                                                "cache",  "step",      "rank",     "activation"};
  return kNames[static_cast<size_t>(role)];
}

std::string_view name_of(ParameterRole role) {
  static constexpr std::string_view kNames[] = {"embedding",
                                                "positions",
                                                "token types",
                                                "distance bias",
                                                "head",
                                                "head transform",
                                                "attention input",
                                                "attention input bias",
                                                "cross-attention query",
                                                "cross-attention key and value",
                                                "latent input",
                                                "latent up-projection",
                                                "indexer",
                                                "attention output",
                                                "decay input",
                                                "convolution",
                                                "decay rate",
                                                "step bias",
                                                "skip",
                                                "FFN input",
                                                "FFN output",
                                                "router",
                                                "router bias",
                                                "expert input",
                                                "expert output",
                                                "expert bias",
                                                "norm",
                                                "query norm",
                                                "key norm",
                                                "final norm",
                                                "final norm bias",
                                                "bias"};
  return kNames[static_cast<size_t>(role)];
}

std::string_view name_of(Phase phase) {
  static constexpr std::string_view kNames[] = {"S", "F", "R", "I", "W", "U", "E"};
  return kNames[static_cast<size_t>(phase)];
}

std::string_view name_of(MetricKind kind) {
  static constexpr std::string_view kNames[] = {"loss_sum",          "token_count",
                                                "token_loss",        "token_greedy",
                                                "loss_terms",        "balance_loss_sum",
                                                "router_z_loss_sum", "indexer_loss_sum",
                                                "indexer_share_sum", "router_squares",
                                                "expert_tokens",     "expert_kept",
                                                "expert_rounds",     "hyper",
                                                "updates",           "grad_norm",
                                                "param_norm",        "guard_history",
                                                "loss_scale",        "decision",
                                                "score_clip",        "statistics_mask",
                                                "statistics",        "weights_digest",
                                                "gradients_digest",  "used_weights_digest"};
  return kNames[static_cast<size_t>(kind)];
}

namespace {

// Whether add_value() leaves the placement undecided. The first node that writes the value determines it,
// unless the caller sets it.
bool starts_undecided(Role role) {
  return is_temporary(role) || role == Role::kGradient || role == Role::kMetric;
}

// Returns the first placement option on one axis that matches the node's inputs. The last option replicates
// everything.
std::optional<PlacementOption> option_of(const NodeView& view, Axis axis) {
  auto options = view.node.op->placements(view, axis);
  options.push_back({});
  const auto at = [](const std::vector<Placement>& placements, size_t i) {
    return i < placements.size() ? placements[i] : Placement::replicated();
  };
  for (PlacementOption& option : options) {
    bool fits = true;
    for (size_t i = 0; fits && i < view.node.inputs.size(); ++i) {
      const ValueId id = view.node.inputs[i];
      fits = id == kNone || view.graph.placement(id, axis) == at(option.inputs, i);
    }
    if (fits) return std::move(option);
  }
  return std::nullopt;
}

}  // namespace

ValueId Graph::add_value(Value value) {
  if (!starts_undecided(value.role)) value.placements.decide();
  values_.push_back(std::move(value));
  return static_cast<ValueId>(values_.size() - 1);
}

ValueId Graph::add_parameter(std::string name, ParameterRole role, Shape shape, Init init,
                             Placements placements, std::vector<int64_t> segments) {
  const ValueId id = add_value({.name = std::move(name),
                                .shape = shape,
                                .role = Role::kParameter,
                                .encoding = {},
                                .placements = placements,
                                .segments = std::move(segments),
                                .segments_along = 0});
  parameters_.push_back({.value = id, .init = std::move(init), .role = role, .layer = layer_});
  return id;
}

std::vector<ValueId> Graph::add_node(const OpDef& op, std::vector<ValueId> inputs, Attributes attrs) {
  Node node{&op, std::move(inputs), {}, std::move(attrs), phase_, layer_, chunk_};
  const auto specs = op.infer({*this, node});
  const auto id = static_cast<NodeId>(nodes_.size());
  for (const ValueSpec& spec : specs) {
    if (spec.absent) {
      node.outputs.push_back(kNone);
      continue;
    }
    std::string name = fmt::format("{}{}.{}", op.name, id, spec.suffix);
    if (layer_ != kNone) name = fmt::format("L{}.{}", layer_, name);
    node.outputs.push_back(add_value({.name = std::move(name),
                                      .dtype = spec.dtype,
                                      .shape = spec.shape,
                                      .encoding = {},
                                      .placements = {},
                                      .segments = spec.segments,
                                      .segments_along = spec.segments_along,
                                      .producer = id}));
  }
  place_outputs(node);
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

void Graph::place_outputs(const Node& node) {
  std::vector<bool> undecided;
  for (const ValueId id : node.outputs) {
    undecided.push_back(id != kNone && !value(id).placements.decided());
    if (undecided.back()) value(id).placements.decide();
  }
  for (const Axis axis : kAllAxes) {
    if (mesh_.size(axis) == 1) continue;
    const auto option = option_of({*this, node}, axis);
    STRATA_CHECK(option, "on mesh axis {}, no placement option of {} matches its inputs: {}", name_of(axis),
                 node.op->name, str(*this, node));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      const auto expected = i < option->outputs.size() ? option->outputs[i] : Placement::replicated();
      Value& out = value(node.outputs[i]);
      if (undecided[i]) out.placements.set(axis, expected);
      STRATA_CHECK(out.placements[axis] == expected,
                   "on mesh axis {}, {} places {} as {}, but its placement is {}: {}", name_of(axis),
                   node.op->name, out.name, graph::str(expected), graph::str(out.placements[axis]),
                   str(*this, node));
    }
  }
}

NodeId Graph::add_node_into(const OpDef& op, std::vector<ValueId> inputs, std::vector<ValueId> outputs,
                            Attributes attrs) {
  Node node{&op, std::move(inputs), std::move(outputs), std::move(attrs), phase_, layer_, chunk_};
  const auto specs = op.infer({*this, node});
  STRATA_CHECK(specs.size() == node.outputs.size(), "{} has {} outputs, but the caller passed {}", op.name,
               specs.size(), node.outputs.size());
  const auto id = static_cast<NodeId>(nodes_.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    if (node.outputs[i] == kNone) continue;
    STRATA_CHECK(!specs[i].absent, "{} does not produce the output {} for these inputs and attributes",
                 op.name, specs[i].suffix);
    Value& out = value(node.outputs[i]);
    STRATA_CHECK(out.shape == specs[i].shape && out.dtype == specs[i].dtype,
                 "{} produces {} {}, but {} is {} {}", op.name, name_of(specs[i].dtype), specs[i].shape.str(),
                 out.name, name_of(out.dtype), out.shape.str());
    if (out.producer == kNone && is_temporary(out.role)) out.producer = id;
  }
  place_outputs(node);
  nodes_.push_back(std::move(node));
  return id;
}

int32_t Graph::add_loop(ValueId condition) {
  STRATA_CHECK(value(condition).dtype == DType::kI32, "the loop condition {} is not i32",
               value(condition).name);
  loops_.push_back(condition);
  return static_cast<int32_t>(loops_.size()) - 1;
}

ValueId Graph::add_metric(MetricKind kind, DType dtype, int64_t elements, int32_t index,
                          const std::string& prefix) {
  Value value;
  value.name = prefix + std::string(name_of(kind));
  value.dtype = dtype;
  value.shape = {elements};
  value.role = Role::kMetric;
  const ValueId id = add_value(std::move(value));
  set_metric(kind, id, index);
  return id;
}

void Graph::set_metric(MetricKind kind, ValueId value, int32_t index) {
  for (Metric& metric : metrics_) {
    if (metric.kind != kind || metric.index != index) continue;
    metric.value = value;
    return;
  }
  metrics_.push_back({kind, index, value});
}

ValueId Graph::metric(MetricKind kind, int32_t index) const {
  for (const Metric& metric : metrics_)
    if (metric.kind == kind && metric.index == index) return metric.value;
  return kNone;
}

ValueId Graph::find_value(std::string_view name) const {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].name == name) return static_cast<ValueId>(i);
  }
  return kNone;
}

std::string str(const Graph& graph, const Node& node) {
  auto list = [&](const std::vector<ValueId>& ids) {
    std::string text;
    for (const ValueId id : ids) {
      if (!text.empty()) text += ", ";
      if (id == kNone) {
        text += "-";
        continue;
      }
      const Value& value = graph.value(id);
      text += fmt::format("{}:{}{}", value.name, strata::name_of(value.dtype), value.shape.str());
      for (const Axis axis : kAllAxes) {
        if (value.placements.decided() && graph.mesh().size(axis) > 1)
          text += "@" + str(value.placements[axis]);
      }
    }
    return text;
  };
  return fmt::format("{} {} = {}({}) {}", name_of(node.phase), list(node.outputs), node.op->name,
                     list(node.inputs), node.attrs.str());
}

std::string str(const Graph& graph) {
  std::string text;
  for (const Node& node : graph.nodes()) text += str(graph, node) + "\n";
  return text;
}

namespace {

// Modified only during static initialization, before main().
std::vector<const OpDef*>& registered_ops() {
  static std::vector<const OpDef*> ops;
  return ops;
}

}  // namespace

OpRegistration::OpRegistration(const OpDef& op) {
  registered_ops().push_back(&op);
}

std::span<const OpDef* const> all_ops() {
  return registered_ops();
}

void shape_error(const NodeView& view, const std::string& what) {
  std::string inputs;
  for (int i = 0; i < static_cast<int>(view.node.inputs.size()); ++i) {
    if (!inputs.empty()) inputs += ", ";
    inputs += view.has(i) ? fmt::format("{} {}{}", view.in(i).name, strata::name_of(view.in(i).dtype),
                                        view.in(i).shape.str())
                          : "-";
  }
  throw ConfigError("[{}] {}; inputs: {}", view.node.op->name, what, inputs);
}

void check_operand(const NodeView& view, std::string_view name, ValueId id, bool optional,
                   std::span<const DType> dtypes) {
  if (id == kNone) {
    if (!optional) shape_error(view, fmt::format("{} is missing", name));
    return;
  }
  const DType found = view.graph.value(id).dtype;
  if (dtypes.empty() || std::find(dtypes.begin(), dtypes.end(), found) != dtypes.end()) return;
  shape_error(view, fmt::format("{} is {}: expected {}", name, strata::name_of(found),
                                dtypes.size() > 1 ? "f32, bf16 or f16" : strata::name_of(dtypes.front())));
}

void check_same_dtype(const NodeView& view, std::string_view name, ValueId id, ValueId other) {
  const Value &found = view.graph.value(id), &expected = view.graph.value(other);
  if (found.dtype == expected.dtype) return;
  shape_error(view, fmt::format("{} is {}: expected {}, like {}", name, strata::name_of(found.dtype),
                                strata::name_of(expected.dtype), expected.name));
}

double streamed_bytes(const NodeView& view) {
  double bytes = 0;
  for (int i = 0; i < static_cast<int>(view.node.inputs.size()); ++i) {
    if (view.has(i)) bytes += static_cast<double>(view.in(i).bytes());
  }
  for (int i = 0; i < static_cast<int>(view.node.outputs.size()); ++i) {
    if (view.has_out(i)) bytes += static_cast<double>(view.out(i).bytes());
  }
  return bytes;
}

double accumulator_bytes(const Cost& cost, const Value& held) {
  return cost.cleared_bytes > 0 ? -cost.cleared_bytes : static_cast<double>(held.bytes());
}

std::string compute_dtype(const NodeView& view) {
  for (const auto* ids : {&view.node.inputs, &view.node.outputs}) {
    for (const ValueId id : *ids) {
      if (id != kNone && view.graph.value(id).dtype == DType::kBF16) return "bf16";
    }
  }
  return "f32";
}

}  // namespace strata::graph
