#include "ops/soft_experts/soft_experts.h"

#include "ops/rules.h"

namespace strata::ops {
namespace {

// Mixed inputs of all groups; each has as many as logits have columns.
template <typename Op>
int64_t soft_slots(const View<Op>& node) {
  const Shape& logits = node.in.logits->shape;
  require(node, logits.rank() == 2, "logits must be f32[N, S]");
  require(node, node.attrs.rows >= 1 && logits[0] % node.attrs.rows == 0,
          "the groups must have the same number of tokens");
  require(node, node.attrs.experts >= 1 && logits[1] % node.attrs.experts == 0,
          "S must be a multiple of the number of experts");
  return logits[0] / node.attrs.rows * logits[1];
}
template <typename Op>
void require_soft_rows(const View<Op>& node, const Value& x, int64_t rows) {
  require(node, x.shape.rank() == 2 && x.shape[0] == rows,
          "there must be one row per token, or per mixed input");
}
// The cost of `matmuls` matmuls of all tokens of a group with all its mixed inputs.
template <typename Op>
Cost soft_cost(const View<Op>& node, const Value& x, double matmuls) {
  const auto pairs = static_cast<double>(node.in.logits->shape.elements());
  return {2 * matmuls * pairs * static_cast<double>(x.shape[1]), graph::streamed_bytes(node.untyped())};
}

}  // namespace

const OpDef SoftDispatch::def = define<SoftDispatch>({
    .name = "soft_dispatch",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<SoftDispatch> {
      const Value& x = *node.in.x;
      const int64_t slots = soft_slots(node);
      require_soft_rows(node, x, node.in.logits->shape[0]);
      return {.slots = {x.dtype, {slots, x.shape[1]}},
              .experts = {DType::kI32, {slots, 1}},
              .weights = {DType::kF32, {slots, 1}}};
    },
    .cost = [](const auto& node) { return soft_cost(node, *node.in.x, 1); },
    .placements = [](const auto&, Axis) -> Splits<SoftDispatch> {
      return {{{.x = kS0, .logits = kS0}, {.slots = kS0, .experts = kS0, .weights = kS0}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId given = builder.gradient_of(node.out.slots);
          if (given == kNone) return;
          const auto& [x, logits] = node.in;
          const auto made =
              add<SoftDispatchGrad>(builder.graph(), {.dslots = given, .x = x, .logits = logits}, node.attrs);
          if (builder.wants(x)) builder.add_gradient(x, made.dx);
          if (builder.wants(logits)) builder.add_gradient(logits, made.dlogits);
        },
});

const OpDef SoftDispatchGrad::def = define<SoftDispatchGrad>({
    .name = "soft_dispatch_grad",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<SoftDispatchGrad> {
      const Value &x = *node.in.x, &logits = *node.in.logits;
      require_soft_rows(node, x, logits.shape[0]);
      require_soft_rows(node, *node.in.dslots, soft_slots(node));
      return {.dx = {x.dtype, x.shape}, .dlogits = {DType::kF32, logits.shape}};
    },
    .cost = [](const auto& node) { return soft_cost(node, *node.in.x, 2); },
    .placements = [](const auto&, Axis) -> Splits<SoftDispatchGrad> {
      return {{{.dslots = kS0, .x = kS0, .logits = kS0}, {.dx = kS0, .dlogits = kS0}}};
    },
});

const OpDef SoftCombine::def = define<SoftCombine>({
    .name = "soft_combine",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<SoftCombine> {
      const Value& h = *node.in.h;
      require_soft_rows(node, h, soft_slots(node));
      return {.y = {h.dtype, {node.in.logits->shape[0], h.shape[1]}}};
    },
    .cost = [](const auto& node) { return soft_cost(node, *node.in.h, 1); },
    .placements = [](const auto&, Axis) -> Splits<SoftCombine> {
      return {{{.h = kS0, .logits = kS0}, {.y = kS0}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId given = builder.gradient_of(node.out.y);
          if (given == kNone) return;
          const auto& [h, logits] = node.in;
          const auto made =
              add<SoftCombineGrad>(builder.graph(), {.dy = given, .h = h, .logits = logits}, node.attrs);
          if (builder.wants(h)) builder.add_gradient(h, made.dh);
          if (builder.wants(logits)) builder.add_gradient(logits, made.dlogits);
        },
});

const OpDef SoftCombineGrad::def = define<SoftCombineGrad>({
    .name = "soft_combine_grad",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<SoftCombineGrad> {
      const Value &h = *node.in.h, &logits = *node.in.logits;
      require_soft_rows(node, h, soft_slots(node));
      require_soft_rows(node, *node.in.dy, logits.shape[0]);
      return {.dh = {h.dtype, h.shape}, .dlogits = {DType::kF32, logits.shape}};
    },
    .cost = [](const auto& node) { return soft_cost(node, *node.in.h, 2); },
    .placements = [](const auto&, Axis) -> Splits<SoftCombineGrad> {
      return {{{.dy = kS0, .h = kS0, .logits = kS0}, {.dh = kS0, .dlogits = kS0}}};
    },
});

}  // namespace strata::ops
