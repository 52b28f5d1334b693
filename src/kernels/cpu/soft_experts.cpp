#include "kernels/cpu/soft_experts.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/row_blocks.h"

namespace strata::cpu {
namespace {

constexpr int64_t kColumns = 64;  // per inner sum

// Softmax of `count` numbers, `step` apart. A NaN makes all of them NaN.
void softmax(float* x, int64_t count, int64_t step) {
  float greatest = x[0], sum = 0;
  for (int64_t i = 1; i < count; ++i)
    if (x[i * step] > greatest) greatest = x[i * step];
  for (int64_t i = 0; i < count; ++i) sum += x[i * step] = std::exp(x[i * step] - greatest);
  for (int64_t i = 0; i < count; ++i) x[i * step] /= sum;
}

// d = w (d − Σ w d): the gradient through a softmax w.
void through_softmax(float* d, const float* w, int64_t count, int64_t step) {
  float mean = 0;
  for (int64_t i = 0; i < count; ++i) mean += d[i * step] * w[i * step];
  for (int64_t i = 0; i < count; ++i) d[i * step] = w[i * step] * (d[i * step] - mean);
}

// Weights [rows, slots] of every group: softmaxes over its tokens (for each input slot) or over its slots
// (for each token).
enum class Over { kTokens, kSlots };
struct Lines {
  int64_t count, length, step;
  Lines(const SoftShape& shape, Over over)
      : count(over == Over::kTokens ? shape.slots : shape.rows),
        length(over == Over::kTokens ? shape.rows : shape.slots),
        step(over == Over::kTokens ? shape.slots : 1) {}
  int64_t first(int64_t line) const { return step == 1 ? line * length : line; }
};

void weights_of(const SoftShape& shape, Over over, float* weights, const float* logits) {
  const int64_t size = shape.rows * shape.slots;
  const Lines lines(shape, over);
  parallel_for(shape.groups, [&](int64_t group) {
    float* const w = weights + group * size;
    std::copy_n(logits + group * size, size, w);
    for (int64_t line = 0; line < lines.count; ++line)
      softmax(w + lines.first(line), lines.length, lines.step);
  });
}

void through_weights(const SoftShape& shape, Over over, float* d, const float* weights) {
  const int64_t size = shape.rows * shape.slots;
  const Lines lines(shape, over);
  parallel_for(shape.groups, [&](int64_t group) {
    for (int64_t line = 0; line < lines.count; ++line) {
      const int64_t at = group * size + lines.first(line);
      through_softmax(d + at, weights + at, lines.length, lines.step);
    }
  });
}

// Rows of `to` are sums of rows of `from` with a group's weights: one row of `to` per input slot or per
// token.
template <typename T>
void mix(const SoftShape& shape, bool to_slots, void* to, const void* from, const float* weights) {
  const int64_t made = to_slots ? shape.slots : shape.rows, read = to_slots ? shape.rows : shape.slots;
  parallel_for(shape.groups * made, [&](int64_t task) {
    const int64_t group = task / made, row = task % made;
    const float* const w = weights + group * shape.rows * shape.slots;
    const T* const in = static_cast<const T*>(from) + group * read * shape.columns;
    T* const out = static_cast<T*>(to) + task * shape.columns;
    float sums[kColumns];
    for (int64_t column = 0; column < shape.columns; column += kColumns) {
      const int64_t columns = std::min(kColumns, shape.columns - column);
      std::fill_n(sums, columns, 0.0f);
      for (int64_t i = 0; i < read; ++i) {
        const float by = to_slots ? w[i * shape.slots + row] : w[row * shape.slots + i];
        const T* const values = in + i * shape.columns + column;
        for (int64_t c = 0; c < columns; ++c) sums[c] += by * static_cast<float>(values[c]);
      }
      for (int64_t c = 0; c < columns; ++c) out[column + c] = T(sums[c]);
    }
  });
}

// d[n, s] = (row of a of token n) · (row of b of input slot s).
template <typename T>
void dots(const SoftShape& shape, float* d, const void* of_tokens, const void* of_slots) {
  parallel_for(shape.tokens(), [&](int64_t token) {
    const T* const a = static_cast<const T*>(of_tokens) + token * shape.columns;
    const T* const first = static_cast<const T*>(of_slots) + token / shape.rows * shape.slots * shape.columns;
    for (int64_t slot = 0; slot < shape.slots; ++slot) {
      const T* const b = first + slot * shape.columns;
      float sum = 0;
      for (int64_t c = 0; c < shape.columns; ++c) sum += static_cast<float>(a[c]) * static_cast<float>(b[c]);
      d[token * shape.slots + slot] = sum;
    }
  });
}

// mix for the activations' dtype.
void mix_rows(const SoftShape& shape, bool to_slots, void* to, const void* from, const float* weights) {
  const auto mixed = by_dtype(shape.dtype, mix<float>, mix<BF16>, mix<F16>);
  mixed(shape, to_slots, to, from, weights);
}
void dots_of(const SoftShape& shape, float* d, const void* of_tokens, const void* of_slots) {
  const auto products = by_dtype(shape.dtype, dots<float>, dots<BF16>, dots<F16>);
  products(shape, d, of_tokens, of_slots);
}

}  // namespace

int64_t soft_scratch_bytes(const SoftShape& shape) {
  return shape.tokens() * shape.slots * int64_t{sizeof(float)};
}

void soft_dispatch(const SoftShape& shape, void* slots, int32_t* experts, const void* x, const float* logits,
                   void* scratch) {
  require_activation_dtype(shape.dtype, "soft_dispatch");
  auto* const weights = static_cast<float*>(scratch);
  weights_of(shape, Over::kTokens, weights, logits);
  mix_rows(shape, true, slots, x, weights);
  for (int64_t slot = 0; slot < shape.groups * shape.slots; ++slot)
    experts[slot] = static_cast<int32_t>(slot % shape.slots / shape.of_expert);
}

void soft_dispatch_backward(const SoftShape& shape, void* dx, float* d_logits, const void* d_slots,
                            const void* x, const float* logits, void* scratch) {
  require_activation_dtype(shape.dtype, "soft_dispatch_backward");
  auto* const weights = static_cast<float*>(scratch);
  weights_of(shape, Over::kTokens, weights, logits);
  mix_rows(shape, false, dx, d_slots, weights);
  dots_of(shape, d_logits, x, d_slots);
  through_weights(shape, Over::kTokens, d_logits, weights);
}

void soft_combine(const SoftShape& shape, void* y, const void* h, const float* logits, void* scratch) {
  require_activation_dtype(shape.dtype, "soft_combine");
  auto* const weights = static_cast<float*>(scratch);
  weights_of(shape, Over::kSlots, weights, logits);
  mix_rows(shape, false, y, h, weights);
}

void soft_combine_backward(const SoftShape& shape, void* dh, float* d_logits, const void* dy, const void* h,
                           const float* logits, void* scratch) {
  require_activation_dtype(shape.dtype, "soft_combine_backward");
  auto* const weights = static_cast<float*>(scratch);
  weights_of(shape, Over::kSlots, weights, logits);
  mix_rows(shape, true, dh, dy, weights);
  dots_of(shape, d_logits, dy, h);
  through_weights(shape, Over::kSlots, d_logits, weights);
}

}  // namespace strata::cpu
