#include "kernels/cpu/experts_run.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "kernels/cpu/bf16_block.h"
#include "kernels/cpu/parts.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/worker_tasks.h"
#include "tensor/arena.h"

namespace strata::cpu::detail {
namespace {

// The panels of b (depth_step x col_block) of a task stay in the L2 cache, the current rows of a in the L1
// cache.
constexpr int64_t kDepthStep = 512;
constexpr int64_t kTaskCols = 256;
constexpr int64_t kTaskRows = 1024;
// Panels of both operands of a weight gradient are packed for every block.
constexpr int64_t kGradDepth = 256;  // even, for bf16 dot products
constexpr int64_t kGradRows = 384;
constexpr int64_t kGradCols = 512;
// Tokens whose pairs are summed together. With fewer, packing an expert's weight does not pay off.
constexpr int64_t kLeastChunk = 256, kMostChunk = 4096;

// How many tokens are sorted and summed together: few enough to occupy all threads. No sum depends on it.
int64_t chunk_of(const ExpertsPlan& plan) {
  const int64_t tokens = std::max<int64_t>(1, plan.spec.tokens);
  if (!sums_slots(plan.spec.role)) return tokens;
  const int64_t across = divide_up(std::max<int64_t>(1, columns_of(plan.spec)), plan.col_block);
  const int64_t wanted = tokens * across / plan.workers;
  return std::min(tokens, std::clamp(wanted, kLeastChunk, kMostChunk));
}

// Rows of c of pairs without an expert and of pairs without a token.
void clear_dropped(const ExpertsRun& run, const int32_t* ids) {
  const int64_t used = run.order.first_slot(run.spec.tokens),
                row = columns_of(run.spec) * size_of(run.spec.dtype);
  std::fill_n(run.c + used * row, (run.spec.all_slots() - used) * row, std::byte{0});
  if (run.begins(0)[run.spec.experts] == used) return;
  for (int64_t slot = 0; slot < used; ++slot)
    if (ids[slot] < 0) std::memset(run.c + slot * row, 0, static_cast<size_t>(row));
}

// c has one row per pair: a task is some rows of one expert and some columns.
void run_to_slots(const ExpertsRun& run, FunctionRef<void(const ExpertsRows&, int64_t)> multiply) {
  const ExpertsSpec& spec = run.spec;
  const int64_t columns = columns_of(spec), across = divide_up(columns, run.plan.col_block);
  const int32_t* const begins = run.begins(0);
  run.tasks[0] = 0;
  for (int64_t e = 0; e < spec.experts; ++e)
    run.tasks[e + 1] =
        run.tasks[e] + static_cast<int32_t>(divide_up(begins[e + 1] - begins[e], run.plan.row_block));
  const int64_t tasks = run.tasks[spec.experts] * across;
  const auto expert_of = [&](int64_t task) {
    const auto block = static_cast<int32_t>(task / across);
    return std::upper_bound(run.tasks, run.tasks + spec.experts + 1, block) - run.tasks - 1;
  };
  for_each_task(tasks, run.plan.workers, [&](int64_t task, int64_t worker) {
    const int64_t block = task / across, col = task % across * run.plan.col_block, expert = expert_of(task);
    const int64_t next = task + run.plan.workers;  // if all tasks take equally long
    const int64_t all = begins[expert + 1] - begins[expert];
    const int64_t part = divide_up(all, run.tasks[expert + 1] - run.tasks[expert]);
    const int64_t first = (block - run.tasks[expert]) * part;
    const int64_t at = begins[expert] + first;
    ExpertsRows rows{.expert = expert,
                     .col = col,
                     .cols = std::min(run.plan.col_block, columns - col),
                     .of_a = run.order.token_of + at,
                     .of_c = run.order.slots + at,
                     .count = std::min(part, all - first),
                     .to = reinterpret_cast<float*>(run.c) + col,
                     .stride = columns,
                     .accumulate = false,
                     .next_expert = next < tasks ? expert_of(next) : -1,
                     .next_col = next % across * run.plan.col_block};
    if (spec.dtype == DType::kF32) return multiply(rows, worker);
    rows.of_c = nullptr;
    rows.to = run.sums_of(worker);
    rows.stride = run.plan.col_block;
    multiply(rows, worker);
    scatter_rows(spec.dtype, run.c + col * size_of(spec.dtype), columns, run.order.slots + at, rows.to,
                 rows.stride, rows.count, rows.cols);
  });
}

// c has one row per token: a task is a chunk of tokens and some columns, through all experts.
void run_to_tokens(const ExpertsRun& run, FunctionRef<void(const ExpertsRows&, int64_t)> multiply) {
  const ExpertsSpec& spec = run.spec;
  const int64_t columns = columns_of(spec), across = divide_up(columns, run.plan.col_block);
  for_each_task(run.plan.chunks * across, run.plan.workers, [&](int64_t task, int64_t worker) {
    const int64_t chunk = task / across, col = task % across * run.plan.col_block;
    const int64_t cols = std::min(run.plan.col_block, columns - col);
    const int64_t first = chunk * run.order.chunk_tokens;
    const int64_t tokens = std::min(run.order.chunk_tokens, spec.tokens - first);
    const bool half = spec.dtype != DType::kF32;
    float* const sums = half ? run.sums_of(worker) : reinterpret_cast<float*>(run.c) + first * columns + col;
    const int64_t stride = half ? run.plan.col_block : columns;
    for (int64_t i = 0; i < tokens; ++i) std::fill_n(sums + i * stride, cols, 0.0f);
    const int32_t* const begins = run.begins(chunk);
    for (int64_t e = 0; e < spec.experts; ++e) {
      const int64_t at = begins[e], count = begins[e + 1] - at;
      if (count == 0) continue;
      int64_t next = e + 1;
      while (next < spec.experts && begins[next + 1] == begins[next]) ++next;
      const ExpertsRows rows{.expert = e,
                             .col = col,
                             .cols = cols,
                             .of_a = run.order.slots + at,
                             .of_c = run.order.token_of + at,
                             .count = count,
                             .to = sums,
                             .stride = stride,
                             .accumulate = true,
                             .next_expert = next < spec.experts ? next : -1,
                             .next_col = col};
      multiply(rows, worker);
    }
    if (half)
      scatter_rows(spec.dtype, run.c + (first * columns + col) * size_of(spec.dtype), columns, nullptr, sums,
                   stride, tokens, cols);
  });
}

}  // namespace

void check_experts(const ExpertsSpec& s) {
  require_activation_dtype(s.dtype, "experts");
  STRATA_CHECK(s.tokens >= 0 && s.k >= 1 && s.experts >= 1 && s.outputs >= 0 && s.inputs >= 0,
               "[experts] sizes tokens={} k={} experts={} outputs={} inputs={} are not valid for a GEMM",
               s.tokens, s.k, s.experts, s.outputs, s.inputs);
  STRATA_CHECK(s.all_slots() <= std::numeric_limits<int32_t>::max() - s.experts,
               "[experts] {} tokens have {} token-expert pairs: more than 32 bits can index", s.tokens,
               s.all_slots());
  STRATA_CHECK(!s.accumulate || is_weight_grad(s.role), "[experts] only weight gradients accumulate");
}

void plan_experts_run(ExpertsPlan& plan, const ExpertsNeeds& needs, const hardware::DeviceSpec& device) {
  const ExpertsSpec& spec = plan.spec;
  plan.workers = std::max(1, device.threads);
  const int64_t mr = plan.shape.mr, nr = plan.shape.nr;
  // Smaller blocks if there are few experts per thread; no sum depends on them.
  const int64_t parts = divide_up(2 * plan.workers, spec.experts);
  int64_t a_elements = 0, sums = 0;  // in fp32-sized elements, like everything that follows
  const int64_t in_word = plan.pairs ? 2 : 1;
  const auto at_most = [&](int64_t step) { return needs.depth_step > 0 ? needs.depth_step : step; };
  if (is_weight_grad(spec.role)) {
    plan.depth_step = at_most(kGradDepth);
    plan.row_block = even_part(spec.outputs, kGradRows / parts, mr);
    plan.col_block = even_part(spec.inputs, kGradCols, nr);
    a_elements = plan.row_block * plan.depth_step / in_word;
  } else {
    const bool half = spec.dtype != DType::kF32;
    plan.depth_step = even_part(depth_of(spec), at_most(kDepthStep), 8);
    plan.col_block = even_part(columns_of(spec), sums_slots(spec.role) ? kTaskCols : kTaskCols / parts, nr);
    plan.row_block = sums_slots(spec.role) ? chunk_of(plan) : kTaskRows;
    if (needs.packs_a) a_elements = divide_up(kExpertRowStep * plan.depth_step, in_word);
    if (half) sums = plan.row_block * plan.col_block;
  }
  const int64_t chunk = chunk_of(plan), slots = spec.all_slots();
  plan.chunks = divide_up(spec.tokens, chunk);
  int64_t at = 0;
  const auto take = [&](int64_t elements) {
    const int64_t place = at;
    at += align_up(elements * 4, kBufferAlignment);
    return place;
  };
  take(std::max<int64_t>(1, plan.chunks) * (spec.experts + 1));
  plan.slots_at = take(slots);
  plan.tokens_at = take(slots);
  plan.tasks_at = take(spec.experts + 1);
  plan.workers_at = at;
  at = 0;
  take(a_elements);
  plan.b_at = take(plan.col_block * plan.depth_step / in_word);
  plan.sums_at = take(sums);
  plan.worker_bytes = at;
  plan.scratch_bytes = plan.workers_at + plan.workers * plan.worker_bytes;
}

ExpertsRun start_experts(const ExpertsPlan& plan, const void* a, const int32_t* ids, const int32_t* offsets,
                         const void* b, void* c, void* scratch) {
  const ExpertsSpec& spec = plan.spec;
  const PanelShape own = plan.pairs ? kPairPanels : panel_shape();
  STRATA_CHECK(
      plan.shape.mr == own.mr && plan.shape.nr == own.nr,
      "[experts] the plan has panels of {} x {}: expected {} x {}, which this processor's kernels use",
      plan.shape.mr, plan.shape.nr, own.mr, own.nr);
  STRATA_CHECK((offsets != nullptr) == spec.has_offsets(),
               "[experts] offsets differ from the plan: expected them only if it was made with them");
  auto* const memory = static_cast<std::byte*>(scratch);
  const auto at = [&](int64_t offset) { return reinterpret_cast<int32_t*>(memory + offset); };
  const int64_t chunk = chunk_of(plan);
  const ExpertsRun run{.plan = plan,
                       .spec = spec,
                       .a = static_cast<const std::byte*>(a),
                       .b = static_cast<const std::byte*>(b),
                       .c = static_cast<std::byte*>(c),
                       .order = {.tokens = spec.tokens,
                                 .k = spec.k,
                                 .experts = spec.experts,
                                 .chunk_tokens = chunk,
                                 .offsets = offsets,
                                 .begins = at(0),
                                 .slots = at(plan.slots_at),
                                 .token_of = at(plan.tokens_at)},
                       .tasks = at(plan.tasks_at),
                       .workers = memory + plan.workers_at};
  // Without tokens there is no chunk that would initialize it.
  if (spec.tokens == 0) std::fill_n(run.order.begins, spec.experts + 1, 0);
  const int64_t slots = run.order.first_slot(spec.tokens);
  STRATA_CHECK(slots <= spec.all_slots(), "[experts] {} token-expert pairs: expected at most {}, as planned",
               slots, spec.all_slots());
  order_by_expert(run.order, ids);
  return run;
}

void run_expert_rows(const ExpertsRun& run, const int32_t* ids,
                     FunctionRef<void(const ExpertsRows&, int64_t)> multiply) {
  if (sums_slots(run.spec.role)) return run_to_tokens(run, multiply);
  clear_dropped(run, ids);
  run_to_slots(run, multiply);
}

void run_expert_grads(const ExpertsRun& run, FunctionRef<void(const ExpertsGradBlock&, int64_t)> multiply) {
  const ExpertsSpec& spec = run.spec;
  const ExpertsPlan& plan = run.plan;
  const int64_t down = divide_up(spec.outputs, plan.row_block),
                across = divide_up(spec.inputs, plan.col_block);
  const int32_t* const begins = run.begins(0);
  for_each_task(spec.experts * down * across, plan.workers, [&](int64_t task, int64_t worker) {
    const int64_t expert = task / (down * across);
    const int64_t row = task / across % down * plan.row_block, col = task % across * plan.col_block;
    const int64_t rows = std::min(plan.row_block, spec.outputs - row),
                  cols = std::min(plan.col_block, spec.inputs - col);
    float* const to = reinterpret_cast<float*>(run.c) + (expert * spec.outputs + row) * spec.inputs + col;
    if (begins[expert] < begins[expert + 1]) return multiply({expert, row, rows, col, cols, to}, worker);
    if (spec.accumulate) return;
    for (int64_t i = 0; i < rows; ++i) std::fill_n(to + i * spec.inputs, cols, 0.0f);
  });
}

}  // namespace strata::cpu::detail
