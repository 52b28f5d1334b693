#include "kernels/cpu/recurrence.h"

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/recurrence_tasks.h"
#include "kernels/cpu/worker_tasks.h"

namespace strata::cpu {
namespace {

using recurrence::Call;
using recurrence::Carver;
using recurrence::Sizes;

template <typename Scratch, typename... More>
int64_t bytes_of(const RecurrenceShape& shape, const Sizes& sizes, More... more) {
  Carver carver(nullptr);
  Scratch(carver, shape, sizes, more...);
  return carver.used();
}

// dq and dk of the shares of a group, if several tasks have one.
int64_t shares_bytes(const RecurrenceShape& s) {
  const int64_t shares = recurrence::tasks_of_group(s);
  const int64_t floats = shares > 1 ? shares * s.ranges * s.rows * s.key_heads * 2 * s.key_dim : 0;
  return align_up(floats * int64_t{sizeof(float)}, kBufferAlignment);
}

// Calls task(i, memory) for all i, with `bytes` of scratch for each working thread.
void run(const RecurrencePlan& plan, int64_t tasks, void* scratch, int64_t bytes,
         FunctionRef<void(int64_t, void*)> task) {
  for_each_task(tasks, plan.threads, [&](int64_t i, int64_t worker) {
    task(i, static_cast<std::byte*>(scratch) + worker * bytes);
  });
}

}  // namespace

RecurrencePlan plan_recurrence(const RecurrenceShape& wanted, const hardware::DeviceSpec& device) {
  RecurrenceShape shape = wanted;
  shape.pairs = shape.dtype == DType::kBF16 && detail::multiplies_pairs_fast(device.isa);
  STRATA_CHECK(
      shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0 && shape.chunk > 0 &&
          shape.key_dim > 0 && shape.key_dim <= recurrence::kMostKeys && shape.value_dim > 0 &&
          (!shape.by_channel || (shape.delta && shape.key_heads == shape.value_heads)),
      "[recurrence] {} value heads of {} columns, {} key heads of {}, chunks of {}: expected whole groups, "
      "keys of at most {} columns",
      shape.value_heads, shape.value_dim, shape.key_heads, shape.key_dim, shape.chunk, recurrence::kMostKeys);
  RecurrencePlan plan{.shape = shape, .threads = std::max(1, device.threads)};
  const Sizes sizes(shape), of_map(shape, shape.delta ? recurrence::padded_columns<float>(shape.key_dim) : 0);
  plan.forward_bytes = plan.threads * bytes_of<recurrence::ForwardScratch>(shape, sizes);
  plan.map_bytes = plan.threads * bytes_of<recurrence::ForwardScratch>(shape, of_map);
  plan.backward_bytes =
      shares_bytes(shape) + plan.threads * bytes_of<recurrence::BackwardScratch>(shape, sizes, false);
  plan.state_grad_bytes = plan.threads * bytes_of<recurrence::BackwardScratch>(shape, sizes, true);
  return plan;
}

void recurrence_forward(const RecurrencePlan& plan, void* out, const RecurrenceInputs& in, void* scratch) {
  if (plan.shape.rows == 0) return;
  const Call call{.shape = plan.shape, .in = in, .out = out};
  run(plan, call.tasks(), scratch, plan.forward_bytes / plan.threads,
      [&](int64_t task, void* memory) { recurrence::forward_task(call, task, memory); });
}

void recurrence_cached(const RecurrencePlan& plan, void* out, const CachedStates& cache,
                       const RecurrenceInputs& in, void* scratch) {
  const Call call{.shape = plan.shape, .in = in, .out = out, .cache = &cache};
  if (plan.shape.rows == 1) {
    run(plan, plan.shape.ranges * plan.shape.value_heads, nullptr, 0,
        [&](int64_t task, void*) { recurrence::cached_row(call, task); });
    return;
  }
  run(plan, plan.shape.rows > 0 ? call.tasks() : 0, scratch, plan.forward_bytes / plan.threads,
      [&](int64_t task, void* memory) { recurrence::forward_task(call, task, memory); });
}

void recurrence_backward(const RecurrencePlan& plan, const RecurrenceGradients& to, const void* dout,
                         const float* dlast, const RecurrenceInputs& in, void* scratch) {
  const RecurrenceShape& s = plan.shape;
  if (s.rows == 0) return;
  const int64_t shares = shares_bytes(s);
  const Call call{.shape = s,
                  .in = in,
                  .to = to,
                  .dout = dout,
                  .dlast = dlast,
                  .shares = shares > 0 ? static_cast<float*>(scratch) : nullptr};
  run(plan, call.tasks(), static_cast<std::byte*>(scratch) + shares,
      (plan.backward_bytes - shares) / plan.threads,
      [&](int64_t task, void* memory) { recurrence::backward_task(call, task, memory); });
  if (shares == 0) return;
  constexpr int64_t kRows = 32;
  parallel_ranges(s.ranges * s.rows, kRows,
                  [&](int64_t begin, int64_t end) { recurrence::finish_keys(call, begin, end - begin); });
}

void recurrence_map(const RecurrencePlan& plan, float* map, const RecurrenceInputs& in, void* scratch) {
  const Call call{.shape = plan.shape, .in = in, .map = map};
  run(plan, plan.shape.ranges * plan.shape.value_heads, scratch, plan.map_bytes / plan.threads,
      [&](int64_t task, void* memory) { recurrence::map_task(call, task, memory); });
}

void recurrence_state_gradient(const RecurrencePlan& plan, float* dbefore, const void* dout,
                               const RecurrenceInputs& in, void* scratch) {
  const Call call{.shape = plan.shape, .in = in, .dout = dout, .dbefore = dbefore};
  run(plan, call.tasks(), scratch, plan.state_grad_bytes / plan.threads,
      [&](int64_t task, void* memory) { recurrence::state_gradient_task(call, task, memory); });
}

namespace {

template <typename T>
void skip_gradient(const RecurrenceShape& s, int64_t head, float* to, const void* dout, const void* mixed,
                   bool accumulate) {
  double sum = 0;
  for (int64_t row = 0; row < s.ranges * s.rows; ++row) {
    const T* const d = static_cast<const T*>(dout) + (row * s.value_heads + head) * s.value_dim;
    const T* const v = static_cast<const T*>(mixed) + row * s.width + s.v_first + head * s.value_dim;
    float own = 0;
    for (int64_t c = 0; c < s.value_dim; ++c) own += static_cast<float>(d[c]) * static_cast<float>(v[c]);
    sum += static_cast<double>(own);
  }
  to[head] = static_cast<float>(sum) + (accumulate ? to[head] : 0.0f);
}

// Calls step(sequence, head) for all compositions.
void for_compositions(const RecurrenceMaps& shape, FunctionRef<void(int64_t, int64_t)> step) {
  parallel_for(shape.sequences * shape.heads,
               [&](int64_t task) { step(task / shape.heads, task % shape.heads); });
}

}  // namespace

void recurrence_skip_gradient(const RecurrenceShape& shape, float* dskip, const void* dout, const void* mixed,
                              bool accumulate) {
  const auto kernel = by_dtype(shape.dtype, skip_gradient<float>, skip_gradient<BF16>, skip_gradient<F16>);
  parallel_for(shape.value_heads, [&](int64_t head) { kernel(shape, head, dskip, dout, mixed, accumulate); });
}

void compose_maps(const RecurrenceMaps& shape, float* states, const float* map) {
  const int64_t m = shape.delta ? shape.key_dim * shape.key_dim : 1, n = shape.key_dim * shape.value_dim;
  for_compositions(shape, [&](int64_t sequence, int64_t head) {
    const int64_t first = sequence * shape.ranges;
    const auto state = [&](int64_t p) { return states + ((first + p) * shape.heads + head) * n; };
    std::fill_n(state(0), n, 0.0f);
    for (int64_t p = 0; p + 1 < shape.ranges; ++p) {
      const float* const own = map + ((first + p) * shape.heads + head) * (m + n);
      recurrence::compose_step(shape, state(p + 1), own, false, state(p), own + m);
    }
  });
}

void compose_state_gradients(const RecurrenceMaps& shape, float* dlast, const float* map,
                             const float* dbefore) {
  const int64_t m = shape.delta ? shape.key_dim * shape.key_dim : 1, n = shape.key_dim * shape.value_dim;
  for_compositions(shape, [&](int64_t sequence, int64_t head) {
    const auto at = [&](int64_t p) { return (sequence * shape.ranges + p) * shape.heads + head; };
    std::fill_n(dlast + at(shape.ranges - 1) * n, n, 0.0f);
    for (int64_t p = shape.ranges - 1; p > 0; --p)
      recurrence::compose_step(shape, dlast + at(p - 1) * n, map + at(p) * (m + n), true, dlast + at(p) * n,
                               dbefore + at(p) * n);
  });
}

}  // namespace strata::cpu
