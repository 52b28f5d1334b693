#include "ops/rules.h"
#include "ops/capacity/capacity.h"

namespace strata::ops {
namespace {

template <typename Op>
void require_kept_slots(const View<Op>& node) {
  require(node, node.in.ids->shape.rank() == 2, "ids must be i32[N, k]");
  require(node, node.in.weights->shape == node.in.ids->shape, "weights must be f32[N, k], one for each id");
}

}  // namespace

const OpDef LimitExperts::def = define<LimitExperts>({
    .name = "limit_experts",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<LimitExperts> {
      const CapacityAttrs& attrs = node.attrs;
      require_kept_slots(node);
      const Shape& ids = node.in.ids->shape;
      require(node, attrs.experts >= 1 && attrs.capacity >= 1, "experts and capacity must be at least 1");
      require(node, attrs.rows >= 1 && ids[0] % attrs.rows == 0,
              "the groups must have the same number of tokens");
      require(node, !node.in.begins || node.in.begins->shape == Shape{ids[0]}, "begins must be i32[N]");
      return {.kept = {DType::kI32, ids}};
    },
    .cost = [](const auto& node) { return streamed(node, 4); },
    .placements = [](const auto&, Axis) -> Splits<LimitExperts> {
      return {{{.ids = kS0, .weights = kS0, .begins = kS0}, {.kept = kS0}}};
    },
});

const OpDef WeightsOfKept::def = define<WeightsOfKept>({
    .name = "weights_of_kept",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<WeightsOfKept> {
      require_kept_slots(node);
      return {.kept = {DType::kF32, node.in.weights->shape}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<WeightsOfKept> {
      return {{{.weights = kS0, .ids = kS0}, {.kept = kS0}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId given = builder.gradient_of(node.out.kept);
          if (given == kNone) return;
          builder.add_gradient(
              node.in.weights,
              add<WeightsOfKept>(builder.graph(), {.weights = given, .ids = node.in.ids}).kept);
        },
});

}  // namespace strata::ops
