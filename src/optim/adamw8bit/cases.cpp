#include "optim/adamw8bit/adamw8bit.h"
#include "optim/case_operands.h"

namespace strata::device {

using namespace op_rows;

// Rows of whole blocks can be cut anywhere, others nowhere. A code may fall to the neighbour's where rounding
// decides: then a moment differs by the distance of two codes.
template <>
void cases<optim::AdamW8BitUpdate>(Cases& to) {
  const CaseOptions<optim::AdamW8BitUpdate> updates{.updates = {{"parameter", "parameter"},
                                                                {"m", "m"},
                                                                {"m_scale", "m_scale"},
                                                                {"v", "v"},
                                                                {"v_scale", "v_scale"}}};
  CaseOptions<optim::AdamW8BitUpdate> replicated = updates;
  replicated.replicated_only = true;
  to.add<optim::AdamW8BitUpdate>("adamw8bit",
                                 {.parameter = f32({8, 512}),
                                  .m = codes({8, 512}),
                                  .m_scale = positive({16}),
                                  .v = codes({8, 512}),
                                  .v_scale = positive({16}),
                                  .gradient = f32({8, 512}),
                                  .scalars = update_scalars()},
                                 update_with(optim::AdamW8Bit{}), updates);
  to.add<optim::AdamW8BitUpdate>("adamw8bit_rows",
                                 {.parameter = f32({96, 20}),
                                  .m = codes({24, 20}),
                                  .m_scale = positive({2}),
                                  .v = codes({24, 20}),
                                  .v_scale = positive({2}),
                                  .gradient = f32({96, 20}),
                                  .scalars = update_scalars()},
                                 update_rows(optim::AdamW8Bit{}, 48, 24, 0, 24), replicated);
  const Operand scales = zeros({timed_matrix().shape.elements() / 256});
  to.time<optim::AdamW8BitUpdate>({.parameter = timed_matrix(),
                                   .m = timed_state(DType::kU8),
                                   .m_scale = scales,
                                   .v = timed_state(DType::kU8),
                                   .v_scale = scales,
                                   .gradient = timed_matrix(),
                                   .scalars = timed_scalars()},
                                  update_with(optim::AdamW8Bit{}, 1), updates);
}

namespace {

// Rows 3 to 5 and 8 to 11 of a tensor of 11, after a part of 5 rows, and columns 10 to 20 of 30: the shard of
// the second of two ranks along each of two axes. A row of memory is padding.
optim::AdamW8BitShardAttrs shared_blocks() {
  optim::UpdateAttrs update = update_rows(optim::AdamW8Bit{}, 8, 6, 0, 6);
  update.of_rows = 20;
  return {.update = update,
          .rows = {.axes = {Axis::kTensor}, .parts = {{5, {3}}, {6, {3}}}},
          .columns = {.axes = {Axis::kShard}, .parts = {{30, {10}}}},
          .axes = {Axis::kTensor},
          .ranks = {1}};
}
Operand second_rank() {
  return rank_at({{Axis::kShard, 1}, {Axis::kTensor, 1}});
}

optim::AdamW8BitShardAttrs timed_blocks() {
  return {.update = update_with(optim::AdamW8Bit{}, 1),
          .rows = {{}, {{timed_matrix().shape[0], {}}}},
          .columns = {{}, {{timed_matrix().shape[1], {}}}},
          .axes = {},
          .ranks = {}};
}

}  // namespace

template <>
void cases<optim::AdamW8BitLargest>(Cases& to) {
  to.add<optim::AdamW8BitLargest>("adamw8bit_largest",
                                  {.m = codes({6, 10}),
                                   .m_scale = positive({2}),
                                   .v = codes({6, 10}),
                                   .v_scale = positive({2}),
                                   .gradient = f32({20, 10}),
                                   .scalars = update_scalars(),
                                   .rank = second_rank()},
                                  shared_blocks(), {.replicated_only = true});
  const Operand scales = zeros({timed_blocks().blocks()});
  to.time<optim::AdamW8BitLargest>({.m = timed_state(DType::kU8),
                                    .m_scale = scales,
                                    .v = timed_state(DType::kU8),
                                    .v_scale = scales,
                                    .gradient = timed_matrix(),
                                    .scalars = timed_scalars(),
                                    .rank = rank_at({})},
                                   timed_blocks());
}

template <>
void cases<optim::AdamW8BitShard>(Cases& to) {
  CaseOptions<optim::AdamW8BitShard> updates{.updates = {{"parameter", "parameter"},
                                                         {"m", "m"},
                                                         {"m_scale", "m_scale"},
                                                         {"v", "v"},
                                                         {"v_scale", "v_scale"}}};
  const Operand scales = zeros({timed_blocks().blocks()});
  to.time<optim::AdamW8BitShard>({.parameter = timed_matrix(),
                                  .m = timed_state(DType::kU8),
                                  .m_scale = scales,
                                  .v = timed_state(DType::kU8),
                                  .v_scale = scales,
                                  .gradient = timed_matrix(),
                                  .scalars = timed_scalars(),
                                  .rank = rank_at({}),
                                  .largest = zeros({2 * timed_blocks().blocks()})},
                                 timed_blocks(), updates);
  updates.replicated_only = true;
  to.add<optim::AdamW8BitShard>(
      "adamw8bit_shard",
      {.parameter = f32({20, 10}),
       .m = codes({6, 10}),
       .m_scale = positive({2}),
       .v = codes({6, 10}),
       .v_scale = positive({2}),
       .gradient = f32({20, 10}),
       .scalars = update_scalars(),
       .rank = second_rank(),
       .largest = f32_of({2, 4}, [](int64_t i) { return 0.9 + 0.2 * static_cast<double>(i); })},
      shared_blocks(), updates);
}

}  // namespace strata::device
