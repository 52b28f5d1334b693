#include "optim/adafactor/adafactor.h"
#include "optim/case_operands.h"

namespace strata::device {

using namespace op_rows;

namespace {

const optim::Adafactor kClipped{.clip_threshold = 0.8};

}  // namespace

template <>
void cases<optim::AdafactorUpdate>(Cases& to) {
  const CaseOptions<optim::AdafactorUpdate> updates{
      .updates = {{"parameter", "parameter"}, {"row", "row"}, {"column", "column"}}};
  CaseOptions<optim::AdafactorUpdate> replicated = updates;
  replicated.replicated_only = true;
  const auto add = [&](const char* name, int64_t rows, int64_t own, const optim::UpdateAttrs& attrs) {
    to.add<optim::AdafactorUpdate>(name,
                                   {.parameter = f32({rows, 20}),
                                    .row = positive({own}),
                                    .column = positive({20}),
                                    .gradient = f32({rows, 20}),
                                    .scalars = update_scalars()},
                                   attrs, replicated);
  };
  add("adafactor", 12, 12, update_with(kClipped));
  add("adafactor_rows", 96, 24, update_rows(kClipped, 48, 24, 0, 24));
  const Operand matrix = timed_matrix();
  to.time<optim::AdafactorUpdate>({.parameter = matrix,
                                   .row = zeros({matrix.shape[0]}),
                                   .column = zeros({matrix.shape[1]}),
                                   .gradient = matrix,
                                   .scalars = timed_scalars()},
                                  update_with(optim::Adafactor{}, 1), updates);
}

template <>
void cases<optim::AdafactorVectorUpdate>(Cases& to) {
  to.add<optim::AdafactorVectorUpdate>(
      "adafactor_vector",
      {.parameter = f32({57}),
       .variance = positive({57}),
       .gradient = f32({57}),
       .scalars = update_scalars()},
      update_with(kClipped),
      {.updates = {{"parameter", "parameter"}, {"variance", "variance"}}, .replicated_only = true});
  to.untimed<optim::AdafactorVectorUpdate>(kFewNumbers);
}

namespace {

// A part of a tensor of 36 rows: 24 of them are here, in a separate parameter or in one of 96 rows.
struct AdafactorPart {
  std::string name;
  optim::AdafactorShardAttrs attrs;
  Operand matrix;
  bool ragged = false;
};
std::vector<AdafactorPart> adafactor_parts() {
  optim::AdafactorShardAttrs whole, rows;
  whole.update = update_with(kClipped);
  rows.update = update_rows(kClipped, 48, 24, 0, 24);
  whole.rows = rows.rows = 36;
  return {{"", whole, f32({24, 20}), false}, {"_rows", rows, f32({96, 20}), true}};
}
Operand adafactor_sums() {
  return {.dtype = DType::kF64, .shape = {22}, .content = [](int64_t i) {
            return 0.4 + 0.3 * static_cast<double>(i);
          }};
}
optim::AdafactorShardAttrs timed_part() {
  return {update_with(optim::Adafactor{}, 1), timed_matrix().shape[0]};
}
Operand timed_row() {
  return zeros({timed_matrix().shape[0]});
}
Operand timed_column() {
  return zeros({timed_matrix().shape[1]});
}
Operand timed_sums() {
  return zeros({timed_matrix().shape[1] + 2}, DType::kF64);
}

}  // namespace

template <>
void cases<optim::AdafactorSums>(Cases& to) {
  for (const AdafactorPart& one : adafactor_parts())
    to.add<optim::AdafactorSums>("adafactor_sums" + one.name,
                                 {.parameter = one.matrix,
                                  .state = positive({24}),
                                  .gradient = one.matrix,
                                  .scalars = update_scalars()},
                                 one.attrs, {.updates = {{"state", "state"}}, .ragged = one.ragged});
  to.add<optim::AdafactorSums>(
      "adafactor_sums_vector",
      {.parameter = f32({24}), .state = positive({24}), .gradient = f32({24}), .scalars = update_scalars()},
      adafactor_parts().front().attrs, {.updates = {{"state", "state"}}});
  to.time<optim::AdafactorSums>({.parameter = timed_matrix(),
                                 .state = timed_row(),
                                 .gradient = timed_matrix(),
                                 .scalars = timed_scalars()},
                                timed_part(), {.updates = {{"state", "state"}}});
}

template <>
void cases<optim::AdafactorColumns>(Cases& to) {
  for (const AdafactorPart& one : adafactor_parts())
    to.add<optim::AdafactorColumns>("adafactor_columns" + one.name,
                                    {.row = positive({24}),
                                     .column = positive({20}),
                                     .gradient = one.matrix,
                                     .sums = adafactor_sums(),
                                     .scalars = update_scalars()},
                                    one.attrs, {.updates = {{"column", "column"}}, .ragged = one.ragged});
  to.time<optim::AdafactorColumns>({.row = timed_row(),
                                    .column = timed_column(),
                                    .gradient = timed_matrix(),
                                    .sums = timed_sums(),
                                    .scalars = timed_scalars()},
                                   timed_part(), {.updates = {{"column", "column"}}});
}

template <>
void cases<optim::AdafactorApply>(Cases& to) {
  for (const AdafactorPart& one : adafactor_parts())
    to.add<optim::AdafactorApply>("adafactor_apply" + one.name,
                                  {.parameter = one.matrix,
                                   .state = positive({24}),
                                   .column = positive({20}),
                                   .gradient = one.matrix,
                                   .sums = adafactor_sums(),
                                   .squares = partials(1),
                                   .scalars = update_scalars()},
                                  one.attrs, {.updates = {{"parameter", "parameter"}}, .ragged = one.ragged});
  to.add<optim::AdafactorApply>("adafactor_apply_vector",
                                {.parameter = f32({24}),
                                 .state = positive({24}),
                                 .column = absent(),
                                 .gradient = f32({24}),
                                 .sums = partials(2),
                                 .squares = absent(),
                                 .scalars = update_scalars()},
                                adafactor_parts().front().attrs, {.updates = {{"parameter", "parameter"}}});
  to.time<optim::AdafactorApply>({.parameter = timed_matrix(),
                                  .state = timed_row(),
                                  .column = timed_column(),
                                  .gradient = timed_matrix(),
                                  .sums = timed_sums(),
                                  .squares = zeros({1}, DType::kF64),
                                  .scalars = timed_scalars()},
                                 timed_part(), {.updates = {{"parameter", "parameter"}}});
}

}  // namespace strata::device
