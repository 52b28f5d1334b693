#include "ops/chosen_share/chosen_share.h"

#include "ops/attention/rules.h"
#include "ops/rules.h"

namespace strata::ops {

const OpDef ChosenShare::def = define<ChosenShare>({
    .name = "chosen_share",
    .family = "indexer",
    .infer = [](const auto& node) -> Outputs<ChosenShare> {
      const Shape &lse = node.in.lse->shape, &chosen = node.in.chosen_lse->shape;
      require(node, lse.rank() == 3 && lse == chosen && lse[2] == node.attrs.sequence_length,
              "both lse must be f32[sequences, heads, sequence_length]");
      require(node, node.in.targets->shape == Shape{lse[0] * lse[2]}, "targets must be i32[N]");
      require(node, node.attrs.heads >= lse[1], "the heads of all ranks are at least those that are here");
      return {.sum = {DType::kF64, {1}}};
    },
    .cost = [](const auto& node) { return streamed(node, 2); },
    .placements = [](const auto&, Axis axis) -> Splits<ChosenShare> {
      const Placement of_rows = axis == Axis::kContext ? kS2 : kS0;
      return {{{.chosen_lse = of_rows, .lse = of_rows, .targets = kS0}, {.sum = kP}},
              {{.chosen_lse = kS1, .lse = kS1, .targets = kR}, {.sum = kP}}};
    },
    .localize =
        [](const auto& node) {
          ChosenShareAttrs attrs = node.attrs;
          if (node.graph.placement(node.in.lse, Axis::kContext) == kS2)
            attrs.sequence_length /= node.graph.mesh().size(Axis::kContext);
          return attrs;
        },
});

}  // namespace strata::ops
