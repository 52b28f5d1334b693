#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {

void require_segments(const NodeView& view, const Value& qkv, int64_t head_dim, int64_t value_dim) {
  require(view, qkv.segments.size() == 3, "qkv must have the parts [q | k | v]");
  require(view, qkv.segments[0] % head_dim == 0 && qkv.segments[1] % head_dim == 0,
          "q, k and v must be whole heads");
  require(view, qkv.segments[2] == qkv.segments[1] / head_dim * (value_dim > 0 ? value_dim : head_dim),
          "there must be as many heads of v as of k");
  require(view, qkv.segments[0] % qkv.segments[1] == 0,
          "the query heads must be a multiple of the key-value heads");
}

namespace {

// --- rope

std::vector<ValueSpec> infer_rope(const NodeView& view) {
  const auto& attrs = view.attrs<RopeAttrs>();
  const Value& x = view.in(Rope::kQkv);
  if (x.segments.empty()) {
    require(view, x.shape.rank() == 2 && x.shape[1] % attrs.head_dim == 0, "the rows must be whole heads");
  } else {
    require_segments(view, x, attrs.head_dim);
    require(view, attrs.head_dim % 2 == 0, "rotary embedding needs an even head size");
  }
  require(view,
          view.in(Rope::kTable).shape.rank() == 3 &&
              attrs.first + view.in(Rope::kTable).shape[1] * 2 <= attrs.head_dim &&
              view.in(Rope::kTable).shape[2] == 2,
          "the table must be [positions, rotary_dim / 2, 2], for dimensions that a head has");
  require(view, view.in(Rope::kPositions).shape == Shape{view.in(Rope::kQkv).shape[0]},
          "there must be one position a token");
  return {{"qkv", view.in(Rope::kQkv).dtype, view.in(Rope::kQkv).shape, view.in(Rope::kQkv).segments}};
}

Cost cost_rope(const NodeView& view) {
  const Value& qkv = view.in(Rope::kQkv);
  double share = 1;
  if (!qkv.segments.empty()) {  // v passes untouched
    share -= static_cast<double>(qkv.segments[2]) / static_cast<double>(qkv.shape[1]);
  } else {
    share = static_cast<double>(2 * view.in(Rope::kTable).shape[1]) /
            static_cast<double>(view.attrs<RopeAttrs>().head_dim);
  }
  const double elements = static_cast<double>(qkv.shape.elements()) * share;
  return {3 * elements, 2 * elements * static_cast<double>(size_of(qkv.dtype))};
}

// Sharded by heads: every part of qkv gives its share.
std::vector<PlacementOption> placements_rope(const NodeView&, Axis) {
  return {{{kS0, kR, kS0}, {kS0}}, {{kS1, kR, kR}, {kS1}}};
}

void gradient_rope(GradientBuilder& builder, const Node& node) {
  auto attrs = node.attrs.as<RopeAttrs>();
  attrs.inverse = !attrs.inverse;
  const ValueId dy = builder.gradient_of(node.outputs[Rope::kRotated]);
  builder.add_gradient(node.inputs[Rope::kQkv],
                       builder.graph().add_node(
                           kRope, {dy, node.inputs[Rope::kTable], node.inputs[Rope::kPositions]}, attrs)[0]);
}

// --- rope_table: () → table[positions, rotary_dim / 2, 2]

std::vector<ValueSpec> infer_table(const NodeView& view) {
  const auto& attrs = view.attrs<RopeTableAttrs>();
  const auto pairs = static_cast<int64_t>(attrs.frequencies.size());
  return {{"table", DType::kF32, {attrs.positions, pairs, 2}}};
}

Cost cost_table(const NodeView& view) {
  return {0, static_cast<double>(view.out(RopeTable::kTable).bytes())};
}

std::vector<PlacementOption> placements_table(const NodeView&, Axis) {
  return {};
}

}  // namespace

const OpDef kRopeTable{"rope_table", "setup", infer_table, cost_table, placements_table};
const OpDef kRope{"rope", "elementwise", infer_rope, cost_rope, placements_rope, gradient_rope, {{0, 0}}};

namespace {

// Long wavelengths are stretched by `factor`, short ones kept, those between interpolated (Llama 3.1).
double llama3_frequency(double f, const RopeScaling& s) {
  const double wavelength = 2 * std::numbers::pi / f;
  if (wavelength < s.original_positions / s.high_frequency_factor) return f;
  if (wavelength > s.original_positions / s.low_frequency_factor) return f / s.factor;
  const double share = (s.original_positions / wavelength - s.low_frequency_factor) /
                       (s.high_frequency_factor - s.low_frequency_factor);
  return (1 - share) * f / s.factor + share * f;
}

// YaRN (Peng et al. 2023): pairs that turn more than beta_fast times in the original context keep their
// frequency, those that turn less than beta_slow times are divided by `factor`, and a ramp lies between.
double yarn_share_kept(int64_t i, int64_t rotary_dim, const RopeScaling& s) {
  const auto pair_of = [&](double turns) {
    return static_cast<double>(rotary_dim) * std::log(s.original_positions / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(s.theta));
  };
  double low = pair_of(s.beta_fast), high = pair_of(s.beta_slow);
  if (s.whole_pairs) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rotary_dim - 1));
  if (low == high) high += 0.001;
  return 1 - std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
}

}  // namespace

Rotation rotation_of(const RopeScaling& s, int64_t rotary_dim, int64_t positions) {
  Rotation rotation;
  const bool is_long = static_cast<double>(positions) > s.original_positions;
  for (int64_t i = 0; i < rotary_dim / 2; ++i) {
    const double f = std::pow(s.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
    switch (s.kind) {
      case RopeScaling::Kind::kUnscaled:
        rotation.frequencies.push_back(f);
        break;
      case RopeScaling::Kind::kInterpolated:
        rotation.frequencies.push_back(f / s.factor);
        break;
      case RopeScaling::Kind::kLlama3:
        rotation.frequencies.push_back(llama3_frequency(f, s));
        break;
      case RopeScaling::Kind::kDynamic: {
        // A base that grows with the sequence beyond the original context; within it nothing changes.
        const double beyond = std::max(1.0, static_cast<double>(positions) / s.original_positions);
        const double stretch = s.factor * beyond - (s.factor - 1);
        const auto dim = static_cast<double>(rotary_dim);
        const double base = s.theta * std::pow(stretch, dim / (dim - 2));
        rotation.frequencies.push_back(std::pow(base, -2.0 * static_cast<double>(i) / dim));
        break;
      }
      case RopeScaling::Kind::kYarn: {
        const double kept = yarn_share_kept(i, rotary_dim, s);
        rotation.frequencies.push_back(f / s.factor * (1 - kept) + f * kept);
        break;
      }
      case RopeScaling::Kind::kLongRope:
        rotation.frequencies.push_back(
            f / (is_long ? s.long_factors : s.short_factors).at(static_cast<size_t>(i)));
        break;
    }
  }
  rotation.magnitude = s.attention_factor;
  return rotation;
}

ValueId rope_table(Graph& graph, int64_t positions, int64_t rotary_dim, const RopeScaling& rope,
                   const std::string& name) {
  graph::Value table;
  table.name = name;
  table.shape = {positions, rotary_dim / 2, 2};
  table.role = graph::Role::kConstant;
  const ValueId id = graph.add_value(std::move(table));
  Rotation rotation = rotation_of(rope, rotary_dim, positions);
  graph.set_phase(graph::Phase::kSetup);
  graph.add_node_into(kRopeTable, {}, {id},
                      RopeTableAttrs{positions, std::move(rotation.frequencies), rotation.magnitude});
  graph.set_phase(graph::Phase::kForward);
  return id;
}

ValueId rope(Graph& graph, ValueId qkv, ValueId table, ValueId positions, int64_t head_dim) {
  return graph.add_node(kRope, {qkv, table, positions}, RopeAttrs{.head_dim = head_dim})[0];
}

ValueId rope(Graph& graph, ValueId x, ValueId table, ValueId positions, const RopeAttrs& attrs) {
  return graph.add_node(kRope, {x, table, positions}, attrs)[0];
}

}  // namespace strata::ops
