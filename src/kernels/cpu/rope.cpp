#include "kernels/cpu/rope.h"

#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

HWY_INLINE void load_rotation(const float* table, Vector& cosine, Vector& sine, Whole) {
  hn::LoadInterleaved2(F32(), table, cosine, sine);
}
HWY_INLINE void load_rotation(const float* table, Vector& cosine, Vector& sine, Part part) {
  HWY_ALIGN float buffer[2 * kMaxLanes] = {};
  std::memcpy(buffer, table, 2 * part.count * sizeof(float));
  hn::LoadInterleaved2(F32(), buffer, cosine, sine);
}

// Rotates the pairs (2i, 2i + 1) of `n` elements of a head; `angles` has cosine and sine in the same order.
template <typename T>
HWY_INLINE void rotate_adjacent(T* to, const T* from, const float* angles, float turn, int64_t n) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < n; i += 2) {
    const auto a = static_cast<float>(from[i]), b = static_cast<float>(from[i + 1]);
    const float cosine = angles[i], sine = turn * angles[i + 1];
    to[i] = static_cast<T>(a * cosine - b * sine);
    to[i + 1] = static_cast<T>(b * cosine + a * sine);
  }
#else
  const Vector sign = constant(turn);
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    const Vector x = load(from + i, span), angle = load(angles + i, span);
    const Vector other = hn::Mul(hn::Reverse2(F32(), x), sign), sine = hn::DupOdd(angle);
    const Vector along = hn::Mul(x, hn::DupEven(angle));
    store(to + i, hn::OddEven(hn::MulAdd(other, sine, along), hn::NegMulAdd(other, sine, along)), span);
  });
#endif
}

template <typename T>
void rotate_rows(const RopeShape& shape, void* out, const void* in, const float* table,
                 const int32_t* positions, bool inverse, int64_t begin, int64_t end) {
  const int64_t half = shape.rotary_dim / 2;
  for (int64_t row = begin; row < end; ++row) {
    const float* const angles = table + int64_t{positions[row]} * shape.rotary_dim;
    const T* const from = static_cast<const T*>(in) + row * shape.row_stride + shape.first;
    T* const to = static_cast<T*>(out) + row * shape.row_stride + shape.first;
    if (shape.adjacent) {
      for (int64_t head = 0; head < shape.heads; ++head)
        rotate_adjacent(to + head * shape.head_dim, from + head * shape.head_dim, angles,
                        inverse ? -1.0f : 1.0f, shape.rotary_dim);
    }
    for_vectors(shape.adjacent ? 0 : half, [&](int64_t i, auto span) HWY_ATTR {
      Vector cosine, sine;
      load_rotation(angles + 2 * i, cosine, sine, span);
      if (inverse) sine = hn::Neg(sine);
      for (int64_t at = i; at < shape.heads * shape.head_dim; at += shape.head_dim) {
        const Vector a = load(from + at, span), b = load(from + at + half, span);
        store(to + at, hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), span);
        store(to + at + half, hn::MulAdd(a, sine, hn::Mul(b, cosine)), span);
      }
    });
    if (from != to && shape.rotary_dim < shape.head_dim) {
      for (int64_t head = 0; head < shape.heads; ++head) {
        const int64_t rotated = head * shape.head_dim, before = rotated - shape.first,
                      after = rotated + shape.rotary_dim;
        std::memcpy(static_cast<void*>(to + before), from + before,
                    static_cast<size_t>(shape.first) * sizeof(T));
        std::memcpy(static_cast<void*>(to + after), from + after,
                    static_cast<size_t>(shape.head_dim - shape.first - shape.rotary_dim) * sizeof(T));
      }
    }
  }
}

void RotateRows(const RopeShape& shape, void* out, const void* in, const float* table,
                const int32_t* positions, bool inverse, int64_t begin, int64_t end) {
  const auto rows = by_dtype(shape.dtype, rotate_rows<float>, rotate_rows<BF16>, rotate_rows<F16>);
  rows(shape, out, in, table, positions, inverse, begin, end);
}

template <typename T>
void temper_rows(const TemperShape& s, void* y, const void* x, const int32_t* positions, int64_t begin,
                 int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* const from = static_cast<const T*>(x) + row * s.width;
    T* const to = static_cast<T*>(y) + row * s.width;
    const int64_t whole_turns = (positions[row] + int64_t{1}) / s.floor;
    const auto turns = static_cast<float>(whole_turns);
    const Vector by = constant(1.0f + s.scale * std::log1p(turns));
    for_vectors(s.q_width, [&](int64_t i, auto span)
                               HWY_ATTR { store(to + i, hn::Mul(load(from + i, span), by), span); });
    if (to != from) {
      std::memcpy(static_cast<void*>(to + s.q_width), from + s.q_width,
                  static_cast<size_t>(s.width - s.q_width) * sizeof(T));
    }
  }
}

void TemperRows(const TemperShape& shape, void* y, const void* x, const int32_t* positions, int64_t begin,
                int64_t end) {
  const auto rows = by_dtype(shape.dtype, temper_rows<float>, temper_rows<BF16>, temper_rows<F16>);
  rows(shape, y, x, positions, begin, end);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(RotateRows);
HWY_EXPORT(TemperRows);

void rope(const RopeShape& shape, void* out, const void* in, const float* table, const int32_t* positions,
          bool inverse) {
  require_activation_dtype(shape.dtype, "rope");
  STRATA_CHECK(
      shape.rotary_dim % 2 == 0 && shape.first + shape.rotary_dim <= shape.head_dim,
      "[rope] rotary_dim is {}, from element {} on: expected an even number of elements within a head of {}",
      shape.rotary_dim, shape.first, shape.head_dim);
  STRATA_CHECK(shape.row_stride >= shape.heads * shape.head_dim,
               "[rope] row_stride is {}: expected at least {} heads of {}", shape.row_stride, shape.heads,
               shape.head_dim);
  const auto kernel = HWY_DYNAMIC_DISPATCH(RotateRows);
  parallel_ranges(shape.rows, rows_per_task(shape.heads * shape.head_dim), [&](int64_t begin, int64_t end) {
    kernel(shape, out, in, table, positions, inverse, begin, end);
  });
}

void temper(const TemperShape& shape, void* y, const void* x, const int32_t* positions) {
  require_activation_dtype(shape.dtype, "temper");
  const auto kernel = HWY_DYNAMIC_DISPATCH(TemperRows);
  parallel_ranges(shape.rows, rows_per_task(shape.width),
                  [&](int64_t begin, int64_t end) { kernel(shape, y, x, positions, begin, end); });
}

}  // namespace strata::cpu
#endif
