#include "ops/rules.h"
#include "ops/softcap/softcap.h"

namespace strata::ops {

const OpDef Softcap::def = define<Softcap>({
    .name = "softcap",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<Softcap> {
      return {.y = {DType::kF32, node.in.x->shape}};
    },
    .cost = [](const auto& node) { return streamed(node, 10); },
    .placements = [](const auto&, Axis) -> Splits<Softcap> {
      return {{{.x = kS0}, {.y = kS0}}, {{.x = kS1}, {.y = kS1}}};
    },
    .in_place = {{"y", "x"}},
});

}  // namespace strata::ops
