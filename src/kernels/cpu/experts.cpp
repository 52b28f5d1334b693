#include "kernels/cpu/experts.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/bf16_block.h"
#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/expert_rows.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/worker_tasks.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

using detail::BlockOutput;
using detail::OperandView;
using Role = ExpertsRole;

// The panels of b (depth_step x col_block) of a task stay in the L2 cache, the current rows of a in the L1
// cache.
constexpr int64_t kDepthStep = 512;
constexpr int64_t kTaskCols = 256;
constexpr int64_t kTaskRows = 1024;
constexpr int64_t kRowStep = 96;  // rows converted to fp32 at a time
// Panels of both operands of a weight gradient are packed for every block.
constexpr int64_t kGradDepth = 256;  // even, for bf16 dot products
constexpr int64_t kGradRows = 384;
constexpr int64_t kGradCols = 512;
// Tokens whose pairs are summed together. With fewer, packing an expert's weight does not pay off.
constexpr int64_t kLeastChunk = 256, kMostChunk = 4096;

int64_t divide_up(int64_t n, int64_t d) {
  return (n + d - 1) / d;
}
// Splits n into parts of about equal size, at most `most`, each a multiple of `unit`; returns the size.
int64_t even_part(int64_t n, int64_t most, int64_t unit) {
  const int64_t parts = divide_up(std::max<int64_t>(n, 1), std::max(most, unit));
  return align_up(divide_up(std::max<int64_t>(n, 1), parts), unit);
}

bool is_weight_grad(Role role) {
  return role == Role::kInGradWeight || role == Role::kOutGradWeight;
}
// Whether c has one row per token, the sum over the token's pairs.
bool sums_slots(Role role) {
  return role == Role::kOut || role == Role::kInGradInput;
}
// Columns of c, and the length of a sum (not for weight gradients).
int64_t columns_of(const ExpertsSpec& s) {
  return s.role == Role::kIn || s.role == Role::kOut ? s.outputs : s.inputs;
}
int64_t depth_of(const ExpertsSpec& s) {
  return s.role == Role::kIn || s.role == Role::kOut ? s.inputs : s.outputs;
}

void check(const ExpertsSpec& s) {
  require_activation_dtype(s.dtype, "experts");
  STRATA_CHECK(s.tokens >= 0 && s.k >= 1 && s.experts >= 1 && s.outputs >= 0 && s.inputs >= 0,
               "[experts] sizes tokens={} k={} experts={} outputs={} inputs={} are not valid for a GEMM",
               s.tokens, s.k, s.experts, s.outputs, s.inputs);
  STRATA_CHECK(s.all_slots() <= std::numeric_limits<int32_t>::max() - s.experts,
               "[experts] {} tokens have {} token-expert pairs: more than 32 bits can index", s.tokens,
               s.all_slots());
  STRATA_CHECK(!s.accumulate || is_weight_grad(s.role), "[experts] only weight gradients accumulate");
}

// How many tokens are sorted and summed together: few enough to occupy all threads. No sum depends on it.
int64_t chunk_of(const ExpertsPlan& plan) {
  const int64_t tokens = std::max<int64_t>(1, plan.spec.tokens);
  if (!sums_slots(plan.spec.role)) return tokens;
  const int64_t across = divide_up(std::max<int64_t>(1, columns_of(plan.spec)), plan.col_block);
  const int64_t wanted = tokens * across / plan.workers;
  return std::min(tokens, std::clamp(wanted, kLeastChunk, kMostChunk));
}

struct Run {
  const ExpertsPlan& plan;
  const ExpertsSpec& spec;
  const std::byte* a;
  const std::byte* b;
  std::byte* c;
  detail::ExpertOrder order;
  int32_t* tasks;  // [experts + 1]: first block of rows of each expert
  std::byte* workers;

  float* a_of(int64_t worker) const { return reinterpret_cast<float*>(workers + worker * plan.worker_bytes); }
  float* b_of(int64_t worker) const {
    return reinterpret_cast<float*>(workers + worker * plan.worker_bytes + plan.b_at);
  }
  float* sums_of(int64_t worker) const {
    return reinterpret_cast<float*>(workers + worker * plan.worker_bytes + plan.sums_at);
  }
  // The same memory, for panels of bf16 dot products.
  BF16* a_pairs_of(int64_t worker) const { return reinterpret_cast<BF16*>(a_of(worker)); }
  BF16* b_pairs_of(int64_t worker) const { return reinterpret_cast<BF16*>(b_of(worker)); }
  const int32_t* begins(int64_t chunk) const { return order.begins + chunk * (spec.experts + 1); }
};

// Some or all rows of one expert times columns [col, col + cols) of its weight, written to `to`.
struct Rows {
  int64_t expert, col, cols;
  const int32_t* of_a;  // rows of a
  const int32_t* of_c;  // rows of `to`; null: consecutive
  int64_t count;
  float* to;
  int64_t stride;
  bool accumulate;
  // The weight that is probably multiplied next, prefetched in the meantime: reading it from main memory
  // takes longer than packing it.
  int64_t next_expert = -1, next_col = 0;  // -1: nothing
};

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
  const int64_t row_step = half ? kRowStep : std::max<int64_t>(1, rows.count);
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

// Rows of c of pairs without an expert and of pairs without a token.
void clear_dropped(const Run& run, const int32_t* ids) {
  const int64_t used = run.order.first_slot(run.spec.tokens),
                row = columns_of(run.spec) * size_of(run.spec.dtype);
  std::fill_n(run.c + used * row, (run.spec.all_slots() - used) * row, std::byte{0});
  if (run.begins(0)[run.spec.experts] == used) return;
  for (int64_t slot = 0; slot < used; ++slot)
    if (ids[slot] < 0) std::memset(run.c + slot * row, 0, static_cast<size_t>(row));
}

// c has one row per pair: a task is some rows of one expert and some columns.
void run_to_slots(const Run& run) {
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
    Rows rows{.expert = expert,
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
    if (spec.dtype == DType::kF32) return multiply_rows(run, rows, worker);
    rows.of_c = nullptr;
    rows.to = run.sums_of(worker);
    rows.stride = run.plan.col_block;
    multiply_rows(run, rows, worker);
    detail::scatter_rows(spec.dtype, run.c + col * size_of(spec.dtype), columns, run.order.slots + at,
                         rows.to, rows.stride, rows.count, rows.cols);
  });
}

// c has one row per token: a task is a chunk of tokens and some columns, through all experts.
void run_to_tokens(const Run& run) {
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
      multiply_rows(run,
                    {.expert = e,
                     .col = col,
                     .cols = cols,
                     .of_a = run.order.slots + at,
                     .of_c = run.order.token_of + at,
                     .count = count,
                     .to = sums,
                     .stride = stride,
                     .accumulate = true,
                     .next_expert = next < spec.experts ? next : -1,
                     .next_col = col},
                    worker);
    }
    if (half)
      detail::scatter_rows(spec.dtype, run.c + (first * columns + col) * size_of(spec.dtype), columns,
                           nullptr, sums, stride, tokens, cols);
  });
}

// A task is a block of one expert's gradient.
void run_weight_grad(const Run& run) {
  const ExpertsSpec& spec = run.spec;
  const ExpertsPlan& plan = run.plan;
  const int64_t down = divide_up(spec.outputs, plan.row_block),
                across = divide_up(spec.inputs, plan.col_block);
  const int32_t* const begins = run.begins(0);
  const bool dy_by_slot = spec.role == Role::kInGradWeight;
  const int32_t* const dy_rows = dy_by_slot ? run.order.slots : run.order.token_of;
  const int32_t* const x_rows = dy_by_slot ? run.order.token_of : run.order.slots;
  const OperandView dy{.data = run.a, .dtype = spec.dtype, .stride = spec.outputs, .depth_major = true};
  const OperandView x{.data = run.b, .dtype = spec.dtype, .stride = spec.inputs, .depth_major = true};
  for_each_task(spec.experts * down * across, plan.workers, [&](int64_t task, int64_t worker) {
    const int64_t expert = task / (down * across);
    const int64_t row = task / across % down * plan.row_block, col = task % across * plan.col_block;
    const int64_t rows = std::min(plan.row_block, spec.outputs - row),
                  cols = std::min(plan.col_block, spec.inputs - col);
    float* const to = reinterpret_cast<float*>(run.c) + (expert * spec.outputs + row) * spec.inputs + col;
    if (begins[expert] == begins[expert + 1]) {
      if (spec.accumulate) return;
      for (int64_t i = 0; i < rows; ++i) std::fill_n(to + i * spec.inputs, cols, 0.0f);
      return;
    }
    bool accumulate = spec.accumulate;
    for (int64_t at = begins[expert]; at < begins[expert + 1]; at += plan.depth_step) {
      const int64_t depth = std::min(plan.depth_step, begins[expert + 1] - at);
      const auto [mr, nr] = plan.shape;
      const BlockOutput out{
          .data = to, .stride = spec.inputs, .accumulate = accumulate, .continues = accumulate};
      if (plan.pairs) {
        detail::pack_pairs_listed(run.a_pairs_of(worker), mr, dy, dy_rows + at, row, rows, depth);
        detail::pack_pairs_listed(run.b_pairs_of(worker), nr, x, x_rows + at, col, cols, depth);
        detail::multiply_pairs(out, run.a_pairs_of(worker), detail::panel_values(depth, mr),
                               run.b_pairs_of(worker), detail::panel_values(depth, nr), rows, cols, depth);
      } else {
        detail::pack_panels_listed(run.a_of(worker), mr, dy, dy_rows + at, row, rows, depth);
        detail::pack_panels_listed(run.b_of(worker), nr, x, x_rows + at, col, cols, depth);
        detail::multiply_block(out, run.a_of(worker), depth * mr, run.b_of(worker), depth * nr, rows, cols,
                               depth);
      }
      accumulate = true;
    }
  });
}

}  // namespace

ExpertsPlan plan_experts(const ExpertsSpec& spec, const hardware::DeviceSpec& device) {
  check(spec);
  ExpertsPlan plan;
  plan.spec = spec;
  // Passes of ranks that share experts (with offsets) split the token-expert pairs of a weight gradient
  // anywhere, even between the two rows of a bf16 dot product, and must not change a bit.
  plan.pairs = spec.dtype == DType::kBF16 && detail::multiplies_pairs_fast(device.isa) &&
               (is_weight_grad(spec.role) ? !spec.has_offsets() : depth_of(spec) % 2 == 0);
  plan.shape = plan.pairs ? detail::kPairPanels : detail::panel_shape_of(device.isa);
  plan.workers = std::max(1, device.threads);
  const int64_t mr = plan.shape.mr, nr = plan.shape.nr;
  // Smaller blocks if there are few experts per thread; no sum depends on them.
  const int64_t parts = divide_up(2 * plan.workers, spec.experts);
  int64_t a_elements = 0, sums = 0;  // in fp32-sized elements, like everything that follows
  const int64_t in_word = plan.pairs ? 2 : 1;
  if (is_weight_grad(spec.role)) {
    plan.depth_step = kGradDepth;
    plan.row_block = even_part(spec.outputs, kGradRows / parts, mr);
    plan.col_block = even_part(spec.inputs, kGradCols, nr);
    a_elements = plan.row_block * plan.depth_step / in_word;
  } else {
    const bool half = spec.dtype != DType::kF32;
    plan.depth_step = even_part(depth_of(spec), kDepthStep, 8);
    plan.col_block = even_part(columns_of(spec), sums_slots(spec.role) ? kTaskCols : kTaskCols / parts, nr);
    plan.row_block = sums_slots(spec.role) ? chunk_of(plan) : kTaskRows;
    if (half && !plan.pairs) a_elements = kRowStep * plan.depth_step;
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
  return plan;
}

void run_experts(const ExpertsPlan& plan, const void* a, const int32_t* ids, const int32_t* offsets,
                 const void* b, void* c, void* scratch) {
  const ExpertsSpec& spec = plan.spec;
  const detail::PanelShape own = plan.pairs ? detail::kPairPanels : detail::panel_shape();
  STRATA_CHECK(
      plan.shape.mr == own.mr && plan.shape.nr == own.nr,
      "[experts] the plan has panels of {} x {}: expected {} x {}, which this processor's kernels use",
      plan.shape.mr, plan.shape.nr, own.mr, own.nr);
  STRATA_CHECK((offsets != nullptr) == spec.has_offsets(),
               "[experts] offsets differ from the plan: expected them only if it was made with them");
  auto* const memory = static_cast<std::byte*>(scratch);
  const auto at = [&](int64_t offset) { return reinterpret_cast<int32_t*>(memory + offset); };
  const int64_t chunk = chunk_of(plan);
  const Run run{.plan = plan,
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
  detail::order_by_expert(run.order, ids);
  if (is_weight_grad(spec.role)) return run_weight_grad(run);
  if (sums_slots(spec.role)) return run_to_tokens(run);
  clear_dropped(run, ids);
  run_to_slots(run);
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
