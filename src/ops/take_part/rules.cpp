#include "ops/rules.h"
#include "ops/take_part/take_part.h"

namespace strata::ops {

const OpDef TakePart::def = define<TakePart>({
    .name = "take_part",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<TakePart> {
      const Shape& x = node.in.x->shape;
      require(node, x.rank() == 1, "there must be f32[n]");
      require_rank_block(node);
      require(node, x[0] % node.attrs.ranks == 0, "the ranks must divide the numbers");
      return {.part = {DType::kF32, {x[0] / node.attrs.ranks}}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto& node, Axis axis) -> Splits<TakePart> {
      if (node.attrs.ranks > 1) return {};  // a part of the rank's own shard
      return {{{.x = axis == node.attrs.axis ? kR : kS0, .rank = kR}, {.part = kS0}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId dy = builder.gradient_of(node.out.part);
          builder.weight_grad();
          add_into<TakePartGrad>(builder.graph(), {.dy = dy, .rank = node.in.rank},
                                 {.dx = builder.parameter_gradient(node.in.x)}, node.attrs);
        },
    .localize = localize_ranks<TakePart>,
});

const OpDef TakePartGrad::def = define<TakePartGrad>({
    .name = "take_part_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<TakePartGrad> {
      const Shape& dy = node.in.dy->shape;
      require(node, dy.rank() == 1, "there must be f32[n]");
      require_rank_block(node);
      return {.dx = {DType::kF32, {dy[0] * node.attrs.ranks}}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto& node, Axis axis) -> Splits<TakePartGrad> {
      if (node.attrs.ranks > 1) return {{{.dy = kP, .rank = kR}, {.dx = kP}}};
      if (axis == node.attrs.axis) return {{{.dy = kS0, .rank = kR}, {.dx = kP}}};
      return {{{.dy = kS0, .rank = kR}, {.dx = kS0}}, {{.dy = kP, .rank = kR}, {.dx = kP}}};
    },
    .localize = localize_ranks<TakePartGrad>,
});

}  // namespace strata::ops
