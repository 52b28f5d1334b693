#include "ops/rope/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/attention/attention.h"
#include "ops/rules.h"

namespace strata::ops {

const OpDef RopeTable::def = define<RopeTable>({
    .name = "rope_table",
    .family = "setup",
    .infer = [](const auto& node) -> Outputs<RopeTable> {
      return {.table = {DType::kF32, {node.attrs.positions, std::ssize(node.attrs.frequencies), 2}}};
    },
    .cost = [](const auto& node) -> Cost {
      return {0, static_cast<double>(node.out.table->bytes())};
    },
});

const OpDef Rope::def = define<Rope>({
    .name = "rope",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<Rope> {
      const Value& x = *node.in.x;
      const Shape& table = node.in.table->shape;
      const auto& attrs = node.attrs;
      if (x.segments.empty()) {
        require(node, x.shape.rank() == 2 && x.shape[1] % attrs.head_dim == 0,
                "the rows must be whole heads");
      } else {
        require_segments(node.untyped(), x, attrs.head_dim);
        require(node, attrs.head_dim % 2 == 0, "rotary embedding needs an even head size");
      }
      require(node, table.rank() == 3 && attrs.first + table[1] * 2 <= attrs.head_dim && table[2] == 2,
              "the table must be [positions, rotary_dim / 2, 2], for dimensions that a head has");
      require(node, node.in.positions->shape == Shape{x.shape[0]}, "there must be one position a token");
      return {.qkv = Spec::like(x)};
    },
    .cost = [](const auto& node) -> Cost {
      const Value& x = *node.in.x;
      double share =
          static_cast<double>(2 * node.in.table->shape[1]) / static_cast<double>(node.attrs.head_dim);
      // v passes unchanged.
      if (!x.segments.empty())
        share = 1 - static_cast<double>(x.segments[2]) / static_cast<double>(x.shape[1]);
      const double elements = static_cast<double>(x.shape.elements()) * share;
      return {3 * elements, 2 * elements * static_cast<double>(size_of(x.dtype))};
    },
    // Sharded by heads, each of q, k and v is sharded.
    .placements = [](const auto&, Axis) -> Splits<Rope> {
      return {{{.x = kS0, .table = kR, .positions = kS0}, {.qkv = kS0}},
              {{.x = kS1, .table = kR, .positions = kR}, {.qkv = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          RopeAttrs attrs = node.attrs;
          attrs.inverse = !attrs.inverse;
          const ValueId dy = builder.gradient_of(node.out.qkv);
          builder.add_gradient(
              node.in.x, add<Rope>(builder.graph(),
                                   {.x = dy, .table = node.in.table, .positions = node.in.positions}, attrs)
                             .qkv);
        },
    .in_place = {{"qkv", "x"}},
});

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
// frequency, those that turn less than beta_slow times are divided by `factor`, with a ramp in between.
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
        const double growth = s.factor * beyond - (s.factor - 1);
        const auto dim = static_cast<double>(rotary_dim);
        const double base = s.theta * std::pow(growth, dim / (dim - 2));
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
  add_into<RopeTable>(graph, {}, {.table = id},
                      {positions, std::move(rotation.frequencies), rotation.magnitude});
  graph.set_phase(graph::Phase::kForward);
  return id;
}

}  // namespace strata::ops
