#include "ops/predict/predict.h"

#include "ops/latent_attention/latent_attention.h"
#include "ops/rules.h"

namespace strata::ops {

const OpDef TargetsAhead::def = define<TargetsAhead>({
    .name = "targets_ahead",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<TargetsAhead> {
      const Shape& targets = node.in.targets->shape;
      const int64_t length = node.attrs.sequence_length;
      require(node, targets.rank() == 1, "targets must be i32[N]");
      require(node, node.in.ahead->shape == targets, "ahead must be i32[N] like the targets");
      require(node, length > 0 && targets[0] % length == 0, "targets must be those of whole sequences");
      return {.tokens = {DType::kI32, targets}, .ahead = {DType::kI32, targets}};
    },
    .cost = [](const auto& node) { return streamed(node, 0); },
    // Parts of the rows are whole sequences on the axes of a batch; on others all ranks have all rows.
    .placements = [](const auto& node, Axis) -> Splits<TargetsAhead> {
      if (node.in.targets->shape[0] / node.attrs.sequence_length < 2) return {};
      return {{{.targets = kS0, .ahead = kS0}, {.tokens = kS0, .ahead = kS0}}};
    },
});

ValueId side_by_side(Graph& graph, ValueId a, ValueId b) {
  return add<JoinLatents>(graph, {.latent = a, .rotated = b}).down;
}

}  // namespace strata::ops
