// The causal convolution with SiLU and four taps (T = 2,048 rows) against a memcpy of as many bytes as it reads
// and writes, interleaved in one run. Operands pass through a pool larger than the last-level cache, as
// activations of a model do, for both. "of_memcpy" is the ratio of the best times. On one thread
// (OMP_NUM_THREADS=1) times are processor time, which other load disturbs less.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "kernels/cpu/causal_convolution.h"

namespace strata::cpu {
namespace {

constexpr int64_t kRows = 2048, kTaps = 4, kPoolBytes = int64_t{512} << 20;

// Hands out arrays one after the other, and starts again at its end.
class Pool {
 public:
  Pool() : floats_(static_cast<size_t>(kPoolBytes) / sizeof(float), 0.25f) {}
  std::byte* take(int64_t bytes) {
    if (next_ + bytes > kPoolBytes) next_ = 0;
    std::byte* const at = reinterpret_cast<std::byte*>(floats_.data()) + next_;
    next_ += bytes;
    return at;
  }

 private:
  std::vector<float> floats_;
  int64_t next_ = 0;
};
Pool& pool() {
  static Pool one;
  return one;
}

double now() {
  if (compute_threads() > 1) return monotonic_seconds();
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

// A copy reads half of `bytes` and writes the other half.
double copy_seconds(int64_t bytes) {
  const std::byte* const from = pool().take(bytes / 2);
  std::byte* const to = pool().take(bytes / 2);
  const double start = now();
  parallel_ranges(bytes / 2, int64_t{1} << 18, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
  return now() - start;
}

// Takes the arguments {channels, whether activations are bf16}. `arrays` of them are read or written.
template <typename Kernel>
void measure(benchmark::State& state, int64_t arrays, const Kernel& kernel) {
  const int64_t channels = state.range(0);
  const ConvolutionShape shape{.rows = kRows,
                               .piece = kRows,
                               .channels = channels,
                               .taps = kTaps,
                               .silu = true,
                               .dtype = state.range(1) == 0 ? DType::kF32 : DType::kBF16};
  const int64_t bytes = kRows * channels * size_of(shape.dtype);
  std::vector<float> weight(static_cast<size_t>(channels * kTaps), 0.5f), dw(weight.size());
  std::vector<int32_t> positions(kRows);
  for (int64_t i = 0; i < kRows; ++i) positions[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  std::vector<std::byte> scratch(static_cast<size_t>(
      std::max(convolution_scratch_bytes(shape), convolution_weight_scratch_bytes(shape))));
  double best = 1e9, best_copy = 1e9;
  const auto run = [&] {
    const ConvolutionInputs in{pool().take(bytes), weight.data(), nullptr, positions.data(), nullptr};
    std::byte* const second = pool().take(bytes);
    std::byte* const third = arrays > 2 ? pool().take(bytes) : nullptr;
    const double start = now();
    kernel(shape, in, second, third, dw.data(), scratch.data());
    return now() - start;
  };
  run();
  copy_seconds(arrays * bytes);
  for (auto _ : state) {
    const double seconds = run();
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
    best_copy = std::min(best_copy, copy_seconds(arrays * bytes));
  }
  state.counters["GB/s"] = static_cast<double>(arrays * bytes) / best * 1e-9;
  state.counters["memcpy_GB/s"] = static_cast<double>(arrays * bytes) / best_copy * 1e-9;
  state.counters["of_memcpy"] = best_copy / best;
}

void forward(benchmark::State& state) {
  measure(state, 2,
          [](const ConvolutionShape& shape, const ConvolutionInputs& in, std::byte* y, std::byte*, float*,
             std::byte* scratch) { convolution_forward(shape, y, in, scratch); });
}
void backward_input(benchmark::State& state) {
  measure(state, 3,
          [](const ConvolutionShape& shape, const ConvolutionInputs& in, std::byte* dy, std::byte* dx, float*,
             std::byte* scratch) { convolution_backward_input(shape, dx, nullptr, dy, in, scratch); });
}
void backward_weight(benchmark::State& state) {
  measure(state, 2,
          [](const ConvolutionShape& shape, const ConvolutionInputs& in, std::byte* dy, std::byte*, float* dw,
             std::byte* scratch) {
            convolution_backward_weight(shape, dw, nullptr, dy, in, false, false, scratch);
          });
}
// Both gradients, as a training step needs them.
void backward(benchmark::State& state) {
  measure(state, 5,
          [](const ConvolutionShape& shape, const ConvolutionInputs& in, std::byte* dy, std::byte* dx,
             float* dw, std::byte* scratch) {
            convolution_backward_input(shape, dx, nullptr, dy, in, scratch);
            convolution_backward_weight(shape, dw, nullptr, dy, in, false, false, scratch);
          });
}

const std::vector<std::vector<int64_t>> kArguments{{2048, 8192}, {0, 1}};
BENCHMARK(forward)->ArgsProduct(kArguments)->UseManualTime()->Iterations(20);
BENCHMARK(backward_input)->ArgsProduct(kArguments)->UseManualTime()->Iterations(20);
BENCHMARK(backward_weight)->ArgsProduct(kArguments)->UseManualTime()->Iterations(20);
BENCHMARK(backward)->ArgsProduct(kArguments)->UseManualTime()->Iterations(20);

}  // namespace
}  // namespace strata::cpu
