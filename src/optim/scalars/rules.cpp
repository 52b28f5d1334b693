#include "optim/scalars/scalars.h"
#include "optim/update_rules.h"

namespace strata::optim {

const OpDef SumOfSquares::def = define<SumOfSquares>({
    .name = "sum_of_squares",
    .family = "update",
    .infer = [](const auto& node) -> Outputs<SumOfSquares> {
      return {.partials = {DType::kF64, {(node.in.x->shape.elements() + kNormBlock - 1) / kNormBlock}}};
    },
    .cost = [](const auto& node) { return ops::streamed(node, 2); },
    .placements =
        [](const auto& node, Axis) {
          Splits<SumOfSquares> splits;
          for (int dim = 0; dim < node.in.x->shape.rank(); ++dim)
            splits.push_back({{.x = Placement::sharded(dim)}, {.partials = kP}});
          return splits;
        },
});

const OpDef SumOfPartials::def = define<SumOfPartials>({
    .name = "sum_of_partials",
    .family = "update",
    .infer = [](const auto&) -> Outputs<SumOfPartials> {
      return {.sum = {DType::kF64, {1}}};
    },
    .cost = [](const auto& node) { return ops::streamed(node, 2); },
    .placements = [](const auto&, Axis) -> Splits<SumOfPartials> {
      return {{{.partials = kP}, {.sum = kP}}};
    },
});

const OpDef RootOfSum::def = define<RootOfSum>({
    .name = "root_of_sum",
    .family = "update",
    .infer = [](const auto&) -> Outputs<RootOfSum> {
      return {.norm = {DType::kF32, {1}}};
    },
    .cost = [](const auto& node) { return ops::streamed(node, 2); },
});

const OpDef StepScalars::def = define<StepScalars>({
    .name = "update_scalars",
    .family = "update",
    .infer = [](const auto& node) -> Outputs<StepScalars> {
      require(node, node.in.hyper->shape == Shape{kHyperBytes},
              "the first input must be the hyper-parameters");
      require(node, node.in.history->shape == Shape{kHistoryBytes}, "history must be a GuardHistory");
      require(node, !node.in.loss_scale || node.in.loss_scale->shape == Shape{1},
              "the loss scale must be f32[1]");
      return {.scalars = {DType::kU8, {kScalarBytes}},
              .embedding_scalars = {DType::kU8, {kScalarBytes}},
              .norm = {DType::kF32, {1}},
              .updates = {DType::kI64, {1}},
              .history = Spec::like(*node.in.history),
              .decision = {DType::kU8, {kDecisionBytes}},
              .loss_scale = node.in.loss_scale ? Spec::like(*node.in.loss_scale) : Spec::none()};
    },
    .cost = [](const auto& node) { return ops::streamed(node, 2); },
});

}  // namespace strata::optim
