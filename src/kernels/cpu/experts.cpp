#include "kernels/cpu/experts.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/bf16_block.h"
#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/experts_run.h"

namespace strata::cpu {
namespace {

using detail::BlockOutput;
using detail::OperandView;
using Role = ExpertsRole;
using Run = detail::ExpertsRun;
using Rows = detail::ExpertsRows;
using detail::columns_of;
using detail::depth_of;
using detail::is_weight_grad;

OperandView weight_of(const Run& run, int64_t expert) {
  const ExpertsSpec& spec = run.spec;
  const bool forward = spec.role == Role::kIn || spec.role == Role::kOut;
  return {.data = reinterpret_cast<const float*>(run.b) + expert * spec.outputs * spec.inputs,
          .dtype = DType::kF32,
          .stride = spec.inputs,
          .depth_major = !forward,
          .rounded_to = spec.dtype};
}

// Depths [deep, deep + now) of the rows in fp32 arithmetic.
void multiply_floats(const Run& run, const Rows& rows, const OperandView& weight, int64_t deep, int64_t now,
                     int64_t worker) {
  const int64_t depth = depth_of(run.spec), nr = run.plan.shape.nr;
  const bool half = run.spec.dtype != DType::kF32;
  float* const panels = run.b_of(worker);
  detail::pack_panels(panels, nr, weight, rows.col, rows.cols, deep, now);
  const int64_t row_step = half ? detail::kExpertRowStep : std::max<int64_t>(1, rows.count);
  for (int64_t first = 0; first < rows.count; first += row_step) {
    const int64_t count = std::min(row_step, rows.count - first);
    const int32_t* a_rows = rows.of_a + first;
    const float* a = reinterpret_cast<const float*>(run.a) + deep;
    int64_t a_stride = depth;
    if (half) {
      detail::gather_rows(run.a_of(worker), run.spec.dtype, run.a + deep * size_of(run.spec.dtype), depth,
                          a_rows, count, now);
      a = run.a_of(worker);
      a_stride = now;
      a_rows = nullptr;
    }
    BlockOutput out{.data = rows.to, .stride = rows.stride, .accumulate = rows.accumulate || deep > 0};
    if (rows.of_c == nullptr) out.data += first * rows.stride;
    detail::multiply_block_listed(out, rows.of_c != nullptr ? rows.of_c + first : nullptr, a, a_stride,
                                  a_rows, panels, now * nr, count, rows.cols, now);
  }
}

// The range of a weight that is packed after depths [deep, deep + now) of the rows.
detail::RowsAhead weight_ahead(const Run& run, const Rows& rows, int64_t deep, int64_t now) {
  const int64_t depth = depth_of(run.spec);
  int64_t expert = rows.expert, col = rows.col, begin = deep + now;
  if (begin >= depth) {
    expert = rows.next_expert;
    col = rows.next_col;
    begin = 0;
  }
  if (expert < 0) return {};
  const int64_t cols = std::min(run.plan.col_block, columns_of(run.spec) - col),
                deeper = std::min(run.plan.depth_step, depth - begin);
  const OperandView weight = weight_of(run, expert);
  const bool by_depth = weight.depth_major;
  return {.from = static_cast<const std::byte*>(weight.data) +
                  ((by_depth ? begin : col) * weight.stride + (by_depth ? col : begin)) * 4,
          .rows = by_depth ? deeper : cols,
          .bytes = (by_depth ? cols : deeper) * 4,
          .stride = weight.stride * 4};
}

// Like multiply_floats(), in bf16 arithmetic; reads rows of a in place.
void multiply_pairs(const Run& run, const Rows& rows, const OperandView& weight, int64_t deep, int64_t now,
                    int64_t worker) {
  const int64_t nr = run.plan.shape.nr;
  BF16* const panels = run.b_pairs_of(worker);
  detail::pack_pairs(panels, nr, weight, rows.col, rows.cols, deep, now);
  detail::multiply_pairs_listed(
      {.data = rows.to, .stride = rows.stride, .accumulate = rows.accumulate || deep > 0}, rows.of_c,
      reinterpret_cast<const BF16*>(run.a) + deep, depth_of(run.spec), rows.of_a, panels,
      detail::panel_values(now, nr), rows.count, rows.cols, now, weight_ahead(run, rows, deep, now));
}

void multiply_rows(const Run& run, const Rows& rows, int64_t worker) {
  const OperandView weight = weight_of(run, rows.expert);
  const int64_t depth = depth_of(run.spec);
  int64_t deep = 0;
  do {  // at least once: without depth the result is zero
    const int64_t now = std::min(run.plan.depth_step, depth - deep);
    if (run.plan.pairs) {
      multiply_pairs(run, rows, weight, deep, now, worker);
    } else {
      multiply_floats(run, rows, weight, deep, now, worker);
    }
    deep += now;
  } while (deep < depth);
}

// A sum over an expert's pairs in their order.
void multiply_pairs_of_expert(const Run& run, const detail::ExpertsGradBlock& block, int64_t worker) {
  const ExpertsSpec& spec = run.spec;
  const int32_t* const begins = run.begins(0);
  const bool dy_by_slot = spec.role == Role::kInGradWeight;
  const int32_t* const dy_rows = dy_by_slot ? run.order.slots : run.order.token_of;
  const int32_t* const x_rows = dy_by_slot ? run.order.token_of : run.order.slots;
  const OperandView dy{.data = run.a, .dtype = spec.dtype, .stride = spec.outputs, .depth_major = true};
  const OperandView x{.data = run.b, .dtype = spec.dtype, .stride = spec.inputs, .depth_major = true};
  bool accumulate = spec.accumulate;
  for (int64_t at = begins[block.expert]; at < begins[block.expert + 1]; at += run.plan.depth_step) {
    const int64_t depth = std::min(run.plan.depth_step, begins[block.expert + 1] - at);
    const auto [mr, nr] = run.plan.shape;
    const BlockOutput out{
        .data = block.to, .stride = spec.inputs, .accumulate = accumulate, .continues = accumulate};
    if (run.plan.pairs) {
      detail::pack_pairs_listed(run.a_pairs_of(worker), mr, dy, dy_rows + at, block.row, block.rows, depth);
      detail::pack_pairs_listed(run.b_pairs_of(worker), nr, x, x_rows + at, block.col, block.cols, depth);
      detail::multiply_pairs(out, run.a_pairs_of(worker), detail::panel_values(depth, mr),
                             run.b_pairs_of(worker), detail::panel_values(depth, nr), block.rows, block.cols,
                             depth);
    } else {
      detail::pack_panels_listed(run.a_of(worker), mr, dy, dy_rows + at, block.row, block.rows, depth);
      detail::pack_panels_listed(run.b_of(worker), nr, x, x_rows + at, block.col, block.cols, depth);
      detail::multiply_block(out, run.a_of(worker), depth * mr, run.b_of(worker), depth * nr, block.rows,
                             block.cols, depth);
    }
    accumulate = true;
  }
}

}  // namespace

ExpertsPlan plan_experts(const ExpertsSpec& spec, const hardware::DeviceSpec& device) {
  detail::check_experts(spec);
  ExpertsPlan plan;
  plan.spec = spec;
  // Passes of ranks that share experts (with offsets) split the token-expert pairs of a weight gradient
  // anywhere, even between the two rows of a bf16 dot product, and must not change a bit.
  plan.pairs = spec.dtype == DType::kBF16 && detail::multiplies_pairs_fast(device.isa) &&
               (is_weight_grad(spec.role) ? !spec.has_offsets() : depth_of(spec) % 2 == 0);
  plan.shape = plan.pairs ? detail::kPairPanels : detail::panel_shape_of(device.isa);
  detail::plan_experts_run(plan, {.packs_a = spec.dtype != DType::kF32 && !plan.pairs}, device);
  return plan;
}

void run_experts(const ExpertsPlan& plan, const void* a, const int32_t* ids, const int32_t* offsets,
                 const void* b, void* c, void* scratch) {
  const Run run = detail::start_experts(plan, a, ids, offsets, b, c, scratch);
  if (is_weight_grad(plan.spec.role)) {
    return run_expert_grads(run, [&](const detail::ExpertsGradBlock& block, int64_t worker) {
      multiply_pairs_of_expert(run, block, worker);
    });
  }
  run_expert_rows(run, ids, [&](const Rows& rows, int64_t worker) { multiply_rows(run, rows, worker); });
}

void expert_counts(int64_t tokens, int64_t k, int64_t experts, int64_t* counts, const int32_t* ids,
                   const int32_t* targets, bool accumulate) {
  if (!accumulate) std::fill_n(counts, experts, 0);
  for (int64_t slot = 0; slot < tokens * k; ++slot) {
    if (targets != nullptr && targets[slot / k] < 0) continue;
    STRATA_CHECK(ids[slot] >= -1 && ids[slot] < experts,
                 "[expert_counts] token-expert pair {} has expert {}: expected [-1, {})", slot, ids[slot],
                 experts);
    if (ids[slot] >= 0) ++counts[ids[slot]];
  }
}

}  // namespace strata::cpu
