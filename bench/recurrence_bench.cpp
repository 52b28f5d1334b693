// Recurrences relative to GEMM with packed weights of the same element type and threads, measured in turn in
// the same process. Counters: GFLOP/s by the operations of the chunked form (backward 2.4 times those of
// forward) and `of_peak`.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/median.h"
#include "base/parallel.h"
#include "base/random.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/measure.h"
#include "kernels/cpu/recurrence.h"
#include "tensor/arena.h"
#include "used_seconds.h"

namespace strata::cpu {
namespace {

enum Rule : int64_t { kHead, kChannel, kSpace };  // gated delta net, Kimi delta attention, Mamba-2

struct Operands {
  RecurrencePlan plan;
  Arena mixed, dmixed, out, dout, scratch;
  std::vector<float> g, beta, dg, dbeta;
  double flops = 0;  // forward

  Operands(int64_t rule, int64_t rows, int64_t heads, int64_t size, bool bf16) {
    const int64_t width = heads * size, keys = rule == kSpace ? size : width;
    RecurrenceShape s{.ranges = 1,
                      .rows = rows,
                      .key_heads = keys / size,
                      .value_heads = heads,
                      .key_dim = size,
                      .value_dim = size,
                      .width = width + 2 * keys,
                      .q_first = rule == kSpace ? width + keys : 0,
                      .k_first = rule == kSpace ? width : keys,
                      .v_first = rule == kSpace ? 0 : 2 * keys,
                      .delta = rule != kSpace,
                      .by_channel = rule == kChannel,
                      .l2_norm = rule != kSpace,
                      .scale = 1 / std::sqrt(static_cast<float>(size)),
                      .dtype = bf16 ? DType::kBF16 : DType::kF32};
    plan = plan_recurrence(s, describe_device(compute_threads()));
    const int64_t bytes = size_of(s.dtype);
    mixed = Arena(rows * s.width * bytes);
    dmixed = Arena(rows * s.width * bytes);
    out = Arena(rows * width * bytes);
    dout = Arena(rows * width * bytes);
    scratch = Arena(std::max(plan.forward_bytes, plan.backward_bytes));
    fill(mixed, rows * s.width, 1);
    fill(dout, rows * width, 2);
    for (int64_t i = 0; i < rows * heads * (s.by_channel ? size : 1); ++i)
      g.push_back(-0.001f * static_cast<float>(i * 7919 % 100));
    beta.assign(static_cast<size_t>(rows * heads), 0.5f);
    dg = g;
    dbeta = beta;
    const auto k = static_cast<double>(size), c = static_cast<double>(s.chunk);
    const double token = s.delta ? 6 * k * k + 4 * c * k + 2 * c * k + 2 * c * k : 4 * k * k + 2 * c * k;
    flops = static_cast<double>(rows) * (static_cast<double>(heads) * token +
                                         (s.delta ? 0 : static_cast<double>(s.key_heads) * 2 * c * k));
  }
  void fill(const Arena& arena, int64_t n, uint32_t stream) const {
    std::vector<float> values(static_cast<size_t>(n));
    fill_normal(values.data(), n, 1.0f, RandomKey{1, stream});
    convert(arena.data(), plan.shape.dtype, values.data(), DType::kF32, n);
  }
  RecurrenceInputs inputs() const { return {.mixed = mixed.data(), .g = g.data(), .beta = beta.data()}; }
  void forward() const { recurrence_forward(plan, out.data(), inputs(), scratch.data()); }
  void backward() {
    recurrence_backward(plan, {.dmixed = dmixed.data(), .dg = dg.data(), .dbeta = dbeta.data()}, dout.data(),
                        nullptr, inputs(), scratch.data());
  }
};

// In turn with the peak, so that both see the same load of the machine: medians of the rounds' figures.
void run(benchmark::State& state, bool bf16, FunctionRef<void()> work, double flops) {
  const PeakGemm gemm = peak_gemm(bf16 ? DType::kBF16 : DType::kF32);
  std::vector<double> rates, shares;
  for (auto _ : state) {
    const double seconds = seconds_of(work);
    state.PauseTiming();
    const double peak = gemm.flops / seconds_of([&] { gemm.run(); });
    rates.push_back(flops / seconds * 1e-9);
    shares.push_back(flops / seconds / peak);
    state.ResumeTiming();
  }
  state.counters["GFLOP/s"] = median_of(rates);
  state.counters["of_peak"] = median_of(shares);
}

// Arguments: rule, rows, heads, size of keys and values, bf16.
Operands operands_of(const benchmark::State& state) {
  return Operands(state.range(0), state.range(1), state.range(2), state.range(3), state.range(4) != 0);
}
void forward(benchmark::State& state) {
  const Operands operands = operands_of(state);
  run(
      state, state.range(4) != 0, [&] { operands.forward(); }, operands.flops);
}
void backward(benchmark::State& state) {
  Operands operands = operands_of(state);
  run(
      state, state.range(4) != 0, [&] { operands.backward(); }, 2.4 * operands.flops);
}
void shapes(benchmark::internal::Benchmark* b) {
  for (const int64_t rule : {kHead, kChannel, kSpace}) {
    for (const int64_t size : {64, 128}) {
      for (const int64_t bf16 : {0, 1}) b->Args({rule, 2048, 8, size, bf16});
    }
  }
  b->Iterations(15)->UseRealTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK(forward)->Apply(shapes);
BENCHMARK(backward)->Apply(shapes);

// Forward and backward of causal attention with as many heads, by those of the recurrence: `times`.
void attention(benchmark::State& state) {
  Operands operands = operands_of(state);
  const int64_t rows = state.range(1), heads = state.range(2), size = state.range(3), width = heads * size;
  const AttentionPlan plan = plan_attention({.q_len = rows,
                                             .kv_len = rows,
                                             .heads = heads,
                                             .kv_heads = heads,
                                             .head_dim = size,
                                             .scale = 1 / std::sqrt(static_cast<float>(size)),
                                             .dtype = operands.plan.shape.dtype,
                                             .q_stride = 3 * width,
                                             .k_stride = 3 * width,
                                             .v_stride = 3 * width,
                                             .out_stride = width},
                                            describe_device(compute_threads()));
  const Arena scratch(std::max(plan.forward_scratch_bytes, plan.backward_scratch_bytes));
  std::vector<float> lse(static_cast<size_t>(heads * rows));
  const int64_t part = width * size_of(operands.plan.shape.dtype);
  const AttentionInputs in{
      .q = operands.mixed.data(), .k = operands.mixed.data() + part, .v = operands.mixed.data() + 2 * part};
  std::vector<double> times;
  for (auto _ : state) {
    const double own = seconds_of([&] {
      operands.forward();
      operands.backward();
    });
    times.push_back(seconds_of([&] {
                      attention_forward(plan, operands.out.data(), lse.data(), in, scratch.data());
                      attention_backward(plan,
                                         {.dq = operands.dmixed.data(),
                                          .dk = operands.dmixed.data() + part,
                                          .dv = operands.dmixed.data() + 2 * part},
                                         operands.dout.data(), operands.out.data(), lse.data(), in,
                                         scratch.data());
                    }) /
                    own);
  }
  state.counters["times"] = median_of(times);
}
BENCHMARK(attention)
    ->Args({kHead, 8192, 4, 128, 0})
    ->Args({kHead, 8192, 4, 128, 1})
    ->Iterations(3)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace strata::cpu
