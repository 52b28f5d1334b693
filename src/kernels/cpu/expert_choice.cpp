#include "kernels/cpu/expert_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/parallel.h"
#include "kernels/cpu/row_blocks.h"

namespace strata::cpu {
namespace {

constexpr int64_t kColumns = 256;  // per task

int64_t scores_bytes(const ExpertChoiceShape& shape) {
  return shape.groups * shape.rows * shape.experts * int64_t{sizeof(float)};
}

}  // namespace

// Scores, and the token order of each expert in a group.
int64_t expert_choice_scratch_bytes(const ExpertChoiceShape& shape) {
  return scores_bytes(shape) + shape.groups * shape.experts * shape.rows * int64_t{sizeof(int32_t)};
}

void expert_choice(const ExpertChoiceShape& shape, int32_t* tokens, int32_t* experts, float* weights,
                   const float* logits, void* scratch) {
  auto* const scores = static_cast<float*>(scratch);
  auto* const orders = reinterpret_cast<int32_t*>(static_cast<std::byte*>(scratch) + scores_bytes(shape));
  router_scores(shape.groups * shape.rows, shape.experts, shape.score, scores, logits);
  parallel_for(shape.groups * shape.experts, [&](int64_t task) {
    const int64_t group = task / shape.experts, expert = task % shape.experts;
    const float* const of_group = scores + group * shape.rows * shape.experts + expert;
    const auto score = [&](int32_t token) { return of_group[token * shape.experts]; };
    int32_t* const order = orders + task * shape.rows;
    std::iota(order, order + shape.rows, 0);
    std::nth_element(order, order + shape.capacity - 1, order + shape.rows, [&](int32_t a, int32_t b) {
      const float x = score(a), y = score(b);
      if (std::isnan(x) || std::isnan(y)) return std::isnan(x) == std::isnan(y) ? a < b : std::isnan(x);
      return x > y || (x == y && a < b);
    });
    std::sort(order, order + shape.capacity);
    for (int64_t i = 0; i < shape.capacity; ++i) {
      const int64_t slot = task * shape.capacity + i;
      tokens[slot] = order[i];
      experts[slot] = static_cast<int32_t>(expert);
      weights[slot] = score(order[i]) * shape.scale;
    }
  });
}

int64_t expert_choice_backward_scratch_bytes(const ExpertChoiceShape& shape) {
  return scores_bytes(shape);
}

void expert_choice_backward(const ExpertChoiceShape& shape, float* d_logits, const float* d_weights,
                            const float* logits, const int32_t* tokens, void* scratch) {
  auto* const d_scores = static_cast<float*>(scratch);
  parallel_for(shape.groups, [&](int64_t group) {
    float* const of_group = d_scores + group * shape.rows * shape.experts;
    std::fill_n(of_group, shape.rows * shape.experts, 0.0f);
    const int64_t first = group * shape.experts * shape.capacity;
    for (int64_t i = 0; i < shape.experts * shape.capacity; ++i)
      of_group[tokens[first + i] * shape.experts + i / shape.capacity] = d_weights[first + i] * shape.scale;
  });
  router_scores_backward(shape.groups * shape.rows, shape.experts, shape.score, d_logits, d_scores, logits);
}

void gather_rows(const GroupRowsShape& shape, void* y, const void* x, const int32_t* tokens) {
  require_activation_dtype(shape.dtype, "gather_rows");
  const int64_t bytes = shape.columns * size_of(shape.dtype);
  parallel_ranges(shape.groups * shape.slots, rows_per_task(shape.columns), [&](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot) {
      const int64_t row = slot / shape.slots * shape.rows + tokens[slot];
      std::copy_n(static_cast<const std::byte*>(x) + row * bytes, bytes,
                  static_cast<std::byte*>(y) + slot * bytes);
    }
  });
}

namespace {

template <typename T>
void scatter(const GroupRowsShape& shape, T* y, float* sums, const T* h, const int32_t* tokens) {
  const int64_t across = (shape.columns + kColumns - 1) / kColumns;
  parallel_for(shape.groups * across, [&](int64_t task) {
    const int64_t group = task / across, column = task % across * kColumns;
    const int64_t columns = std::min(kColumns, shape.columns - column);
    const int64_t first = group * shape.rows;
    const auto row_of = [&](auto* rows, int64_t row) { return rows + row * shape.columns + column; };
    for (int64_t row = 0; row < shape.rows; ++row) std::fill_n(row_of(sums, first + row), columns, 0.0f);
    for (int64_t slot = group * shape.slots; slot < (group + 1) * shape.slots; ++slot) {
      float* const to = row_of(sums, first + tokens[slot]);
      const T* const from = row_of(h, slot);
      for (int64_t c = 0; c < columns; ++c) to[c] += static_cast<float>(from[c]);
    }
    if constexpr (!std::is_same_v<T, float>) {
      for (int64_t row = first; row < first + shape.rows; ++row) {
        for (int64_t c = 0; c < columns; ++c) row_of(y, row)[c] = T(row_of(sums, row)[c]);
      }
    }
  });
}

}  // namespace

int64_t scatter_rows_scratch_bytes(const GroupRowsShape& shape) {
  return shape.dtype == DType::kF32 ? 0 : shape.groups * shape.rows * shape.columns * int64_t{sizeof(float)};
}

void scatter_rows(const GroupRowsShape& shape, void* y, const void* h, const int32_t* tokens, void* scratch) {
  require_activation_dtype(shape.dtype, "scatter_rows");
  if (shape.dtype == DType::kBF16) {
    return scatter(shape, static_cast<BF16*>(y), static_cast<float*>(scratch), static_cast<const BF16*>(h),
                   tokens);
  }
  if (shape.dtype == DType::kF16) {
    return scatter(shape, static_cast<F16*>(y), static_cast<float*>(scratch), static_cast<const F16*>(h),
                   tokens);
  }
  scatter(shape, static_cast<float*>(y), static_cast<float*>(y), static_cast<const float*>(h), tokens);
}

}  // namespace strata::cpu
