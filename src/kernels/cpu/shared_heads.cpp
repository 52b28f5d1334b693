#include "kernels/cpu/shared_heads.h"

#include <cstddef>
#include <cstring>

#include "base/parallel.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/row_blocks.h"

namespace strata::cpu {
namespace {

// Sizes of a row in bytes.
struct Sizes {
  size_t q, head, kv, qkv;
};
Sizes sizes_of(const SharedHeads& s) {
  const auto element = static_cast<size_t>(size_of(s.dtype));
  const auto q = static_cast<size_t>(s.q_width) * element, head = static_cast<size_t>(s.head_dim) * element;
  return {q, head, 2 * static_cast<size_t>(s.kv_heads) * head, q + 2 * static_cast<size_t>(s.own) * head};
}

// Calls body(head among the rank's keys and values, head among all keys and values, whether it is the head's
// first copy on this rank) for each head of a rank.
template <typename Body>
void for_heads(const SharedHeads& s, int64_t first, const Body& body) {
  for (int64_t part = 0; part < 2; ++part) {
    for (int64_t i = 0; i < s.own; ++i) {
      const bool is_first = i == 0 || (first + i) % s.copies == 0;
      body(static_cast<size_t>(part * s.own + i),
           static_cast<size_t>(part * s.kv_heads + (first + i) / s.copies), is_first);
    }
  }
}

template <typename T>
void add_to(T* to, const T* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = T(static_cast<float>(to[i]) + static_cast<float>(from[i]));
}

}  // namespace

void share_heads_forward(const SharedHeads& s, void* qkv, const void* q, const void* kv, int64_t first) {
  require_activation_dtype(s.dtype, "share_heads_forward");
  const Sizes sizes = sizes_of(s);
  parallel_ranges(s.rows, rows_per_task(s.q_width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto r = static_cast<size_t>(row);
      auto* const to = static_cast<std::byte*>(qkv) + r * sizes.qkv;
      const auto* const from = static_cast<const std::byte*>(kv) + r * sizes.kv;
      std::memcpy(to, static_cast<const std::byte*>(q) + r * sizes.q, sizes.q);
      for_heads(s, first, [&](size_t own, size_t all, bool) {
        std::memcpy(to + sizes.q + own * sizes.head, from + all * sizes.head, sizes.head);
      });
    }
  });
}

void share_heads_backward(const SharedHeads& s, void* dq, void* dkv, const void* dqkv, int64_t first) {
  require_activation_dtype(s.dtype, "share_heads_backward");
  const Sizes sizes = sizes_of(s);
  parallel_ranges(s.rows, rows_per_task(s.q_width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto r = static_cast<size_t>(row);
      const auto* const from = static_cast<const std::byte*>(dqkv) + r * sizes.qkv;
      auto* const to = static_cast<std::byte*>(dkv) + r * sizes.kv;
      std::memcpy(static_cast<std::byte*>(dq) + r * sizes.q, from, sizes.q);
      std::memset(to, 0, sizes.kv);
      for_heads(s, first, [&](size_t own, size_t all, bool is_first) {
        const std::byte* const source = from + sizes.q + own * sizes.head;
        std::byte* const target = to + all * sizes.head;
        if (is_first) {
          std::memcpy(target, source, sizes.head);
        } else if (s.dtype == DType::kBF16) {
          add_to(reinterpret_cast<BF16*>(target), reinterpret_cast<const BF16*>(source), s.head_dim);
        } else if (s.dtype == DType::kF16) {
          add_to(reinterpret_cast<F16*>(target), reinterpret_cast<const F16*>(source), s.head_dim);
        } else {
          add_to(reinterpret_cast<float*>(target), reinterpret_cast<const float*>(source), s.head_dim);
        }
      });
    }
  });
}

}  // namespace strata::cpu
