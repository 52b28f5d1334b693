#include "kernels/cpu/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/statistics.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// The lower and the upper half of a vector, widened.
using Doubles = hn::Vec<hn::ScalableTag<double>>;
struct Halves {
  Doubles lower, upper;
};
HWY_INLINE Halves widened(Vector v) {
  const hn::ScalableTag<double> dd;
#if HWY_TARGET == HWY_SCALAR
  return {hn::PromoteTo(dd, v), hn::Zero(dd)};
#else
  const hn::Rebind<float, decltype(dd)> half;
  return {hn::PromoteTo(dd, hn::LowerHalf(half, v)), hn::PromoteTo(dd, hn::UpperHalf(half, v))};
#endif
}

// Lines [begin, end); of each the elements [from, from + n).
template <typename T>
void measure_range(const MeasuredLines& of, const void* x, int64_t begin, int64_t end, int64_t from,
                   int64_t n, StatisticsTable* out) {
  const hn::RebindToSigned<F32> di;
  const hn::ScalableTag<double> dd;
  const auto infinity = hn::Set(di, 0x7f800000), magnitude = hn::Set(di, 0x7fffffff);
  const auto normal = hn::Set(di, 0x00800000);
  int32_t largest_bits = 0x7f800000;
  if (of.largest > 0) std::memcpy(&largest_bits, &of.largest, sizeof largest_bits);
  const auto largest = hn::Set(di, largest_bits);
  auto sum_a = hn::Zero(dd), sum_b = hn::Zero(dd);
  Vector greatest = zero();
  // Counts of lanes, negative as masks are.
  auto finite_lanes = hn::Zero(di), small_lanes = hn::Zero(di), zero_lanes = hn::Zero(di),
       below_lanes = hn::Zero(di);
  int64_t lanes_in_all = 0;
  StatisticsTable result;
  for (int64_t line = begin; line < end; ++line) {
    const T* const p = static_cast<const T*>(x) + of.first + line / of.per_row * of.stride +
                       line % of.per_row * of.length + from;
    auto squares_a = hn::Zero(dd), squares_b = hn::Zero(dd);
    const auto take = [&](int64_t i, auto span) HWY_ATTR {
      const Vector v = load(p + i, span);
      const auto bits = hn::And(hn::BitCast(di, v), magnitude);
      const auto finite = hn::Lt(bits, infinity);
      const Vector f = hn::IfThenElseZero(hn::RebindMask(F32(), finite), v);
      greatest = hn::Max(greatest, hn::Abs(f));
      finite_lanes = hn::Add(finite_lanes, hn::VecFromMask(di, finite));
      small_lanes = hn::Add(small_lanes, hn::VecFromMask(di, hn::Lt(bits, normal)));
      zero_lanes = hn::Add(zero_lanes, hn::VecFromMask(di, hn::Eq(bits, hn::Zero(di))));
      below_lanes = hn::Add(below_lanes, hn::VecFromMask(di, hn::Lt(bits, largest)));
      const auto [a, b] = widened(f);
      sum_a = hn::Add(sum_a, a);
      sum_b = hn::Add(sum_b, b);
      squares_a = hn::MulAdd(a, a, squares_a);
      squares_b = hn::MulAdd(b, b, squares_b);
    };
    for_vectors(n, take);
    lanes_in_all += (n + lanes() - 1) / lanes() * lanes();
    const double squares = hn::GetLane(hn::SumOfLanes(dd, hn::Add(squares_a, squares_b)));
    result.squares += squares;
    result.row_squares = std::max(result.row_squares, squares);
  }
  const auto count = [&](hn::Vec<decltype(di)> lanes_of)
                         HWY_ATTR { return -static_cast<double>(hn::GetLane(hn::SumOfLanes(di, lanes_of))); };
  const int64_t elements = (end - begin) * n;
  const auto padding = static_cast<double>(lanes_in_all - elements);  // they were read as zeros
  const double finite = count(finite_lanes), zeros = count(zero_lanes);
  result.elements = static_cast<double>(elements);
  result.sum = hn::GetLane(hn::SumOfLanes(dd, hn::Add(sum_a, sum_b)));
  result.greatest = static_cast<double>(hn::GetLane(hn::MaxOfLanes(F32(), greatest)));
  result.nonfinite = result.elements + padding - finite;
  result.zeros = zeros - padding;
  result.flushed = count(small_lanes) - zeros;
  result.saturated = finite - count(below_lanes);
  *out = result;
}

void MeasureRange(const MeasuredLines& of, const void* x, int64_t begin, int64_t end, int64_t from, int64_t n,
                  StatisticsTable* out) {
  const auto range = by_dtype(of.dtype, measure_range<float>, measure_range<BF16>, measure_range<F16>);
  range(of, x, begin, end, from, n, out);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(MeasureRange);

namespace {

constexpr int64_t kMeasuredBlock = 65536;

int64_t lines_per_block(const MeasuredLines& of) {
  return std::max<int64_t>(1, kMeasuredBlock / std::max<int64_t>(1, of.length));
}

}  // namespace

MeasuredLines flat_lines(int64_t n, DType dtype) {
  return {.dtype = dtype, .lines = 1, .length = n};
}

int64_t measured_blocks(const MeasuredLines& of) {
  const int64_t per_block = of.lines == 1 ? kMeasuredBlock : lines_per_block(of);
  const int64_t all = of.lines == 1 ? of.length : of.lines;
  return (all + per_block - 1) / per_block;
}

StatisticsTable measure(const MeasuredLines& of, const void* x, StatisticsTable* blocks) {
  require_activation_dtype(of.dtype, "measure");
  const auto kernel = HWY_DYNAMIC_DISPATCH(MeasureRange);
  if (of.lines == 1) {
    parallel_ranges(of.length, kMeasuredBlock, [&](int64_t begin, int64_t end) {
      kernel(of, x, 0, 1, begin, end - begin, blocks + begin / kMeasuredBlock);
    });
  } else {
    const int64_t per_block = lines_per_block(of);
    parallel_ranges(of.lines, per_block, [&](int64_t begin, int64_t end) {
      kernel(of, x, begin, end, 0, of.length, blocks + begin / per_block);
    });
  }
  StatisticsTable all;
  for (int64_t i = 0; i < measured_blocks(of); ++i) add_statistics(all, blocks[i]);
  return all;
}

void take_sample(float* sample, int64_t m, const float* x, int64_t n) {
  for (int64_t i = 0; i < m; ++i) sample[i] = x[sampled_place(i, m, n)];
}

StatisticsTable measure_change(const float* x, int64_t n, const float* sample, int64_t m) {
  StatisticsTable all{.elements = static_cast<double>(m)};
  for (int64_t i = 0; i < m; ++i) {
    const double change = double{x[sampled_place(i, m, n)]} - double{sample[i]};
    if (!std::isfinite(change)) {
      ++all.nonfinite;
      continue;
    }
    all.sum += change;
    all.squares += change * change;
    all.greatest = std::max(all.greatest, std::abs(change));
    if (change == 0) ++all.zeros;
  }
  all.row_squares = all.squares;
  return all;
}

}  // namespace strata::cpu
#endif
