#include "ops/rules.h"
#include "ops/select/select.h"

namespace strata::ops {

const OpDef TakeRow::def = define<TakeRow>({
    .name = "take_row",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<TakeRow> {
      require(node, node.in.index->shape == Shape{1}, "the index must be i32[1]");
      return {.row = {node.in.x->dtype, {1, node.in.x->shape[1]}}};
    },
    .cost = [](const auto& node) -> Cost {
      return {0, 2 * static_cast<double>(node.out.row->bytes())};
    },
    .placements = [](const auto&, Axis) -> Splits<TakeRow> {
      return {{{.x = kS1, .index = kR}, {.row = kS1}}};
    },
});

}  // namespace strata::ops
