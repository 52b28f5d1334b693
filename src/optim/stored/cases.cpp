#include "optim/stored/stored.h"

#include "optim/case_operands.h"
#include "optim/optimizers.h"

namespace strata::device {

using namespace op_rows;

namespace {

optim::UpdateAttrs stored_attrs(const optim::Optimizer& optimizer, const optim::Storage& storage,
                                optim::UpdateAttrs attrs = {}) {
  if (attrs.rows == 0) attrs = update_with(optimizer);
  attrs.rule.storage = storage;
  attrs.stream = 5;
  return attrs;
}

Operand of_type(Operand operand, DType dtype) {
  operand.dtype = dtype;
  return operand;
}
// Codes of e4m3 without NaN.
Operand e4m3_codes(const Shape& shape, bool is_signed) {
  return {.dtype = DType::kE4M3, .shape = shape, .content = [is_signed](int64_t i) {
            return static_cast<double>(i * 37 % 127 + (is_signed && i % 3 == 0 ? 128 : 0));
          }};
}

}  // namespace

// Where rounding decides, a code may fall to the neighbour's.
template <>
void cases<optim::StoredUpdate>(Cases& to) {
  using Update = optim::StoredUpdate;
  const CaseOptions<Update> updates{.updates = {{"parameter", "parameter"}, {"states", "states"}}};
  const Shape small{12, 20}, large{8, 512};
  const Operand low = bf16(small), full = f32(small), second = positive(small), gradient = f32(small);
  const Operand rank = rank_at({});
  using optim::Rounding;
  to.add<Update>(
      "stored_adamw_nearest",
      {.parameter = low, .states = {full, second}, .gradient = gradient, .scalars = update_scalars()},
      stored_attrs(optim::AdamW{}, {.weights = DType::kBF16, .rounding = Rounding::kNearest}), updates);
  to.add<Update>("stored_adamw_kahan",
                 {.parameter = low,
                  .states = {full,
                             second,
                             {.dtype = DType::kBF16,
                              .shape = small,
                              .content = [](int64_t i) { return 0x1p-12 * static_cast<double>(i % 5 - 2); }}},
                  .gradient = gradient,
                  .scalars = update_scalars()},
                 stored_attrs(optim::AdamW{}, {.weights = DType::kBF16, .rounding = Rounding::kKahan}),
                 updates);
  // Shards that know nothing of the whole take other random numbers: weights round to either neighbour.
  CaseOptions<Update> random = updates;
  random.tolerance = 1e-2;
  to.add<Update>("stored_adamw_stochastic",
                 {.parameter = low,
                  .states = {full, second},
                  .gradient = gradient,
                  .scalars = update_scalars(),
                  .rank = rank},
                 stored_attrs(optim::AdamW{}, {.weights = DType::kBF16, .seed = 7}), random);
  to.add<Update>("stored_adamw_bf16_moments",
                 {.parameter = full,
                  .states = {low, of_type(second, DType::kBF16)},
                  .gradient = gradient,
                  .scalars = update_scalars()},
                 stored_attrs(optim::AdamW{}, {.moments = DType::kBF16}), updates);
  to.add<Update>(
      "stored_adamw_e4m3_moments",
      {.parameter = f32(large),
       .states = {e4m3_codes(large, true), positive({16}), e4m3_codes(large, false), positive({16})},
       .gradient = f32(large),
       .scalars = update_scalars()},
      stored_attrs(optim::AdamW{}, {.moments = DType::kE4M3}), updates);
  to.add<Update>(
      "stored_lion",
      {.parameter = low, .states = {low}, .gradient = gradient, .scalars = update_scalars(), .rank = rank},
      stored_attrs(optim::Lion{}, {.weights = DType::kBF16, .moments = DType::kBF16}), random);
  to.add<Update>("stored_adopt",
                 {.parameter = low,
                  .states = {low, of_type(second, DType::kBF16)},
                  .gradient = gradient,
                  .scalars = update_scalars(),
                  .rank = rank},
                 stored_attrs(optim::Adopt{}, {.weights = DType::kBF16, .moments = DType::kBF16}), random);
  to.add<Update>("stored_adamw8bit",
                 {.parameter = bf16(large),
                  .states = {codes(large), positive({16}), codes(large), positive({16})},
                  .gradient = f32(large),
                  .scalars = update_scalars(),
                  .rank = rank},
                 stored_attrs(optim::AdamW8Bit{}, {.weights = DType::kBF16}), random);
  Operand bias = f32({96}, {48, 24, 24});
  to.add<Update>(
      "stored_adamw_rows",
      {.parameter = of_type(bias, DType::kBF16),
       .states = {f32({48}, {24, 24}), positive({48}, {24, 24})},
       .gradient = bias,
       .scalars = update_scalars(),
       .rank = rank},
      stored_attrs(optim::AdamW{}, {.weights = DType::kBF16}, update_rows(optim::AdamW{}, 72, 24, 24, 48)),
      random);
  to.time<Update>({.parameter = of_type(timed_matrix(), DType::kBF16),
                   .states = {timed_state(), timed_state()},
                   .gradient = timed_matrix(),
                   .scalars = timed_scalars(),
                   .rank = rank},
                  stored_attrs(optim::AdamW{}, {.weights = DType::kBF16}), updates);
}

}  // namespace strata::device
