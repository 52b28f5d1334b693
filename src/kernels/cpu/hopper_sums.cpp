#include "kernels/cpu/hopper_sums.h"

#include <algorithm>
#include <bit>

namespace strata::cpu::detail {
namespace {

constexpr int64_t kAtOnce = 32;   // depths of one instruction
constexpr int kSignificant = 14;  // bits that alignment keeps
constexpr int64_t kLanes = kHopperPanels.nr;
constexpr uint32_t kInfinity = 0x7f800000u;

uint32_t magnitude(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffffu;
}

// One instruction on a row of a, its depths kHopperPanels.mr apart, and a panel of b.
void add_products(float* sums, const float* a, const float* b, int64_t depth) {
  alignas(64) float products[kAtOnce][kLanes];
  alignas(64) uint32_t most[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) most[i] = magnitude(sums[i]);
  for (int64_t d = 0; d < depth; ++d) {
    const float of_row = a[d * kHopperPanels.mr];
    for (int64_t i = 0; i < kLanes; ++i) {
      products[d][i] = of_row * b[d * kLanes + i];
      most[i] = std::max(most[i], magnitude(products[d][i]));
    }
  }
  bool finite = true;
  alignas(64) float to_quanta[kLanes], quantum[kLanes];  // powers of two
  for (int64_t i = 0; i < kLanes; ++i) {
    // The last of the bits that are kept; the bounds keep both powers normal numbers.
    const uint32_t exponent = std::clamp<uint32_t>(most[i] >> 23, kSignificant, 254) - (kSignificant - 1);
    quantum[i] = std::bit_cast<float>(exponent << 23);
    to_quanta[i] = std::bit_cast<float>((254 - exponent) << 23);
    finite = finite && most[i] < kInfinity;
  }
  if (!finite) {
    for (int64_t d = 0; d < depth; ++d) {
      for (int64_t i = 0; i < kLanes; ++i) {
        if (most[i] >= kInfinity) sums[i] += products[d][i];
      }
    }
  }
  alignas(64) int32_t quanta[kLanes];
  const auto cut = [&](float value, int64_t i) {
    return most[i] < kInfinity ? static_cast<int32_t>(value * to_quanta[i]) : 0;
  };
  for (int64_t i = 0; i < kLanes; ++i) quanta[i] = cut(sums[i], i);
  for (int64_t d = 0; d < depth; ++d) {
    for (int64_t i = 0; i < kLanes; ++i) quanta[i] += cut(products[d][i], i);
  }
  for (int64_t i = 0; i < kLanes; ++i) {
    if (most[i] < kInfinity) sums[i] = static_cast<float>(quanta[i]) * quantum[i];
  }
}

}  // namespace

void multiply_hopper(const BlockOutput& out, const SumScales& scales, const float* a, int64_t a_panel_stride,
                     const float* b, int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth,
                     const float*) {
  constexpr int64_t mr = kHopperPanels.mr;
  for (int64_t j = 0; j < cols; j += kLanes) {
    const float* const of_cols = b + j / kLanes * b_panel_stride;
    for (int64_t row = 0; row < rows; ++row) {
      const float* const of_row = a + row / mr * a_panel_stride + row % mr;
      alignas(64) float sums[kLanes] = {};
      for (int64_t deep = 0; deep < depth; deep += kAtOnce)
        add_products(sums, of_row + deep * mr, of_cols + deep * kLanes, std::min(kAtOnce, depth - deep));
      float* const to = out.data + row * out.stride + j;
      for (int64_t i = 0; i < std::min(kLanes, cols - j); ++i) {
        const float before = out.accumulate ? to[i] : out.bias != nullptr ? out.bias[j + i] : 0.0f;
        to[i] = before + sums[i] * (scales.rows[row] * scales.cols[j + i]);
      }
    }
  }
}

}  // namespace strata::cpu::detail
