#include "kernels/cpu/sparse_attention.h"

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
  plan.forward_bytes = plan.threads * forward.used();
  plan.backward_bytes = plan.threads * backward.used();
  return plan;
}

void sparse_attention_forward(const SparseAttentionPlan& plan, void* out, float* lse, float* mass,
                              const SparseAttentionInputs& in, void* scratch) {
  if (plan.shape.q_len == 0) return;
  const sparse::Call call{
      .shape = plan.shape, .in = in, .rows = plan.rows, .out = out, .lse = lse, .mass = mass};
  const int64_t bytes = plan.forward_bytes / plan.threads;
  for_each_task(sparse::forward_tasks(call), plan.threads, [&](int64_t task, int64_t worker) {
    sparse::forward_task(call, task, static_cast<std::byte*>(scratch) + worker * bytes);
  });
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
