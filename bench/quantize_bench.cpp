// GB/s of quantizing a matrix, each interleaved with the triad (a = b + s c) on arrays larger than the last-level cache.
// Bytes are those that a kernel must move: the source once, codes and scales. "of_triad" is the ratio of the medians;
// "GB/s" and "triad_GB/s" are their rates. On one thread (OMP_NUM_THREADS=1) times are processor time, which other load
// disturbs less.
// GLIBC_TUNABLES=glibc.malloc.hugetlb=1 puts the arrays on huge pages, as arenas are.
#include <benchmark/benchmark.h>
#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <vector>

#include "used_seconds.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/parallel.h"
#include "kernels/cpu/triad.h"
#include "quantize/quantizer.h"

namespace strata::quantize {
namespace {

constexpr int64_t kRows = 8192, kColumns = 2048, kElements = kRows * kColumns;

struct Buffers {
  std::vector<float> a, b, c;
  std::vector<BF16> halves;
  std::vector<uint8_t> row_scales, column_scales;
  hwy::AlignedFreeUniquePtr<uint8_t[]> row_codes, column_codes;  // as in an arena
  Buffers()
      : a(kElements),
        b(kElements),
        c(kElements),
        halves(kElements),
        row_scales(kElements / 2),
        column_scales(kElements / 2),
        row_codes(hwy::AllocateAligned<uint8_t>(kElements)),
        column_codes(hwy::AllocateAligned<uint8_t>(kElements)) {
    std::fill_n(row_codes.get(), kElements, uint8_t{0});
    std::fill_n(column_codes.get(), kElements, uint8_t{0});
    for (int64_t i = 0; i < kElements; ++i) {
      const float value = static_cast<float>(i * 7919 % 10007 - 5003) * 0x1p-8f;
      b[static_cast<size_t>(i)] = value;
      c[static_cast<size_t>(i)] = 0.5f;
      halves[static_cast<size_t>(i)] = BF16(value);
    }
  }
};
Buffers& buffers() {
  static Buffers all;
  return all;
}

double triad_seconds() {
  Buffers& x = buffers();
  return seconds_of([&] {
    parallel_ranges(kElements, 1 << 16, [&](int64_t begin, int64_t end) {
      cpu::detail::triad(x.a.data() + begin, x.b.data() + begin, x.c.data() + begin, 3.0f, end - begin);
    });
  });
}

// The rules by the benchmark's first argument.
const Treatment& treatment_of(int64_t which) {
  static const Treatment kTreatments[] = {
      {ScaleRule::block_row(Format::kE4M3)},
      {ScaleRule::block_row(Format::kE4M3, PowerOfTwo::kYes)},
      {ScaleRule::block_square(Format::kE4M3)},
      {ScaleRule::tensor(Format::kE4M3)},
      {ScaleRule::mx(Format::kE4M3)},
      {ScaleRule::nvfp4_row()},
      {ScaleRule::nvfp4_row(), StochasticBits{{1, 2}, 3}, HadamardSigns{0x1234}}};
  return kTreatments[which];
}
constexpr const char* kNames[] = {"1x128", "1x128 powers of two",      "128x128", "tensor", "mxfp8",
                                  "nvfp4", "nvfp4 Hadamard stochastic"};

// Arguments: the rule, 1 for a source in bf16, and 1 for rows, 2 for columns, 3 for both.
void quantize_matrix(benchmark::State& state) {
  Buffers& x = buffers();
  const Treatment& treatment = treatment_of(state.range(0));
  const bool bf16 = state.range(1) != 0, rows = (state.range(2) & 1) != 0,
             columns = (state.range(2) & 2) != 0;
  const Source source{.data = bf16 ? static_cast<const void*>(x.halves.data()) : x.b.data(),
                      .dtype = bf16 ? DType::kBF16 : DType::kF32,
                      .rows = kRows,
                      .columns = kColumns,
                      .stride = kColumns};
  const float greatest = 5003 * 0x1p-8f;
  const Request along_rows{treatment, {x.row_codes.get(), x.row_scales.data()}, &greatest};
  const Request along_columns{treatment, {x.column_codes.get(), x.column_scales.data()}, &greatest};
  const auto work = [&] {
    quantize(source, rows ? std::optional(along_rows) : std::nullopt,
             columns ? std::optional(along_columns) : std::nullopt);
  };
  work();
  triad_seconds();
  std::vector<double> times, triad_times;
  for (auto _ : state) {
    times.push_back(seconds_of(work));
    state.SetIterationTime(times.back());
    triad_times.push_back(triad_seconds());
  }
  double bytes = static_cast<double>(kElements * size_of(source.dtype));
  for (const auto& [wanted, layout] : {std::pair{rows, layout_of(treatment.rule, kRows, kColumns)},
                                       std::pair{columns, layout_of(treatment.rule, kColumns, kRows)}}) {
    if (wanted) bytes += static_cast<double>(layout.code_bytes() + layout.scale_bytes());
  }
  const double rate = bytes / median_of(times), triad_rate = 12.0 * kElements / median_of(triad_times);
  state.SetLabel(kNames[state.range(0)]);
  state.counters["GB/s"] = rate * 1e-9;
  state.counters["triad_GB/s"] = triad_rate * 1e-9;
  state.counters["of_triad"] = rate / triad_rate;
}

BENCHMARK(quantize_matrix)
    ->ArgNames({"rule", "bf16", "along"})
    ->ArgsProduct({{0}, {0, 1}, {1, 2, 3}})
    ->ArgsProduct({{1, 2, 3, 4, 5, 6}, {0, 1}, {3}})
    ->UseManualTime();

}  // namespace
}  // namespace strata::quantize
