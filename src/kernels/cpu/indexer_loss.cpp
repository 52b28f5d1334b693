#include "kernels/cpu/indexer_loss.h"

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/indexer_loss_tasks.h"
#include "kernels/cpu/worker_tasks.h"

namespace strata::cpu {
namespace {

using indexer::Carver;
using indexer::LossCall;

int64_t loss_task_bytes(const IndexerLossShape& shape, bool backward) {
  Carver carver(nullptr);
  if (shape.all_keys()) {
    indexer::AllKeysScratch(carver, shape, backward);
  } else {
    indexer::ChosenScratch(carver, shape.rows, backward);
  }
  return carver.used();
}

int64_t sums_bytes(const IndexerLossShape& shape) {
  const int64_t tasks = shape.rows.sequences * indexer::ceil_div(shape.rows.q_len, indexer::kLossRows);
  return align_up(tasks * int64_t{sizeof(double)}, kBufferAlignment);
}
int64_t key_gradients_bytes(const LossCall& call) {
  return align_up(call.shape.rows.sequences * call.parts * call.keys_of_part() * int64_t{sizeof(float)},
                  kBufferAlignment);
}

}  // namespace

IndexerLossPlan plan_indexer_loss(const IndexerLossShape& shape, const hardware::DeviceSpec& device) {
  STRATA_CHECK(
      shape.rows.heads > 0 && shape.rows.size > 0 &&
          (shape.all_keys() ? shape.main_kv_heads > 0 && shape.main_heads % shape.main_kv_heads == 0
                            : shape.rows.count > 0),
      "[indexer loss] {} heads of {} columns, {} keys, {} main heads of {}: expected sizes above 0 and whole "
      "groups",
      shape.rows.heads, shape.rows.size, shape.rows.count, shape.main_heads, shape.main_kv_heads);
  IndexerLossPlan plan{.shape = shape, .threads = std::max(1, device.threads)};
  const IndexerLossInputs none;
  const LossCall call{.shape = plan.shape, .in = none, .parts = indexer::parts_of_sequence(shape.rows)};
  plan.forward_bytes = sums_bytes(shape) + plan.threads * loss_task_bytes(shape, false);
  plan.backward_bytes = key_gradients_bytes(call) + plan.threads * loss_task_bytes(shape, true);
  return plan;
}

void indexer_loss_forward(const IndexerLossPlan& plan, double* sum, const IndexerLossInputs& in,
                          bool accumulate, void* scratch) {
  auto* const sums = static_cast<double*>(scratch);
  const LossCall call{.shape = plan.shape, .in = in, .sums = sums};
  auto* const memory = static_cast<std::byte*>(scratch) + sums_bytes(plan.shape);
  const int64_t tasks = plan.shape.rows.sequences * call.blocks(), bytes = loss_task_bytes(plan.shape, false);
  for_each_task(tasks, plan.threads, [&](int64_t task, int64_t worker) {
    indexer::loss_task(call, task, memory + worker * bytes);
  });
  double all = 0;
  for (int64_t task = 0; task < tasks; ++task) all += sums[task];
  *sum = (accumulate ? *sum : 0.0) + plan.shape.coefficient * all;
}

void indexer_loss_backward(const IndexerLossPlan& plan, const IndexerLossGradients& to, float seed,
                           const IndexerLossInputs& in, void* scratch) {
  const IndexerShape& s = plan.shape.rows;
  const LossCall call{.shape = plan.shape,
                      .in = in,
                      .to = to,
                      .seed = seed,
                      .dkeys = static_cast<float*>(scratch),
                      .parts = indexer::parts_of_sequence(s)};
  auto* const memory = static_cast<std::byte*>(scratch) + key_gradients_bytes(call);
  const int64_t bytes = loss_task_bytes(plan.shape, true);
  for_each_task(s.sequences * call.parts, plan.threads, [&](int64_t task, int64_t worker) {
    indexer::loss_gradient_task(call, task, memory + worker * bytes);
  });
  constexpr int64_t kSummedKeys = 64;
  const int64_t chunks = indexer::ceil_div(s.kv_len, kSummedKeys);
  parallel_for(s.sequences * chunks, [&](int64_t i) {
    const int64_t first = i % chunks * kSummedKeys;
    indexer::sum_key_gradients(call, i / chunks, first, std::min(kSummedKeys, s.kv_len - first));
  });
}

}  // namespace strata::cpu
