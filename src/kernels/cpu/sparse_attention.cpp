#include "kernels/cpu/sparse_attention.h"

#include <limits>

#include "base/error.h"
#include "kernels/cpu/sparse_attention_tasks.h"
#include "kernels/cpu/worker_tasks.h"

namespace strata::cpu {
namespace {

// Rows of a task, of all heads of a group: enough to amortize packing tiles.
int64_t sparse_task_rows(const SparseAttentionShape& s) {
  constexpr int64_t kMostRows = 128;
  const int64_t rows = std::max<int64_t>(1, kMostRows / (s.heads / s.kv_heads));
  return std::clamp<int64_t>(s.q_len, 1, rows);
}

// The greatest scores of all tasks are at the begin of the scratch.
int64_t greatest_bytes(const SparseAttentionPlan& plan) {
  if (!plan.shape.finds_greatest) return 0;
  sparse::Carver carver(nullptr);
  carver.take<float>(sparse::forward_tasks(plan.shape, plan.rows) * plan.shape.heads);
  return carver.used();
}

}  // namespace

SparseAttentionPlan plan_sparse_attention(const SparseAttentionShape& shape,
                                          const hardware::DeviceSpec& device) {
  STRATA_CHECK(
      shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0 && shape.head_dim > 0 && shape.value_dim > 0 &&
          shape.count > 0,
      "[sparse attention] {} heads of {} and {} columns, {} of keys, lists of {}: expected whole groups and "
      "sizes above 0",
      shape.heads, shape.head_dim, shape.value_dim, shape.kv_heads, shape.count);
  SparseAttentionPlan plan{
      .shape = shape, .threads = std::max(1, device.threads), .rows = sparse_task_rows(shape)};
  sparse::Carver forward(nullptr), backward(nullptr);
  sparse::ForwardScratch(forward, shape, plan.rows);
  sparse::BackwardScratch(backward, shape);
  plan.forward_bytes = greatest_bytes(plan) + plan.threads * forward.used();
  plan.backward_bytes = plan.threads * backward.used();
  return plan;
}

void sparse_attention_forward(const SparseAttentionPlan& plan, void* out, float* lse, float* mass,
                              const SparseAttentionInputs& in, void* scratch,
                              const GreatestScores& greatest) {
  const SparseAttentionShape& s = plan.shape;
  STRATA_CHECK(
      (greatest.of_heads != nullptr) == s.finds_greatest,
      "[sparse attention] the greatest scores of a shape that finds {}: expected them to be given together",
      s.finds_greatest ? "them" : "none");
  const int64_t tasks = s.q_len == 0 ? 0 : sparse::forward_tasks(s, plan.rows);
  const sparse::Call call{.shape = s,
                          .in = in,
                          .rows = plan.rows,
                          .out = out,
                          .lse = lse,
                          .mass = mass,
                          .task_greatest = s.finds_greatest ? static_cast<float*>(scratch) : nullptr};
  const int64_t first = greatest_bytes(plan), bytes = (plan.forward_bytes - first) / plan.threads;
  for_each_task(tasks, plan.threads, [&](int64_t task, int64_t worker) {
    sparse::forward_task(call, task, static_cast<std::byte*>(scratch) + first + worker * bytes);
  });
  for (int64_t head = 0; s.finds_greatest && head < s.heads; ++head) {
    float most = greatest.accumulate ? greatest.of_heads[head] : -std::numeric_limits<float>::infinity();
    for (int64_t task = 0; task < tasks; ++task)
      most = std::max(most, call.task_greatest[task * s.heads + head]);
    greatest.of_heads[head] = most;
  }
}

void sparse_attention_backward(const SparseAttentionPlan& plan, const SparseAttentionGradients& to,
                               const void* dout, const void* out, const float* lse,
                               const SparseAttentionInputs& in, void* scratch) {
  STRATA_CHECK(in.kv_slot == nullptr, "[sparse attention] backward with a cache: expected no kv_slot");
  const sparse::Call call{
      .shape = plan.shape, .in = in, .to = to, .dout = dout, .given_out = out, .given_lse = lse};
  const int64_t bytes = plan.backward_bytes / plan.threads;
  for_each_task(plan.shape.sequences * plan.shape.kv_heads, plan.threads, [&](int64_t task, int64_t worker) {
    sparse::backward_task(call, task, static_cast<std::byte*>(scratch) + worker * bytes);
  });
}

}  // namespace strata::cpu
