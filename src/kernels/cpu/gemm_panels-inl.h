// The loop nest of in-house GEMMs, for any operands that become panels. Internal to the gemm family.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/parallel.h"
#include "kernels/cpu/gemm_panels.h"
#include "kernels/cpu/parts.h"
#include "kernels/cpu/worker_tasks.h"
#include "tensor/arena.h"

namespace strata::cpu::detail {

// The most rows and columns that a thread multiplies before it rounds them.
inline constexpr int64_t kTaskRows = 96, kTaskCols = 256;

// One block of the loop nest: columns [col, col + cols), depths [deep, deep + depth), and b's panels for
// them.
template <typename Value>
struct PanelBlock {
  int64_t col, cols;
  int64_t deep, depth;
  const Value* b;
  int64_t b_stride;  // from panel to panel
};

// Where a multiplication starts: its first row, column and depth in the whole GEMM.
struct PanelPlace {
  int64_t row, col, deep;
};

// The matmul of two operands, which `Operands` packs and multiplies:
//   Value                                        of panels
//   values(depth, width)                         of a panel
//   pack_a(to, row, rows, deep, depth)           panels of these rows and depths
//   pack_b(to, col, cols, deep, depth)
//   ready_b(col, deep), ready_stride()           panels that exist already, or nullptr
//   multiply(out, place, a, a_stride, b, b_stride, rows, cols, depth, next)
//                                                as multiply_block(); with direct_a, a is not packed
template <typename Operands>
class PanelProduct {
 public:
  using Value = typename Operands::Value;
  using Block = PanelBlock<Value>;
  PanelProduct(const PanelGemm& gemm, const Operands& operands, const float* bias, void* c, void* scratch)
      : gemm_(gemm), operands_(operands), bias_(bias), c_(c), b_packed_(static_cast<Value*>(scratch)) {
    auto* const bytes = static_cast<std::byte*>(scratch);
    a_packed_ = reinterpret_cast<Value*>(bytes + gemm.a_offset);
    if (gemm.sums_apart) {
      sums_ = reinterpret_cast<float*>(bytes + gemm.sums_offset);
      sums_stride_ = gemm.cols;
    } else if (gemm.out_dtype == DType::kF32) {
      sums_ = static_cast<float*>(c);
      sums_stride_ = gemm.out_stride;
    }
  }

  void run() const {
    Block block{};
    for (block.col = 0; block.col < gemm_.cols; block.col += gemm_.col_block) {
      block.cols = std::min(gemm_.col_block, gemm_.cols - block.col);
      block.deep = 0;
      do {
        block.depth = std::min(gemm_.depth_block, gemm_.depth - block.deep);
        find_b(block);
        multiply(block);
        block.deep += block.depth;
      } while (block.deep < gemm_.depth);
    }
    if (gemm_.sums_apart) {
      parallel_ranges(gemm_.rows, 8, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) round_row(r, 0, sums_ + r * sums_stride_, gemm_.cols);
      });
    }
  }

 private:
  // c[row, col, …] = sums, rounded.
  void round_row(int64_t row, int64_t col, const float* sums, int64_t cols) const {
    const int64_t at = (row * gemm_.out_stride + col) * size_of(gemm_.out_dtype);
    convert(static_cast<std::byte*>(c_) + at, gemm_.out_dtype, sums, DType::kF32, cols);
  }

  // Finds b's panels of the block; packs them unless b is already packed.
  void find_b(Block& block) const {
    const int64_t nr = gemm_.shape.nr;
    block.b = operands_.ready_b(block.col, block.deep);
    if (block.b != nullptr) {
      block.b_stride = operands_.ready_stride();
      return;
    }
    block.b = b_packed_;
    block.b_stride = Operands::values(block.depth, nr);
    constexpr int64_t kAtOnce = 4;
    const int64_t width = kAtOnce * nr;
    parallel_for(divide_up(block.cols, width), [&](int64_t task) {
      const int64_t begin = task * width;
      operands_.pack_b(b_packed_ + task * kAtOnce * block.b_stride, block.col + begin,
                       std::min(width, block.cols - begin), block.deep, block.depth);
    });
  }

  void multiply(const Block& block) const {
    const int64_t tasks = divide_up(gemm_.rows, gemm_.task_rows) * divide_up(block.cols, gemm_.group_cols);
    for_each_task(tasks, gemm_.threads, [&](int64_t task, int64_t worker) {
      multiply_rows(block, task, a_packed_ + worker * gemm_.a_values);
    });
  }

  // The task's rows of c, and its group of the block's columns.
  void multiply_rows(const Block& block, int64_t task, Value* a_packed) const {
    const int64_t groups = divide_up(block.cols, gemm_.group_cols);
    const int64_t row = task / groups * gemm_.task_rows;
    const int64_t rows = std::min(gemm_.task_rows, gemm_.rows - row);
    const int64_t begin = task % groups * gemm_.group_cols;
    const int64_t end = std::min(begin + gemm_.group_cols, block.cols);
    if (!gemm_.direct_a) operands_.pack_a(a_packed, row, rows, block.deep, block.depth);
    for (int64_t col = begin; col < end; col += gemm_.task_cols) {
      const int64_t cols = std::min(gemm_.task_cols, end - col);
      if (sums_ != nullptr) {
        multiply_tile(block, a_packed, row, rows, col, cols, sums_ + row * sums_stride_ + block.col + col,
                      sums_stride_, gemm_.accumulate || block.deep > 0);
      } else {
        alignas(kBufferAlignment) float tile[kTaskRows * kTaskCols];
        multiply_tile(block, a_packed, row, rows, col, cols, tile, gemm_.task_cols, false);
        for (int64_t r = 0; r < rows; ++r)
          round_row(row + r, block.col + col, tile + r * gemm_.task_cols, cols);
      }
    }
  }

  // Adds the matmul of `rows` rows and `cols` columns at (row, col of the block) to `to`, the tile's first
  // element.
  void multiply_tile(const Block& block, const Value* a_packed, int64_t row, int64_t rows, int64_t col,
                     int64_t cols, float* to, int64_t to_stride, bool accumulate) const {
    const int64_t nr = gemm_.shape.nr, mr = gemm_.shape.mr;
    const Value* const panels = block.b + col / nr * block.b_stride;
    int64_t deep = 0;
    do {  // once even if the depth is 0: the result is then zero, or the bias
      const int64_t depth = std::min(gemm_.depth_step, block.depth - deep);
      const bool first = deep == 0 && !accumulate;
      const BlockOutput out{to, to_stride, !first, first && bias_ ? bias_ + block.col + col : nullptr};
      const Value* const b = panels + deep * nr;
      // First panel of the next step or of the next columns.
      const bool last = deep + depth >= block.depth;
      const Value* const next = !last                     ? b + depth * nr
                                : col + cols < block.cols ? panels + divide_up(cols, nr) * block.b_stride
                                                          : block.b;
      operands_.multiply(out, PanelPlace{row, block.col + col, block.deep + deep}, a_packed + deep * mr,
                         Operands::values(block.depth, mr), b, block.b_stride, rows, cols, depth, next);
      deep += depth;
    } while (deep < block.depth);
  }

  const PanelGemm& gemm_;
  const Operands& operands_;
  const float* bias_;
  void* c_;
  float* sums_ = nullptr;  // of all blocks; null if each is rounded immediately
  int64_t sums_stride_ = 0;
  Value* b_packed_;
  Value* a_packed_;  // one buffer per worker
};

}  // namespace strata::cpu::detail
