#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/function_ref.h"
#include "base/parallel.h"
#include "kernels/cpu/attention_pairs.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/worker_tasks.h"

namespace strata::cpu {
namespace {

using namespace attention;

void check(const AttentionShape& s) {
  if (s.batch < 0 || s.q_len < 0 || s.kv_len < 0 || s.heads < 1 || s.kv_heads < 1 ||
      s.heads % s.kv_heads != 0) {
    throw ConfigError(
        "[attention] batch {}, q_len {}, kv_len {}, heads {}, kv_heads {}: expected sizes of at least 0 and "
        "heads a multiple of kv_heads",
        s.batch, s.q_len, s.kv_len, s.heads, s.kv_heads);
  }
  for (const int64_t size : {s.head_dim, s.value_dim}) {
    if (size < 1 || size > kMostAttentionDim)
      throw ConfigError("[attention] heads of {} elements: expected 1 to {}", size, kMostAttentionDim);
  }
  if (s.dtype != DType::kF32 && s.dtype != DType::kBF16 && s.dtype != DType::kF16) {
    throw ConfigError("[attention] dtype is {}: expected f32, bf16 or f16", name_of(s.dtype));
  }
  if (s.window < 0 || (s.window > 0 && !s.causal)) {
    throw ConfigError(
        "[attention] window is {}, causal {}: expected at least 0, and causal attention for a window",
        s.window, s.causal);
  }
  if (s.q_pieces < 1 || s.kv_pieces < 1 || s.q_len % s.q_pieces != 0 || s.kv_len % s.kv_pieces != 0) {
    throw ConfigError("[attention] {} queries in {} chunks, {} keys in {}: expected chunks of equal size",
                      s.q_len, s.q_pieces, s.kv_len, s.kv_pieces);
  }
  if (s.bias_width > 0 && s.kv_pieces > 1)
    throw ConfigError("[attention] bias with keys in {} chunks: expected one chunk or no bias", s.kv_pieces);
  if (s.bias_width > 0) {
    const int64_t back = (s.window > 0 ? std::min(s.window, s.kv_len) : s.kv_len) - 1;
    const int64_t ahead = s.causal ? 0 : std::max(s.q_len, s.kv_len) - 1;
    if (s.softcap > 0 || s.bias_zero < back || s.bias_zero + ahead >= s.bias_width) {
      throw ConfigError(
          "[attention] bias of {} entries, distance 0 at entry {}, softcap {}: expected entries for the "
          "distances {} to {} and no softcap",
          s.bias_width, s.bias_zero, s.softcap, -back, ahead);
    }
  }
  const int64_t in_memory = s.one_kv_head ? 1 : s.kv_heads;
  const int64_t q = s.heads * s.head_dim, out = s.heads * s.value_dim;
  const int64_t k = in_memory * s.head_dim, v = in_memory * s.value_dim;
  if (s.q_stride < q || s.out_stride < out || s.k_stride < k || s.v_stride < v) {
    throw ConfigError("[attention] strides are q {}, k {}, v {}, out {}: expected at least {}, {}, {} and {}",
                      s.q_stride, s.k_stride, s.v_stride, s.out_stride, q, k, v, out);
  }
}

// Number of query–key pairs of one head; a causal triangle counts half.
double pairs_of(const AttentionShape& s) {
  const auto q = static_cast<double>(s.q_len), kv = static_cast<double>(s.kv_len);
  if (!s.causal) return q * kv;
  // With chunks, the average over rows from both ends of a sequence.
  const double pairs = s.q_pieces > 1 ? q * kv / 2 : q <= kv ? q * (kv - q) + q * q / 2 : kv * kv / 2;
  return s.window > 0 ? std::min(pairs, q * static_cast<double>(s.window)) : pairs;
}

// Rows of a chunk: over all heads of a group, enough to amortize packing keys and values, but few enough for
// the cache and for a task per thread.
int64_t query_chunk_of(const AttentionShape& s) {
  const int64_t group = s.heads / s.kv_heads;
  int64_t chunk =
      std::clamp<int64_t>(384 / group / kRows * kRows, kRows, align_up(std::max<int64_t>(s.q_len, 1), kRows));
  while (chunk > kRows && s.batch * s.kv_heads * ceil_div(s.q_len, chunk) < 64) chunk -= kRows;
  return chunk;
}

int64_t row_values(const AttentionShape& s) {
  return s.batch * s.heads * s.q_len;
}

bool packs_bf16(const AttentionPlan& plan) {
  return plan.products != AttentionProducts::kF32;
}
template <typename T>
int64_t forward_task_bytes_of(const AttentionPlan& plan) {
  Carver carver(nullptr);
  ForwardScratch<T>(carver, plan.shape, plan.query_chunk);
  return carver.used();
}
int64_t forward_task_bytes(const AttentionPlan& plan) {
  return packs_bf16(plan) ? forward_task_bytes_of<BF16>(plan) : forward_task_bytes_of<float>(plan);
}
template <typename T>
int64_t backward_task_bytes_of(const AttentionPlan& plan) {
  Carver carver(nullptr);
  BackwardScratch<T>(carver, plan.shape);
  return carver.used();
}
int64_t backward_task_bytes(const AttentionPlan& plan) {
  return packs_bf16(plan) ? backward_task_bytes_of<BF16>(plan) : backward_task_bytes_of<float>(plan);
}
int64_t chunk_greatest_bytes(const AttentionPlan& plan) {
  Carver carver(nullptr);
  ChunkGreatest(carver, plan.shape, plan.query_chunk);
  return carver.used();
}
int64_t decode_bytes(const AttentionShape& s) {
  Carver carver(nullptr);
  DecodeScratch(carver, s, 1);
  return carver.used();
}

void check(const AttentionShape& s, const AttentionInputs& in) {
  STRATA_CHECK((in.bias != nullptr) == (s.bias_width > 0),
               "[attention] shape has a bias of {} entries and the call {}", s.bias_width,
               in.bias != nullptr ? "has one: expected none" : "has none: expected one");
  STRATA_CHECK(in.kv_end == nullptr || !s.causal,
               "[attention] kv_end is set for causal rows: expected null, they end at their own position");
  STRATA_CHECK(
      (in.q_start != nullptr || s.q_pieces == 1) && (in.kv_start != nullptr || s.kv_pieces == 1),
      "[attention] {} chunks of queries, {} of keys: expected q_start and kv_start for more than one",
      s.q_pieces, s.kv_pieces);
}

// Calls task(i, memory) for every i, with `bytes` of scratch for each working thread. Results must not depend
// on which thread that is.
void for_each_task(const AttentionPlan& plan, int64_t tasks, std::byte* scratch, int64_t bytes,
                   FunctionRef<void(int64_t, void*)> task) {
  cpu::for_each_task(tasks, plan.threads,
                     [&](int64_t i, int64_t worker) { task(i, scratch + worker * bytes); });
}

// The greatest scores of heads, of those of the tasks.
void take_greatest(const AttentionShape& s, const ChunkGreatest& found, const GreatestScores& to) {
  for (int64_t head = 0; head < s.heads; ++head) {
    float most = to.accumulate ? to.of_heads[head] : -std::numeric_limits<float>::infinity();
    for (int64_t b = 0; b < s.batch; ++b) {
      const float* const of_chunks = found.values + (b * s.heads + head) * found.chunks;
      for (int64_t chunk = 0; chunk < found.chunks; ++chunk) most = std::max(most, of_chunks[chunk]);
    }
    to.of_heads[head] = most;
  }
}

AttentionProducts products_of(DType dtype, const hardware::IsaFlags& isa) {
  if (dtype != DType::kBF16) return AttentionProducts::kF32;
  if (isa.amx) return AttentionProducts::kTiles;
  return detail::multiplies_pairs_fast(isa) ? AttentionProducts::kPairs : AttentionProducts::kF32;
}

}  // namespace

AttentionPlan plan_attention(const AttentionShape& shape, const hardware::DeviceSpec& device) {
  AttentionShape s = shape;
  if (s.value_dim == 0) s.value_dim = s.head_dim;
  check(s);
  AttentionPlan plan;
  plan.shape = s;
  plan.threads = std::max(1, device.threads);
  plan.products = products_of(s.dtype, device.isa);
  plan.query_chunk = query_chunk_of(s);
  plan.decode = !s.finds_greatest && s.q_len > 0 && s.q_len * (s.heads / s.kv_heads) <= kMostDecodeRows &&
                s.kv_len >= 4 * s.q_len;
  plan.forward_scratch_bytes =
      plan.decode ? decode_bytes(s) : chunk_greatest_bytes(plan) + plan.threads * forward_task_bytes(plan);
  Carver rows(nullptr);
  BackwardRows(rows, s);
  plan.backward_scratch_bytes = rows.used() + plan.threads * backward_task_bytes(plan);

  const double pairs = static_cast<double>(s.batch * s.heads) * pairs_of(s);
  const auto head_dim = static_cast<double>(s.head_dim), value_dim = static_cast<double>(s.value_dim);
  plan.forward_flops = 2 * pairs * (head_dim + value_dim);
  plan.backward_flops = 2 * pairs * (3 * head_dim + 2 * value_dim);
  const auto query_rows = static_cast<double>(s.batch * s.heads * s.q_len);
  const auto key_rows = static_cast<double>(s.batch * (s.one_kv_head ? 1 : s.kv_heads) * s.kv_len);
  const double size = static_cast<double>(size_of(s.dtype));
  const double once = size * (query_rows + key_rows) * (head_dim + value_dim);
  plan.forward_bytes = once + 4 * query_rows;
  plan.backward_bytes = 2 * once + 4 * query_rows;
  return plan;
}

void attention_forward(const AttentionPlan& plan, void* out, float* lse, const AttentionInputs& in,
                       void* scratch, const GreatestScores& greatest) {
  const AttentionShape& s = plan.shape;
  check(s, in);
  STRATA_CHECK((greatest.of_heads != nullptr) == s.finds_greatest,
               "[attention] the greatest scores of a shape that finds {}: expected them to be given together",
               s.finds_greatest ? "them" : "none");
  Carver of_call(scratch);
  const ChunkGreatest found(of_call, s, plan.query_chunk);
  if (row_values(s) == 0) {
    if (s.finds_greatest) take_greatest(s, found, greatest);
    return;
  }
  const Call call{.plan = plan,
                  .shape = s,
                  .in = in,
                  .group = s.heads / s.kv_heads,
                  .out = out,
                  .lse = lse,
                  .chunk_greatest = found.values,
                  .pairs = plan.products == AttentionProducts::kPairs ? &pair_products() : nullptr,
                  .tiles = plan.products == AttentionProducts::kTiles ? &tile_products() : nullptr};
  if (plan.decode) {
    Carver carver(scratch);
    // If there are enough sequences for all threads, a task reads the cache of all heads together.
    const bool together = !s.one_kv_head && s.batch >= 2 * plan.threads;
    const DecodeScratch parts(carver, s, together ? s.kv_heads : 1);
    for_each_task(plan, s.batch * (s.kv_heads / parts.heads) * parts.splits, nullptr, 0,
                  [&](int64_t task, void*) { decode_split(call, task, parts); });
    for_each_task(plan, s.batch * s.kv_heads, nullptr, 0,
                  [&](int64_t task, void*) { decode_combine(call, task, parts); });
    return;
  }
  for_each_task(plan, forward_tasks(call), static_cast<std::byte*>(scratch) + of_call.used(),
                forward_task_bytes(plan),
                [&](int64_t task, void* memory) { forward_task(call, task, memory); });
  if (s.finds_greatest) take_greatest(s, found, greatest);
}

void attention_backward(const AttentionPlan& plan, const AttentionGradients& to, const void* dout,
                        const void* out, const float* lse, const AttentionInputs& in, void* scratch) {
  const AttentionShape& s = plan.shape;
  check(s, in);
  STRATA_CHECK(in.kv_slot == nullptr && !s.one_kv_head,
               "[attention] backward with a cache: expected neither kv_slot nor one_kv_head");
  Carver carver(scratch);
  const BackwardRows shared(carver, s);
  std::byte* memory = static_cast<std::byte*>(scratch) + carver.used();
  const Call call{.plan = plan,
                  .shape = s,
                  .in = in,
                  .group = s.heads / s.kv_heads,
                  .to = to,
                  .dout = dout,
                  .row_lse = shared.row_lse,
                  .delta = shared.delta,
                  .pairs = plan.products == AttentionProducts::kPairs ? &pair_products() : nullptr,
                  .tiles = plan.products == AttentionProducts::kTiles ? &tile_products() : nullptr,
                  .bias_sums = shared.bias_sums};
  const int64_t bytes = backward_task_bytes(plan);
  for_each_task(plan, row_values(s) == 0 ? 0 : s.batch * s.heads, nullptr, 0, [&](int64_t task, void*) {
    backward_rows(call, out, lse, task, shared.row_lse, shared.delta);
  });

  const auto run = [&](int64_t tasks, void (*work)(const Call&, int64_t, void*)) {
    for_each_task(plan, tasks, memory, bytes, [&](int64_t task, void* part) { work(call, task, part); });
  };
  // Splitting into two parts computes the scores twice, 7 matmuls instead of 5. This pays off if whole heads
  // would leave more than two sevenths of the threads idle; the bits are the same. The gradient of a bias
  // sums over keys and rows together, so it needs whole heads.
  const int64_t whole = s.batch * s.kv_heads;
  const int64_t threads = std::min<int64_t>(plan.threads, compute_threads());
  if (s.bias_width > 0 || 7 * whole >= 5 * ceil_div(whole, threads) * threads) {
    run(whole, backward_head);
  } else {
    run(whole * ceil_div(s.kv_len, kKeys), backward_keys);
    run(s.batch * s.heads * ceil_div(s.q_len, kRows), backward_queries);
  }
  for_each_task(plan, s.bias_width > 0 ? s.heads : 0, nullptr, 0, [&](int64_t head, void*) {
    float* sums = to.dbias + head * s.bias_width;
    std::fill_n(sums, s.bias_width, 0.0f);
    for (int64_t b = 0; b < s.batch; ++b) {
      const float* part = shared.bias_sums + (b * s.heads + head) * s.bias_width;
      for (int64_t i = 0; i < s.bias_width; ++i) sums[i] += part[i];
    }
  });
}

}  // namespace strata::cpu
