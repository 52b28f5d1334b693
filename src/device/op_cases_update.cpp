// Rows of the optimizer's ops.
#include "device/op_operands.h"
#include "optim/adamw.h"
#include "tensor/update_scalars.h"

namespace strata::device::op_rows {
namespace {

const UpdateScalars kScalars{.lr = 0.1f,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .eps = 1e-8f,
                             .bias_correction1 = 0.19f,
                             .bias_correction2 = 0.0975f,
                             .grad_scale = 0.25f,
                             .skip = 0};

Operand partials(int64_t n) {
  return {.dtype = DType::kF64, .shape = {n}, .content = [](int64_t i) {
            return 0.3 + 0.7 * static_cast<double>(i);
          }};
}

}  // namespace

void add_update_rows(std::vector<OpCase>& cases) {
  const Operand scalars = bytes_of(kScalars, optim::kScalarBytes);
  cases.push_back({"adamw",
                   &optim::kAdamW,
                   {f32({12, 20}), f32({12, 20}), positive({12, 20}), f32({12, 20}), scalars},
                   optim::AdamWAttrs{.weight_decay = 0.1, .lr_scale = 0.5},
                   {0, 1, 2}});
  // A bias of q, k and v: a shard takes its share of each of the three parts.
  const std::vector<int64_t> parts{48, 24, 24};
  cases.push_back(
      {"adamw_parts",
       &optim::kAdamW,
       {f32({96}, parts), f32({96}, parts), positive({96}, parts), f32({96}, parts), scalars},
       optim::AdamWAttrs{
           .weight_decay = 0.1, .lr_scale = 0.5, .part_rows = {48, 24, 24}, .part_scales = {0.25, 1, 4}},
       {0, 1, 2}});
  cases.push_back({"sum_of_squares", &optim::kSumOfSquares, {f32({12, 20})}});
  cases.push_back({.name = "sum_of_squares_blocks",
                   .op = &optim::kSumOfSquares,
                   .inputs = {f32({2 * optim::kNormBlock + 3})},
                   .ragged = true});
  for (const auto& [name, limit, count] : std::initializer_list<std::tuple<const char*, double, double>>{
           {"", 0.0, 7.0}, {"_clipped", 0.1, 7.0}, {"_without_a_target", 1.0, 0.0}}) {
    optim::UpdateHyper hyper;
    hyper.max_grad_norm = limit;
    hyper.lr = 0.01f;
    cases.push_back(
        {.name = std::string("update_scalars") + name,
         .op = &optim::kUpdateScalars,
         .inputs = {bytes_of(hyper, optim::kScalarBytes), i64_of(count), partials(3), partials(1)},
         .replicated_only = true,
         .opaque = {0}});
  }
  cases.push_back({.name = "root_of_sum",
                   .op = &optim::kRootOfSum,
                   .inputs = {partials(1), partials(4)},
                   .replicated_only = true});
}

}  // namespace strata::device::op_rows
