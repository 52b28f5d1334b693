#include "ops/rules.h"
#include "ops/share_heads/share_heads.h"

namespace strata::ops {

const OpDef ShareHeads::def = define<ShareHeads>({
    .name = "share_heads",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ShareHeads> {
      const auto& attrs = node.attrs;
      const Value &q = *node.in.q, &kv = *node.in.kv;
      require_rank_block(node);
      require(node, q.shape.rank() == 2 && kv.shape.rank() == 2 && q.shape[0] == kv.shape[0],
              "q and kv must have the same rows");
      require(
          node,
          kv.segments.size() == 2 && kv.segments[0] == kv.segments[1] && kv.segments[0] % attrs.head_dim == 0,
          "kv must have the parts [k | v] of whole heads");
      require(node, kv.segments[0] * attrs.copies % (attrs.ranks * attrs.head_dim) == 0,
              "each rank must have whole heads");
      const int64_t own = kv.segments[0] * attrs.copies / attrs.ranks;
      return {.qkv = {q.dtype, {q.shape[0], q.shape[1] + 2 * own}, {q.shape[1], own, own}}};
    },
    .cost = [](const auto& node) { return streamed(node, 0); },
    .placements = [](const auto& node, Axis axis) -> Splits<ShareHeads> {
      if (axis != node.attrs.axis) return {{{.q = kS0, .kv = kS0, .rank = kR}, {.qkv = kS0}}};
      if (node.attrs.ranks != 1) return {};
      return {{{.q = kS1, .kv = kR, .rank = kR}, {.qkv = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId dqkv = builder.gradient_of(node.out.qkv);
          const auto given =
              add<ShareHeadsGrad>(builder.graph(), {.dqkv = dqkv, .rank = node.in.rank}, node.attrs);
          builder.add_gradient(node.in.q, given.dq);
          builder.add_gradient(node.in.kv, given.dkv);
        },
    .localize = localize_ranks<ShareHeads>,
});

const OpDef ShareHeadsGrad::def = define<ShareHeadsGrad>({
    .name = "share_heads_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ShareHeadsGrad> {
      const auto& attrs = node.attrs;
      const Value& dqkv = *node.in.dqkv;
      require_rank_block(node);
      require(node, dqkv.segments.size() == 3 && dqkv.segments[1] * attrs.ranks % attrs.copies == 0,
              "the gradient must have the parts [q | k | v]");
      const int64_t rows = dqkv.shape[0], kv = dqkv.segments[1] * attrs.ranks / attrs.copies;
      return {.dq = {dqkv.dtype, {rows, dqkv.segments[0]}}, .dkv = {dqkv.dtype, {rows, 2 * kv}, {kv, kv}}};
    },
    .cost = [](const auto& node) { return streamed(node, 0); },
    .placements = [](const auto& node, Axis axis) -> Splits<ShareHeadsGrad> {
      if (axis != node.attrs.axis) return {{{.dqkv = kS0, .rank = kR}, {.dq = kS0, .dkv = kS0}}};
      if (node.attrs.ranks != 1) return {};
      return {{{.dqkv = kS1, .rank = kR}, {.dq = kS1, .dkv = kP}}};
    },
    .localize = localize_ranks<ShareHeadsGrad>,
});

}  // namespace strata::ops
