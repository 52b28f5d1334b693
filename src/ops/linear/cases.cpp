#include "ops/cases.h"
#include "ops/linear/linear.h"

namespace strata::device {

using namespace op_rows;

namespace {

struct LinearSize {
  int64_t rows, outputs, inputs;
};
// The first as small models split over ranks have it.
constexpr LinearSize kTimedLinears[] = {{128, 256, 256},
                                        {kTimedTokens, 256, 256},
                                        {kTimedTokens, 1024, 512},
                                        {kTimedTokens, 512, 2048},
                                        {kTimedTokens, 2048, 1024}};

}  // namespace

template <>
void cases<ops::Linear>(Cases& to) {
  for (const Sizes& s : Cases::sizes()) {
    const Operand x = act({s.rows, s.width}), w = f32({s.outputs, s.width});
    to.add<ops::Linear>("linear" + s.name, {.x = x, .weight = w}, {}, {.ragged = s.ragged});
    to.add<ops::Linear>("linear_bias" + s.name, {.x = x, .weight = w, .bias = f32({s.outputs})}, {},
                        {.ragged = s.ragged});
    to.add<ops::Linear>("linear_to_f32" + s.name, {.x = x, .weight = w}, {.f32_output = true},
                        {.ragged = s.ragged});
  }
  // Where the processor multiplies bf16 these go through pack_weight: a shard is packed by itself.
  to.add<ops::Linear>("linear_bf16", {.x = bf16({24, 64}), .weight = f32({32, 64})}, {},
                      {.tolerance = 3e-2, .differentiable = std::vector<OutputName<ops::Linear>>{}});
  for (const auto& [rows, outputs, inputs] : kTimedLinears)
    to.time<ops::Linear>({.x = act({rows, inputs}), .weight = f32({outputs, inputs})});
  to.time<ops::Linear>({.x = timed_rows(), .weight = f32({kTimedFfn, kTimedWidth})}, {}, {.encoding = true});
}

template <>
void cases<ops::LinearGradInput>(Cases& to) {
  for (const Sizes& s : Cases::sizes())
    to.add<ops::LinearGradInput>("linear_grad_input" + s.name,
                                 {.dy = act({s.rows, s.outputs}), .weight = f32({s.outputs, s.width})}, {},
                                 {.ragged = s.ragged});
  to.add<ops::LinearGradInput>("linear_grad_input_bf16", {.dy = bf16({24, 32}), .weight = f32({32, 64})}, {},
                               {.tolerance = 3e-2});
  for (const auto& [rows, outputs, inputs] : kTimedLinears)
    to.time<ops::LinearGradInput>({.dy = act({rows, outputs}), .weight = f32({outputs, inputs})});
}

template <>
void cases<ops::LinearGradWeight>(Cases& to) {
  for (const Sizes& s : Cases::sizes())
    to.add<ops::LinearGradWeight>("linear_grad_weight" + s.name,
                                  {.dy = act({s.rows, s.outputs}), .x = act({s.rows, s.width})}, {},
                                  {.ragged = s.ragged});
  for (const auto& [rows, outputs, inputs] : kTimedLinears) {
    for (const bool adds : {false, true})
      to.time<ops::LinearGradWeight>({.dy = act({rows, outputs}), .x = act({rows, inputs})}, {},
                                     {.adds = adds});
  }
}

template <>
void cases<ops::ColumnSums>(Cases& to) {
  for (const Sizes& s : Cases::sizes())
    to.add<ops::ColumnSums>("column_sums" + s.name, {.dy = act({s.rows, s.outputs})}, {},
                            {.ragged = s.ragged});
  to.time<ops::ColumnSums>({.dy = timed_rows(kTimedFfn)});
}

}  // namespace strata::device
