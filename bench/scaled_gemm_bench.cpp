// Matmuls of quantised operands, each interleaved with the plain GEMM of the same sizes: bf16 where the processor
// multiplies bf16, else fp32. Dense: 2048 x 2048 x 2048, forward, fp32 results. Experts: blocks of e4m3, 2048 tokens with
// two of eight experts of 1024 x 1024, in three roles. "of_plain" is the ratio of the median times.
// On one thread (OMP_NUM_THREADS=1) times are processor time, which other load disturbs less.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "used_seconds.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/parallel.h"
#include "kernels/cpu/measure.h"
#include "kernels/cpu/scaled_experts.h"
#include "kernels/cpu/scaled_gemm.h"
#include "quantize/quantizer.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

using quantize::Format;
using quantize::PowerOfTwo;
using quantize::ScaleRule;

constexpr int64_t kSize = 2048, kElements = kSize * kSize;

struct Pair {
  const char* name;
  ScaledOperand a, b;
  PartialSums sums = PartialSums::kF32;
};
const std::vector<Pair>& pairs() {
  static const std::vector<Pair> kPairs{
      {"1x128 by 128x128", {ScaleRule::block_row(Format::kE4M3)}, {ScaleRule::block_square(Format::kE4M3)}},
      {"1x128 by 128x128 depth first",
       {ScaleRule::block_row(Format::kE4M3)},
       {ScaleRule::block_square(Format::kE4M3), true}},
      {"1x128 by 1x128", {ScaleRule::block_row(Format::kE4M3)}, {ScaleRule::block_row(Format::kE4M3)}},
      {"tensor", {ScaleRule::tensor(Format::kE4M3)}, {ScaleRule::tensor(Format::kE4M3)}},
      {"mxfp8", {ScaleRule::mx(Format::kE4M3)}, {ScaleRule::mx(Format::kE4M3)}},
      {"nvfp4", {ScaleRule::nvfp4_row()}, {ScaleRule::nvfp4_square()}},
      {"Hopper",
       {ScaleRule::block_row(Format::kE4M3)},
       {ScaleRule::block_square(Format::kE4M3)},
       PartialSums::kHopper}};
  return kPairs;
}

std::vector<float> values(int64_t factor) {
  std::vector<float> all(kElements);
  for (int64_t i = 0; i < kElements; ++i)
    all[static_cast<size_t>(i)] = static_cast<float>(i * factor % 10007 - 5003) * 0x1p-12f;
  return all;
}

// A quantised matrix in its own memory.
struct Codes {
  std::vector<uint8_t> codes, scales;
  float greatest = 5003 * 0x1p-12f;
  Codes(const ScaleRule& rule, const std::vector<float>& from, int64_t rows = kSize,
        int64_t columns = kSize) {
    const auto layout = layout_of(rule, rows, columns);
    codes.resize(static_cast<size_t>(layout.code_bytes()));
    scales.resize(static_cast<size_t>(layout.scale_bytes()));
    quantize::quantize({.data = from.data(), .rows = rows, .columns = columns, .stride = columns},
                       quantize::Request{{rule}, {codes.data(), scales.data()}, &greatest}, std::nullopt);
  }
  ScaledMatrix matrix() const { return {codes.data(), scales.data(), &greatest}; }
};

struct Plain {
  Gemm gemm;
  std::vector<BF16> halves;
  Arena packed, scratch;
  const void* b;
  Plain(const GemmPlan& plan, const std::vector<float>& x, const std::vector<float>& w,
        const hardware::DeviceSpec& device)
      : gemm(plan), packed(64), scratch(plan.scratch_bytes + 64), b(w.data()) {
    for (const float value : x) halves.emplace_back(value);
    const WeightEncoding encoding =
        plan_weight_encoding(GemmRole::kForward, kSize, kSize, plan.spec.dtype, device);
    if (encoding.plain) return;
    packed = Arena(encoding.bytes);
    WeightPacker(encoding).pack(packed.data(), w.data());
    b = packed.data();
  }
};

// Times both in turn.
template <typename Scaled, typename OfPlain>
void compare(benchmark::State& state, double flops, const Scaled& scaled, const OfPlain& plain) {
  scaled();
  plain();
  std::vector<double> times, plain_times;
  for (auto _ : state) {
    times.push_back(seconds_of(scaled));
    state.SetIterationTime(times.back());
    plain_times.push_back(seconds_of(plain));
  }
  state.counters["GFLOP/s"] = flops / median_of(times) * 1e-9;
  state.counters["plain_GFLOP/s"] = flops / median_of(plain_times) * 1e-9;
  state.counters["of_plain"] = median_of(times) / median_of(plain_times);
}

void scaled_gemm(benchmark::State& state) {
  const Pair& pair = pairs()[static_cast<size_t>(state.range(0))];
  const hardware::DeviceSpec device = describe_device(compute_threads());
  const std::vector<float> x = values(7919), w = values(6007);
  const Codes a(pair.a.rule, x), b(pair.b.rule, w);
  const ScaledGemmPlan plan = plan_scaled_gemm(
      {.rows = kSize, .cols = kSize, .depth = kSize, .a = pair.a, .b = pair.b, .sums = pair.sums}, device);
  Arena scratch(plan.scratch_bytes), c(kElements * 4);
  const bool bf16 = plan.panels.pairs || device.isa.amx;
  Plain plain(plan_gemm({.role = GemmRole::kForward,
                         .m = kSize,
                         .n = kSize,
                         .k = kSize,
                         .dtype = bf16 ? DType::kBF16 : DType::kF32},
                        device),
              x, w, device);
  const auto multiply = [&] {
    run_scaled_gemm(plan, a.matrix(), b.matrix(), nullptr, c.data(), scratch.data());
  };
  const void* const from = bf16 ? static_cast<const void*>(plain.halves.data()) : x.data();
  const auto multiply_plain = [&] {
    plain.gemm.run({.a = from, .b = plain.b, .c = c.data(), .scratch = plain.scratch.data()});
  };
  compare(state, plan.cost.flops, multiply, multiply_plain);
  state.SetLabel(std::string(pair.name) + " against " + plain.gemm.engine());
}
BENCHMARK(scaled_gemm)
    ->DenseRange(0, static_cast<int64_t>(pairs().size()) - 1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

void scaled_experts(benchmark::State& state) {
  static constexpr ExpertsRole kRoles[] = {ExpertsRole::kIn, ExpertsRole::kInGradInput,
                                           ExpertsRole::kInGradWeight};
  static constexpr const char* kNames[] = {"in", "in, input gradient", "in, weight gradient"};
  constexpr int64_t kTokens = 2048, kPairsOfToken = 2, kExperts = 8, kExtent = 1024;
  static_assert(kTokens * kPairsOfToken * kExtent <= kElements &&
                kExperts * kExtent * kExtent == 2 * kElements);
  const ExpertsRole role = kRoles[state.range(0)];
  const bool grads_weight = role == ExpertsRole::kInGradWeight, forward = role == ExpertsRole::kIn;
  const hardware::DeviceSpec device = describe_device(compute_threads());
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < kTokens * kPairsOfToken; ++i)
    ids.push_back(static_cast<int32_t>((i / 2 * 5 + i % 2 * 3 + i / 64) % kExperts));
  const ScaleRule rows = ScaleRule::block_row(Format::kE4M3),
                  squares = ScaleRule::block_square(Format::kE4M3);
  const ExpertsSpec spec{.role = role,
                         .tokens = kTokens,
                         .k = kPairsOfToken,
                         .experts = kExperts,
                         .outputs = kExtent,
                         .inputs = kExtent,
                         .dtype = device.isa.avx512_bf16 ? DType::kBF16 : DType::kF32};
  ScaledExpertsSpec scaled{.experts = spec, .a = rows, .b = grads_weight ? rows : squares};
  if (grads_weight) scaled.a_along_pairs = scaled.b_along_pairs = rows;
  const ScaledExpertsPlan plan = plan_scaled_experts(scaled, device);
  const ExpertsPlan plain = plan_experts(spec, device);
  const int64_t a_rows = forward ? kTokens : kTokens * kPairsOfToken;
  const int64_t b_rows = grads_weight ? kTokens : kExperts * kExtent;
  std::vector<float> x = values(7919), w = values(6007);
  w.insert(w.end(), x.begin(), x.end());
  const Codes a(scaled.a, x, a_rows, kExtent), b(scaled.b, w, b_rows, kExtent);
  std::vector<BF16> x_halves, w_halves;
  for (const float value : x) x_halves.emplace_back(value);
  for (const float value : w) w_halves.emplace_back(value);
  const bool half = spec.dtype == DType::kBF16;
  const void* const a_plain = half ? static_cast<const void*>(x_halves.data()) : x.data();
  const void* const b_plain = half && grads_weight ? static_cast<const void*>(w_halves.data()) : w.data();
  Arena scratch(plan.scratch_bytes), plain_scratch(plain.scratch_bytes), c(8 * kElements);
  compare(
      state, 2.0 * kTokens * kPairsOfToken * kExtent * kExtent,
      [&] {
        run_scaled_experts(plan, a.matrix(), ids.data(), nullptr, b.matrix(), c.data(), scratch.data());
      },
      [&] { run_experts(plain, a_plain, ids.data(), nullptr, b_plain, c.data(), plain_scratch.data()); });
  state.SetLabel(kNames[state.range(0)]);
}
BENCHMARK(scaled_experts)->DenseRange(0, 2)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace strata::cpu
