#include "ops/two_level/two_level.h"

#include "ops/rules.h"

namespace strata::ops {
namespace {

template <typename Op>
void require_levels(const View<Op>& node) {
  const Shape &groups = node.in.groups->shape, &logits = node.in.logits->shape;
  require(node, groups.rank() == 2 && logits.rank() == 2 && groups[0] == logits[0],
          "groups must be f32[N, groups] and logits f32[N, experts]");
  require(node, groups[1] >= 1 && logits[1] % groups[1] == 0,
          "the groups must have the same number of experts");
}

}  // namespace

const OpDef TwoLevelLogits::def = define<TwoLevelLogits>({
    .name = "two_level_logits",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<TwoLevelLogits> {
      require_levels(node);
      return {.y = {DType::kF32, node.in.logits->shape}};
    },
    .cost = [](const auto& node) { return streamed(node, 32); },
    .placements = [](const auto&, Axis) -> Splits<TwoLevelLogits> {
      return {{{.groups = kS0, .logits = kS0}, {.y = kS0}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId given = builder.gradient_of(node.out.y);
          if (given == kNone) return;
          const auto& [groups, logits] = node.in;
          const auto made =
              add<TwoLevelLogitsGrad>(builder.graph(), {.dy = given, .groups = groups, .logits = logits});
          if (builder.wants(groups)) builder.add_gradient(groups, made.dgroups);
          if (builder.wants(logits)) builder.add_gradient(logits, made.dlogits);
        },
});

const OpDef TwoLevelLogitsGrad::def = define<TwoLevelLogitsGrad>({
    .name = "two_level_logits_grad",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<TwoLevelLogitsGrad> {
      require_levels(node);
      const Shape &groups = node.in.groups->shape, &logits = node.in.logits->shape;
      require(node, node.in.dy->shape == logits, "the gradient must be as the logits");
      return {.dgroups = {DType::kF32, groups}, .dlogits = {DType::kF32, logits}};
    },
    .cost = [](const auto& node) { return streamed(node, 32); },
    .placements = [](const auto&, Axis) -> Splits<TwoLevelLogitsGrad> {
      return {{{.dy = kS0, .groups = kS0, .logits = kS0}, {.dgroups = kS0, .dlogits = kS0}}};
    },
});

}  // namespace strata::ops
