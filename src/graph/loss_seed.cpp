#include "graph/loss_seed.h"

#include "graph/typed_op.h"

namespace strata::graph {

const OpDef LossSeed::def = define<LossSeed>({
    .name = "loss_seed",
    .family = "elementwise",
    .infer = [](const auto& node) -> LossSeed::Out<Specs> {
      if (node.in.main_terms->shape != Shape{1} || node.in.terms->shape != Shape{1})
        shape_error(node.untyped(), "counts of terms must be i64[1]");
      if (node.in.scale && node.in.scale->shape != Shape{1})
        shape_error(node.untyped(), "the scale must be f32[1]");
      return {.seed = {DType::kF32, {1}}};
    },
    .cost = [](const auto& node) -> Cost {
      return {2, streamed_bytes(node.untyped())};
    },
});

}  // namespace strata::graph
