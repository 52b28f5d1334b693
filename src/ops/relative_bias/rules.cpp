#include "ops/rules.h"
#include "ops/relative_bias/relative_bias.h"

namespace strata::ops {
namespace {

int64_t distances_of(const RelativeBiasAttrs& attrs) {
  return attrs.last - attrs.first + 1;
}

// Half of the buckets of one direction hold one distance each: there must be one, and max_distance beyond.
template <typename Op>
void require_buckets(const View<Op>& node, int64_t buckets) {
  const bool both = node.attrs.bidirectional;
  const int64_t exact = buckets / (both ? 4 : 2);
  require(node, exact >= 1, both ? "there must be at least 4 buckets" : "there must be at least 2 buckets");
  require(node, node.attrs.max_distance > exact,
          "max_distance must exceed the distances with separate buckets");
  require(node, distances_of(node.attrs) >= 1, "the last distance must not precede the first");
}

}  // namespace

const OpDef RelativeBias::def = define<RelativeBias>({
    .name = "relative_bias",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<RelativeBias> {
      const Shape& table = node.in.table->shape;
      require(node, table.rank() == 2, "the table must be f32[buckets, heads]");
      require_buckets(node, table[0]);
      return {.bias = {DType::kF32, {table[1], distances_of(node.attrs)}}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<RelativeBias> {
      return {{{.table = kS1}, {.bias = kS0}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId dbias = builder.gradient_of(node.out.bias);
          builder.weight_grad();
          RelativeBiasAttrs attrs = node.attrs;
          attrs.buckets = node.in.table->shape[0];
          add_into<RelativeBiasGrad>(builder.graph(), {.dbias = dbias},
                                     {.dtable = builder.parameter_gradient(node.in.table)}, attrs);
        },
});

const OpDef RelativeBiasGrad::def = define<RelativeBiasGrad>({
    .name = "relative_bias_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<RelativeBiasGrad> {
      const Shape& dbias = node.in.dbias->shape;
      require_buckets(node, node.attrs.buckets);
      require(node, dbias.rank() == 2 && dbias[1] == distances_of(node.attrs),
              "the gradient must have one column a distance");
      return {.dtable = {DType::kF32, {node.attrs.buckets, dbias[0]}}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<RelativeBiasGrad> {
      return {{{.dbias = kS0}, {.dtable = kS1}}, {{.dbias = kP}, {.dtable = kP}}};
    },
});

}  // namespace strata::ops
