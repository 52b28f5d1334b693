#include "kernels/cpu/latent_heads.h"

#include <array>
#include <cstring>

#include "base/parallel.h"
#include "kernels/cpu/row_blocks.h"

namespace strata::cpu {
namespace {

// Widths of the parts of a row. Keys are as wide as queries.
struct Widths {
  int64_t q, plain, value, kv, keys_values;
  int64_t qkv() const { return q + keys_values; }
};
Widths widths_of(const LatentHeads& s) {
  const int64_t q = s.heads * (s.plain + s.rotary), plain = s.heads * s.plain, value = s.heads * s.value;
  return {q, plain, value, plain + value, q + value};
}

template <typename T>
void copy(T* to, const T* from, int64_t n) {
  std::memcpy(static_cast<void*>(to), from, static_cast<size_t>(n) * sizeof(T));
}

template <typename T>
void join_row(const LatentHeads& s, const Widths& w, T* key, const T* kv, const T* rotated) {
  copy(key + w.q, kv + w.plain, w.value);
  for (int64_t head = 0; head < s.heads; ++head, key += s.plain + s.rotary) {
    copy(key, kv + head * s.plain, s.plain);
    copy(key + s.plain, rotated, s.rotary);
  }
}

template <typename T>
void split_row(const LatentHeads& s, const Widths& w, T* dkv, T* drotated, const T* key) {
  for (int64_t head = 0; head < s.heads; ++head)
    copy(dkv + head * s.plain, key + head * (s.plain + s.rotary), s.plain);
  copy(dkv + w.plain, key + w.q, w.value);
  constexpr int64_t kAtOnce = 64;
  for (int64_t first = 0; first < s.rotary; first += kAtOnce) {
    const int64_t n = std::min(kAtOnce, s.rotary - first);
    std::array<float, kAtOnce> sums{};
    for (int64_t head = 0; head < s.heads; ++head) {
      const T* shared = key + head * (s.plain + s.rotary) + s.plain + first;
      for (int64_t i = 0; i < n; ++i) sums[static_cast<size_t>(i)] += static_cast<float>(shared[i]);
    }
    for (int64_t i = 0; i < n; ++i) drotated[first + i] = static_cast<T>(sums[static_cast<size_t>(i)]);
  }
}

// Calls body(row, pointer to an element of the dtype's type) for all rows.
template <typename Body>
void for_rows(const LatentHeads& s, const Body& body) {
  parallel_ranges(s.rows, rows_per_task(widths_of(s).qkv()), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (s.dtype == DType::kBF16) {
        body(row, static_cast<BF16*>(nullptr));
      } else if (s.dtype == DType::kF16) {
        body(row, static_cast<F16*>(nullptr));
      } else {
        body(row, static_cast<float*>(nullptr));
      }
    }
  });
}

}  // namespace

void latent_heads_forward(const LatentHeads& s, void* qkv, const void* q, const void* kv,
                          const void* rotated) {
  require_activation_dtype(s.dtype, "latent_heads_forward");
  const Widths w = widths_of(s);
  for_rows(s, [&]<typename T>(int64_t row, T*) {
    T* const to = static_cast<T*>(qkv) + row * w.qkv();
    copy(to, static_cast<const T*>(q) + row * w.q, w.q);
    join_row(s, w, to + w.q, static_cast<const T*>(kv) + row * w.kv,
             static_cast<const T*>(rotated) + row * s.rotary);
  });
}

void latent_heads_backward(const LatentHeads& s, void* dq, void* dkv, void* drotated, const void* dqkv) {
  require_activation_dtype(s.dtype, "latent_heads_backward");
  const Widths w = widths_of(s);
  for_rows(s, [&]<typename T>(int64_t row, T*) {
    const T* const from = static_cast<const T*>(dqkv) + row * w.qkv();
    copy(static_cast<T*>(dq) + row * w.q, from, w.q);
    split_row(s, w, static_cast<T*>(dkv) + row * w.kv, static_cast<T*>(drotated) + row * s.rotary,
              from + w.q);
  });
}

void latent_keys_forward(const LatentHeads& s, void* keys_values, const void* kv, const void* rotated) {
  require_activation_dtype(s.dtype, "latent_keys_forward");
  const Widths w = widths_of(s);
  for_rows(s, [&]<typename T>(int64_t row, T*) {
    join_row(s, w, static_cast<T*>(keys_values) + row * w.keys_values, static_cast<const T*>(kv) + row * w.kv,
             static_cast<const T*>(rotated) + row * s.rotary);
  });
}

void latent_keys_backward(const LatentHeads& s, void* dkv, void* drotated, const void* dkeys_values) {
  require_activation_dtype(s.dtype, "latent_keys_backward");
  const Widths w = widths_of(s);
  for_rows(s, [&]<typename T>(int64_t row, T*) {
    split_row(s, w, static_cast<T*>(dkv) + row * w.kv, static_cast<T*>(drotated) + row * s.rotary,
              static_cast<const T*>(dkeys_values) + row * w.keys_values);
  });
}

}  // namespace strata::cpu
