// Attention relative to GEMM with the same element type and threads, measured in the same process. Counters:
// GFLOP/s (causal counts half), `of_peak`; for decoding GB/s, and `of_read`, the fraction of a plain read's
// bandwidth.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <vector>

#include "base/parallel.h"
#include "base/random.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/measure.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

struct Seconds {
  double wall = 1e9;
  double cpu = 1e9;
  void keep_less(Seconds other) {
    wall = std::min(wall, other.wall);
    cpu = std::min(cpu, other.cpu);
  }
};

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Seconds seconds_of(FunctionRef<void()> work) {
  const auto start = std::chrono::steady_clock::now();
  const double cpu = processor_seconds();
  work();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
          processor_seconds() - cpu};
}

// The fastest GEMM of the element type, best of four.
Seconds gemm_seconds(const PeakGemm& gemm) {
  Seconds best;
  for (int i = 0; i < 4; ++i) best.keep_less(seconds_of([&] { gemm.run(); }));
  return best;
}

// Reading `bytes` on all threads, best of eight.
Seconds read_seconds(int64_t bytes) {
  const Arena memory(bytes);
  const auto* words = reinterpret_cast<const uint64_t*>(memory.data());
  const int64_t n = bytes / 8;
  Seconds best;
  for (int i = 0; i < 8; ++i) {
    best.keep_less(seconds_of([&] {
      parallel_ranges(n, 1 << 16, [&](int64_t begin, int64_t end) {
        uint64_t sums[16] = {};
        for (int64_t j = begin; j + 16 <= end; j += 16) {
          for (int64_t l = 0; l < 16; ++l) sums[l] ^= words[j + l];
        }
        benchmark::DoNotOptimize(sums);
      });
    }));
  }
  return best;
}

struct Setting {
  AttentionShape shape;
  AttentionPlan plan;
  Arena fused, gradients, out, dout, scratch;
  std::vector<float> lse, bias, dbias;
  int64_t key_first, value_first;

  // q, k and v in one fused buffer; for decoding, the caches follow the queries.
  Setting(int64_t batch, int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim,
          DType dtype) {
    const int64_t query = heads * head_dim, key = kv_heads * head_dim;
    const int64_t stride = query + 2 * key;
    shape = {.batch = batch,
             .q_len = q_len,
             .kv_len = kv_len,
             .heads = heads,
             .kv_heads = kv_heads,
             .head_dim = head_dim,
             .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
             .dtype = dtype,
             .q_stride = stride,
             .k_stride = stride,
             .v_stride = stride,
             .out_stride = query,
             .kv_batch_stride = kv_len * stride};
    key_first = query;
    value_first = query + key;
    if (q_len != kv_len) {  // a cache holds only keys and values, in separate buffers
      shape.k_stride = shape.v_stride = key;
      shape.kv_batch_stride = kv_len * key;
      key_first = batch * q_len * stride;
      value_first = key_first + batch * kv_len * key;
    }
    plan = plan_attention(shape, describe_device(compute_threads()));
    const int64_t elements = q_len == kv_len ? batch * kv_len * stride : value_first + batch * kv_len * key;
    const int64_t size = size_of(dtype);
    fused = Arena(elements * size);
    gradients = Arena(elements * size);
    out = Arena(batch * q_len * query * size);
    dout = Arena(batch * q_len * query * size);
    scratch = Arena(std::max(plan.forward_scratch_bytes, plan.backward_scratch_bytes));
    lse.resize(static_cast<size_t>(batch * heads * q_len));
    fill(fused, elements, 1);
    fill(dout, batch * q_len * query, 2);
  }
  void fill(Arena& arena, int64_t n, uint32_t stream) const {
    std::vector<float> values(static_cast<size_t>(n));
    fill_normal(values.data(), n, 1.0f, RandomKey{1, stream});
    convert(arena.data(), shape.dtype, values.data(), DType::kF32, n);
  }
  std::byte* part(const Arena& arena, int64_t first) const {
    return arena.data() + first * size_of(shape.dtype);
  }
  void forward() { attention_forward(plan, out.data(), lse.data(), inputs(), scratch.data()); }
  void backward() {
    attention_backward(plan,
                       {.dq = gradients.data(),
                        .dk = part(gradients, key_first),
                        .dv = part(gradients, value_first),
                        .dbias = dbias.data()},
                       dout.data(), out.data(), lse.data(), inputs(), scratch.data());
  }
  AttentionInputs inputs() const {
    return {.q = fused.data(),
            .k = part(fused, key_first),
            .v = part(fused, value_first),
            .bias = bias.empty() ? nullptr : bias.data()};
  }
  void make_windowed(int64_t window) {
    shape.window = window;
    plan = plan_attention(shape, describe_device(compute_threads()));
    scratch = Arena(std::max(plan.forward_scratch_bytes, plan.backward_scratch_bytes));
  }
  // Every row attends to every key, with a bias by distance.
  void make_biased() {
    shape.causal = false;
    shape.bias_zero = shape.kv_len - 1;
    shape.bias_width = 2 * shape.kv_len - 1;
    bias.assign(static_cast<size_t>(shape.heads * shape.bias_width), 0.5f);
    dbias = bias;
    plan = plan_attention(shape, describe_device(compute_threads()));
    scratch = Arena(std::max(plan.forward_scratch_bytes, plan.backward_scratch_bytes));
  }
};

// Alternates with the peak, so that both see the same load of the machine; reports the best of each.
void run(benchmark::State& state, FunctionRef<void()> work, double flops) {
  const PeakGemm gemm = peak_gemm(state.range(5) != 0 ? DType::kBF16 : DType::kF32);
  Seconds best, peak;
  for (auto _ : state) {
    best.keep_less(seconds_of(work));
    state.PauseTiming();
    peak.keep_less(gemm_seconds(gemm));
    state.ResumeTiming();
  }
  state.counters["GFLOP/s"] = flops / best.wall * 1e-9;
  state.counters["peak"] = gemm.flops / peak.wall * 1e-9;
  state.counters["of_peak"] = flops / best.wall / (gemm.flops / peak.wall);
  state.counters["of_peak_cpu"] = flops / best.cpu / (gemm.flops / peak.cpu);
}

// Arguments: batch, tokens, heads, key–value heads, head_dim, bf16.
Setting setting_of(const benchmark::State& state) {
  return Setting(state.range(0), state.range(1), state.range(1), state.range(2), state.range(3),
                 state.range(4), state.range(5) != 0 ? DType::kBF16 : DType::kF32);
}
void forward(benchmark::State& state) {
  Setting setting = setting_of(state);
  run(
      state, [&] { setting.forward(); }, setting.plan.forward_flops);
}
void backward(benchmark::State& state) {
  Setting setting = setting_of(state);
  setting.forward();
  run(
      state, [&] { setting.backward(); }, setting.plan.backward_flops);
}
void biased_forward(benchmark::State& state) {
  Setting setting = setting_of(state);
  setting.make_biased();
  run(
      state, [&] { setting.forward(); }, setting.plan.forward_flops);
}
void biased_backward(benchmark::State& state) {
  Setting setting = setting_of(state);
  setting.make_biased();
  setting.forward();
  run(
      state, [&] { setting.backward(); }, setting.plan.backward_flops);
}
// As forward and backward with a window, the last argument: time should be proportional to the visible keys.
void window_forward(benchmark::State& state) {
  Setting setting = setting_of(state);
  setting.make_windowed(state.range(6));
  run(
      state, [&] { setting.forward(); }, setting.plan.forward_flops);
}
void window_backward(benchmark::State& state) {
  Setting setting = setting_of(state);
  setting.make_windowed(state.range(6));
  setting.forward();
  run(
      state, [&] { setting.backward(); }, setting.plan.backward_flops);
}
void windows(benchmark::internal::Benchmark* b) {
  for (const int64_t window : {0, 1024, 512, 256}) b->Args({1, 4096, 8, 4, 64, 0, window});
  b->Iterations(4)->UseRealTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK(window_forward)->Apply(windows);
BENCHMARK(window_backward)->Apply(windows);

void shapes(benchmark::internal::Benchmark* b) {
  b->Args({8, 512, 8, 4, 64, 0});
  b->Args({8, 512, 12, 12, 64, 0});
  b->Args({2, 2048, 8, 4, 64, 0});
  b->Args({2, 2048, 8, 4, 128, 0});
  b->Args({8, 512, 8, 4, 64, 1});
  b->Args({2, 2048, 8, 4, 64, 1});
  b->Args({2, 2048, 8, 4, 128, 1});
  b->Iterations(8)->UseRealTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK(forward)->Apply(shapes);
BENCHMARK(backward)->Apply(shapes);
BENCHMARK(biased_forward)->Apply(shapes);
BENCHMARK(biased_backward)->Apply(shapes);

// Arguments: batch, keys, heads, key–value heads, head_dim, bf16.
void decode(benchmark::State& state) {
  Setting setting(state.range(0), 1, state.range(1), state.range(2), state.range(3), state.range(4),
                  state.range(5) != 0 ? DType::kBF16 : DType::kF32);
  const double bytes = setting.plan.forward_bytes;
  Seconds best;
  for (auto _ : state) best.keep_less(seconds_of([&] { setting.forward(); }));
  const Seconds read = read_seconds(static_cast<int64_t>(bytes));
  state.counters["GB/s"] = bytes / best.wall * 1e-9;
  state.counters["read"] = bytes / read.wall * 1e-9;
  state.counters["of_read"] = read.wall / best.wall;
  state.counters["of_read_cpu"] = read.cpu / best.cpu;
}
BENCHMARK(decode)
    ->Args({8, 8192, 8, 4, 64, 0})
    ->Args({1, 65536, 32, 8, 128, 0})
    ->Args({1, 65536, 32, 8, 128, 1})
    ->Iterations(8)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace strata::cpu
