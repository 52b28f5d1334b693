#include "ops/expert_choice/expert_choice.h"

#include "ops/rules.h"

namespace strata::ops {
namespace {

// Places of the groups of all tokens.
template <typename Op>
int64_t chosen_slots(const View<Op>& node) {
  const Shape& logits = node.in.logits->shape;
  const ExpertChoiceAttrs& attrs = node.attrs;
  require(node, logits.rank() == 2, "logits must be f32[N, experts]");
  require(node, attrs.rows >= 1 && logits[0] % attrs.rows == 0,
          "the groups must have the same number of tokens");
  require(node, attrs.capacity >= 1 && attrs.capacity <= attrs.rows,
          "an expert must take at least one token of a group, and at most all");
  return logits[0] / attrs.rows * logits[1] * attrs.capacity;
}

// Rows of the result, where those of the input come `from` a group and `to` are made of it.
template <typename Op>
Outputs<Op> infer_rows(const View<Op>& node, int64_t from, int64_t to) {
  const Value& x = *node.in.x;
  require(node, x.shape.rank() == 2 && from >= 1 && to >= 1 && x.shape[0] % from == 0,
          "x must have the rows of whole groups");
  const int64_t groups = x.shape[0] / from;
  require(node, node.in.tokens->shape == Shape{groups * node.attrs.slots},
          "tokens must be i32, one per place");
  return {.y = {x.dtype, {groups * to, x.shape[1]}, x.segments}};
}

// All but the shapes of an op whose gradient is `Other`.
template <typename Op, typename Other>
OpDef rows_op(std::string_view name, Outputs<Op> (*infer)(const View<Op>&)) {
  return define<Op>({
      .name = name,
      .family = "elementwise",
      .infer = infer,
      .cost = [](const auto& node) { return streamed(node, 1); },
      .placements = [](const auto&, Axis) -> Splits<Op> {
        return {{{.x = kS0, .tokens = kS0}, {.y = kS0}}, {{.x = kS1, .tokens = kR}, {.y = kS1}}};
      },
      .gradient =
          [](GradientBuilder& builder, const auto& node) {
            if (!builder.wants(node.in.x)) return;
            const ValueId dy = builder.gradient_of(node.out.y);
            builder.add_gradient(
                node.in.x, add<Other>(builder.graph(), {.x = dy, .tokens = node.in.tokens}, node.attrs).y);
          },
  });
}

}  // namespace

const OpDef ExpertChoice::def = define<ExpertChoice>({
    .name = "expert_choice",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<ExpertChoice> {
      const int64_t slots = chosen_slots(node);
      return {.tokens = {DType::kI32, {slots}},
              .experts = {DType::kI32, {slots, 1}},
              .weights = {DType::kF32, {slots, 1}}};
    },
    .cost = [](const auto& node) { return streamed(node, 16); },
    .placements = [](const auto&, Axis) -> Splits<ExpertChoice> {
      return {{{.logits = kS0}, {.tokens = kS0, .experts = kS0, .weights = kS0}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId given = builder.gradient_of(node.out.weights);
          if (given == kNone) return;
          builder.add_gradient(
              node.in.logits,
              add<ExpertChoiceGrad>(builder.graph(),
                                    {.dweights = given, .logits = node.in.logits, .tokens = node.out.tokens},
                                    node.attrs)
                  .dlogits);
        },
});

const OpDef ExpertChoiceGrad::def = define<ExpertChoiceGrad>({
    .name = "expert_choice_grad",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<ExpertChoiceGrad> {
      const int64_t slots = chosen_slots(node);
      require(node, node.in.dweights->shape.elements() == slots && node.in.tokens->shape == Shape{slots},
              "the gradient must be f32 and the tokens i32, one per place");
      return {.dlogits = {DType::kF32, node.in.logits->shape}};
    },
    .cost = [](const auto& node) { return streamed(node, 16); },
    .placements = [](const auto&, Axis) -> Splits<ExpertChoiceGrad> {
      return {{{.dweights = kS0, .logits = kS0, .tokens = kS0}, {.dlogits = kS0}}};
    },
});

const OpDef GatherRows::def = rows_op<GatherRows, ScatterRows>(
    "gather_rows", [](const auto& node) { return infer_rows(node, node.attrs.rows, node.attrs.slots); });
const OpDef ScatterRows::def = rows_op<ScatterRows, GatherRows>(
    "scatter_rows", [](const auto& node) { return infer_rows(node, node.attrs.slots, node.attrs.rows); });

}  // namespace strata::ops
