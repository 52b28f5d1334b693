// GB/s of the memory-bound kernels, each interleaved with a triad (a = b + s c), on arrays larger than the
// last-level cache. Bytes are those that the kernel must move; neither side includes the reads of lines that
// are only written. "of_triad" is the ratio of the best times. On one thread (OMP_NUM_THREADS=1) times are
// processor time, which other load disturbs less.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/adafactor.h"
#include "kernels/cpu/adamw8bit.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/rope.h"

namespace strata::cpu {
namespace {

constexpr int64_t kRows = 16384, kDim = 1024, kElements = kRows * kDim;

struct Buffers {
  std::vector<float> a, b, c, d, rstd, mean, weight, scratch;
  std::vector<int32_t> ids;
  std::vector<double> partials;
  Buffers()
      : a(kElements, 0.5f),
        b(kElements, 0.25f),
        c(kElements, 0.125f),
        d(kElements, 0.75f),
        rstd(kRows, 1),
        mean(kRows, 0),
        weight(kDim, 1),
        scratch(2 * 256 * kDim),
        ids(kRows),
        partials(norm_partials(kElements)) {
    for (int64_t i = 0; i < kRows; ++i) ids[static_cast<size_t>(i)] = static_cast<int32_t>(i * 7919 % 8192);
  }
};

Buffers& buffers() {
  static Buffers all;
  return all;
}

#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("O3")))
#endif
void triad_range(float* a, const float* b, const float* c, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) a[i] = b[i] + 3.0f * c[i];
}

double now() {
  if (compute_threads() > 1) return monotonic_seconds();
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

double triad_seconds() {
  Buffers& x = buffers();
  const double start = now();
  parallel_ranges(kElements, 16384, [&](int64_t begin, int64_t end) {
    triad_range(x.a.data(), x.b.data(), x.c.data(), begin, end);
  });
  return now() - start;
}

template <typename Kernel>
void measure(benchmark::State& state, double bytes, const Kernel& kernel) {
  kernel();
  triad_seconds();
  double best = 1e9, best_triad = 1e9;
  for (auto _ : state) {
    const double start = now();
    kernel();
    const double seconds = now() - start;
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
    best_triad = std::min(best_triad, triad_seconds());
  }
  const double rate = bytes / best, triad_rate = 12.0 * kElements / best_triad;
  state.counters["GB/s"] = rate * 1e-9;
  state.counters["triad_GB/s"] = triad_rate * 1e-9;
  state.counters["of_triad"] = rate / triad_rate;
}

DType dtype_of(const benchmark::State& state) {
  return state.range(0) == 0 ? DType::kF32 : DType::kBF16;
}
double element_bytes(const benchmark::State& state) {
  return static_cast<double>(size_of(dtype_of(state)) * kElements);
}

void rms_forward(benchmark::State& state) {
  Buffers& x = buffers();
  const NormShape shape{kRows, kDim, 1e-5f, dtype_of(state)};
  measure(state, 4 * element_bytes(state), [&] {
    rms_norm_forward(shape, x.a.data(), x.b.data(), x.rstd.data(), x.c.data(), x.d.data(), x.weight.data());
  });
}
void rms_backward_input(benchmark::State& state) {
  Buffers& x = buffers();
  const NormShape shape{kRows, kDim, 1e-5f, dtype_of(state)};
  measure(state, 4 * element_bytes(state), [&] {
    rms_norm_backward_input(shape, x.a.data(), x.b.data(), x.c.data(), x.rstd.data(), x.weight.data(),
                            x.d.data());
  });
}
void rms_backward_weight(benchmark::State& state) {
  Buffers& x = buffers();
  const NormShape shape{kRows, kDim, 1e-5f, dtype_of(state)};
  measure(state, 2 * element_bytes(state), [&] {
    rms_norm_backward_weight(shape, x.a.data(), x.b.data(), x.c.data(), x.rstd.data(), false,
                             x.scratch.data());
  });
}
void layer_forward(benchmark::State& state) {
  Buffers& x = buffers();
  const NormShape shape{kRows, kDim, 1e-5f, dtype_of(state)};
  measure(state, 4 * element_bytes(state), [&] {
    layer_norm_forward(shape, x.a.data(), x.b.data(), x.mean.data(), x.rstd.data(), x.c.data(), x.d.data(),
                       x.weight.data(), x.weight.data());
  });
}
void layer_backward_input(benchmark::State& state) {
  Buffers& x = buffers();
  const NormShape shape{kRows, kDim, 1e-5f, dtype_of(state)};
  measure(state, 4 * element_bytes(state), [&] {
    layer_norm_backward_input(shape, x.a.data(), x.b.data(), x.c.data(), x.mean.data(), x.rstd.data(),
                              x.weight.data(), x.d.data());
  });
}
void rope_in_place(benchmark::State& state) {
  Buffers& x = buffers();
  std::vector<float> table(static_cast<size_t>(8192 * 64));
  fill_rope_table(table.data(), 8192, std::vector<double>(32, 0.01));
  const RopeShape shape{kRows, kDim / 64, 64, 64, kDim, dtype_of(state)};
  measure(state, 2 * element_bytes(state),
          [&] { rope(shape, x.a.data(), x.a.data(), table.data(), x.ids.data(), false); });
}
void swiglu_fwd(benchmark::State& state) {
  Buffers& x = buffers();
  measure(state, 1.5 * element_bytes(state), [&] {
    gated_forward(ActivationKind::kSilu, kRows, kDim / 2, x.a.data(), x.b.data(), dtype_of(state));
  });
}
void swiglu_bwd(benchmark::State& state) {
  Buffers& x = buffers();
  measure(state, 2.5 * element_bytes(state), [&] {
    gated_backward(ActivationKind::kSilu, kRows, kDim / 2, x.a.data(), x.b.data(), x.c.data(),
                   dtype_of(state));
  });
}
void gelu_tanh_fwd(benchmark::State& state) {
  Buffers& x = buffers();
  measure(state, 2 * element_bytes(state), [&] {
    activation_forward(ActivationKind::kGeluTanh, kElements, x.a.data(), x.b.data(), dtype_of(state));
  });
}
void gelu_erf_fwd(benchmark::State& state) {
  Buffers& x = buffers();
  measure(state, 2 * element_bytes(state), [&] {
    activation_forward(ActivationKind::kGeluErf, kElements, x.a.data(), x.b.data(), dtype_of(state));
  });
}
void gelu_tanh_bwd(benchmark::State& state) {
  Buffers& x = buffers();
  measure(state, 3 * element_bytes(state), [&] {
    activation_backward(ActivationKind::kGeluTanh, kElements, x.a.data(), x.b.data(), x.c.data(),
                        dtype_of(state));
  });
}
void add_arrays(benchmark::State& state) {
  Buffers& x = buffers();
  measure(state, 3 * element_bytes(state),
          [&] { add(x.a.data(), x.b.data(), x.c.data(), kElements, dtype_of(state)); });
}
void cast_to_bf16(benchmark::State& state) {
  Buffers& x = buffers();
  measure(state, 6.0 * kElements,
          [&] { cast(x.a.data(), DType::kBF16, x.b.data(), DType::kF32, kElements); });
}
void column_sums_of(benchmark::State& state) {
  Buffers& x = buffers();
  measure(state, element_bytes(state), [&] {
    column_sums(kRows, kDim, kDim, x.a.data(), x.b.data(), dtype_of(state), false, x.scratch.data());
  });
}
void embedding_fwd(benchmark::State& state) {
  Buffers& x = buffers();
  const EmbeddingShape shape{kRows, kDim, 8192, 0, dtype_of(state)};
  measure(state, element_bytes(state) + 4.0 * kElements,
          [&] { embedding_forward(shape, x.a.data(), x.ids.data(), x.b.data(), nullptr, nullptr); });
}
// Bytes: reads dy, and reads and writes a row of the table for each row of dy.
void embedding_bwd(benchmark::State& state) {
  Buffers& x = buffers();
  const EmbeddingShape shape{kRows, kDim, 8192, 0, dtype_of(state)};
  measure(state, element_bytes(state) + 8.0 * kElements,
          [&] { embedding_backward(shape, x.a.data(), x.b.data(), x.ids.data(), true); });
}
AdamWArrays adamw_arrays() {
  Buffers& x = buffers();
  return {x.a.data(), x.b.data(), x.c.data(), x.d.data()};
}
const UpdateScalars& adamw_scalars() {
  static const UpdateScalars scalars{.lr = 1e-4f};
  return scalars;
}
void adamw(benchmark::State& state) {
  measure(state, 28.0 * kElements,
          [&] { adamw_update(kElements, adamw_arrays(), &adamw_scalars(), {.weight_decay = 0.1f}); });
}
// With the packed layouts for bf16 GEMMs, written in the same pass (fused 1) or in separate passes.
void adamw_encodings(benchmark::State& state) {
  hardware::DeviceSpec device;
  device.isa.avx512_bf16 = true;
  std::vector<WeightEncoding> copies;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> places;
  std::vector<WeightPacker> packers;
  for (const GemmRole role : {GemmRole::kForward, GemmRole::kInputGrad}) {
    copies.push_back(plan_weight_encoding(role, kRows, kDim, DType::kBF16, device));
    places.push_back(memory.emplace_back(static_cast<size_t>(copies.back().bytes)).data());
    packers.emplace_back(copies.back());
  }
  const bool fused = state.range(0) != 0;
  measure(state, 32.0 * kElements, [&] {
    if (fused) {
      adamw_update_encoded(kRows, kDim, adamw_arrays(), &adamw_scalars(), {.weight_decay = 0.1f}, copies,
                           places.data());
      return;
    }
    adamw_update(kElements, adamw_arrays(), &adamw_scalars(), {.weight_decay = 0.1f});
    for (size_t i = 0; i < packers.size(); ++i) packers[i].pack(places[i], adamw_arrays().master);
  });
}
void lion(benchmark::State& state) {
  Buffers& x = buffers();
  const UpdateScalars scalars{.lr = 1e-4f};
  measure(state, 20.0 * kElements, [&] {
    lion_update(kElements, x.a.data(), x.b.data(), x.d.data(), &scalars, {0.9, 0.99, 0.1f, 1});
  });
}
// Bytes: reads and writes the codes of two moments and the parameter, and reads the gradient.
void adamw8bit(benchmark::State& state) {
  Buffers& x = buffers();
  std::vector<uint8_t> codes(2 * kElements);
  std::vector<float> scales(static_cast<size_t>(2 * quantization_blocks(kElements)));
  const Moments8Bit moments{codes.data(), scales.data(), codes.data() + kElements,
                            scales.data() + quantization_blocks(kElements)};
  const UpdateScalars scalars{.lr = 1e-4f};
  measure(state, 16.0 * kElements, [&] {
    adamw8bit_update(kElements, x.a.data(), moments, x.d.data(), &scalars, {.weight_decay = 0.1f});
  });
}
// Bytes: reads the gradient three times and the parameter twice, and writes the parameter once.
void adafactor(benchmark::State& state) {
  Buffers& x = buffers();
  std::vector<float> row(kRows, 1.0f), column(kDim, 1.0f);
  std::vector<double> scratch(static_cast<size_t>(adafactor_scratch_bytes(kRows, kDim) / 8 + 1));
  const UpdateScalars scalars{.lr = 1e-4f};
  measure(state, 24.0 * kElements, [&] {
    adafactor_update(kRows, kDim, x.a.data(), row.data(), column.data(), x.d.data(), &scalars, {},
                     scratch.data());
  });
}
void squares(benchmark::State& state) {
  Buffers& x = buffers();
  measure(state, 4.0 * kElements, [&] { sum_of_squares_partials(x.a.data(), kElements, x.partials.data()); });
}

#define STRATA_BOTH_TYPES(name) BENCHMARK(name)->ArgName("bf16")->Arg(0)->Arg(1)->UseManualTime()
STRATA_BOTH_TYPES(rms_forward);
STRATA_BOTH_TYPES(rms_backward_input);
STRATA_BOTH_TYPES(rms_backward_weight);
STRATA_BOTH_TYPES(layer_forward);
STRATA_BOTH_TYPES(layer_backward_input);
STRATA_BOTH_TYPES(rope_in_place);
STRATA_BOTH_TYPES(swiglu_fwd);
STRATA_BOTH_TYPES(swiglu_bwd);
STRATA_BOTH_TYPES(gelu_tanh_fwd);
STRATA_BOTH_TYPES(gelu_tanh_bwd);
STRATA_BOTH_TYPES(gelu_erf_fwd);
STRATA_BOTH_TYPES(add_arrays);
STRATA_BOTH_TYPES(column_sums_of);
STRATA_BOTH_TYPES(embedding_fwd);
STRATA_BOTH_TYPES(embedding_bwd);
BENCHMARK(cast_to_bf16)->UseManualTime();
BENCHMARK(adamw)->UseManualTime();
BENCHMARK(adamw_encodings)->ArgName("fused")->Arg(0)->Arg(1)->UseManualTime();
BENCHMARK(lion)->UseManualTime();
BENCHMARK(adamw8bit)->UseManualTime();
BENCHMARK(adafactor)->UseManualTime();
BENCHMARK(squares)->UseManualTime();

}  // namespace
}  // namespace strata::cpu
