#include "kernels/cpu/gemm_panels.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "tensor/arena.h"

namespace strata::cpu::detail {
namespace {

// A micro panel of b (depth_step x nr) fits the L1 cache, task_rows x depth_step of a and task_rows x
// task_cols of c fit the L2 cache together, and depth_block x col_block of b the last-level cache.
constexpr int64_t kDepthStep = 384;
constexpr int64_t kDepthBlock = 1536;
constexpr int64_t kTaskRows = 96;
constexpr int64_t kTaskCols = 512;
constexpr int64_t kPackedElements = 2 << 20;  // of one operand's block

int64_t divide_up(int64_t n, int64_t d) {
  return (n + d - 1) / d;
}

// The size of the parts when n is cut into parts of at most `most`, all about equal, each a multiple of
// `unit`.
int64_t even_part(int64_t n, int64_t most, int64_t unit) {
  const int64_t parts = divide_up(std::max<int64_t>(n, 1), std::max(most, unit));
  return align_up(divide_up(std::max<int64_t>(n, 1), parts), unit);
}

struct Run {
  const PanelGemm& gemm;
  OperandView a;
  OperandView b;
  const float* bias;
  void* c;
  float* a_packed;
  float* b_packed;
  PanelShape shape;
};

// One block of the loop nest: columns [col, col + cols), depths [deep, deep + depth), rows [row, row + rows).
struct Block {
  int64_t col, cols;
  int64_t deep, depth;
  int64_t row, rows;
};

void pack_b(const Run& run, const Block& block) {
  const int64_t width = 4 * run.shape.nr;
  parallel_for(divide_up(block.cols, width), [&](int64_t task) {
    const int64_t begin = task * width;
    pack_panels(run.b_packed + begin * block.depth, run.shape.nr, run.b, block.col + begin,
                std::min(width, block.cols - begin), block.deep, block.depth);
  });
}

void pack_a(const Run& run, const Block& block) {
  const int64_t height = 8 * run.shape.mr;
  parallel_for(divide_up(block.rows, height), [&](int64_t task) {
    const int64_t begin = task * height;
    pack_panels(run.a_packed + begin * block.depth, run.shape.mr, run.a, block.row + begin,
                std::min(height, block.rows - begin), block.deep, block.depth);
  });
}

// Adds the products of rows x cols at (row, col) of the block into `to`, which is that tile's first element.
void multiply_tile(const Run& run, const Block& block, int64_t row, int64_t rows, int64_t col, int64_t cols,
                   float* to, int64_t to_stride, bool accumulate) {
  const PanelGemm& gemm = run.gemm;
  int64_t deep = 0;
  do {  // once even without depth: the result is then zero, or the bias
    const int64_t depth = std::min(gemm.depth_step, block.depth - deep);
    const bool first = deep == 0 && !accumulate;
    const BlockOutput out{to, to_stride, !first, first && run.bias ? run.bias + block.col + col : nullptr};
    const float* b = run.b_packed + col * block.depth + deep * run.shape.nr;
    const int64_t b_stride = block.depth * run.shape.nr;
    if (gemm.direct_a) {
      const float* a =
          static_cast<const float*>(run.a.data) + (block.row + row) * run.a.stride + block.deep + deep;
      multiply_block_rows(out, a, run.a.stride, b, b_stride, rows, cols, depth);
    } else {
      const float* a = run.a_packed + row * block.depth + deep * run.shape.mr;
      multiply_block(out, a, block.depth * run.shape.mr, b, b_stride, rows, cols, depth);
    }
    deep += depth;
  } while (deep < block.depth);
}

void multiply(const Run& run, const Block& block) {
  const PanelGemm& gemm = run.gemm;
  const int64_t across = divide_up(block.cols, gemm.task_cols);
  parallel_for(divide_up(block.rows, gemm.task_rows) * across, [&](int64_t task) {
    const int64_t row = task / across * gemm.task_rows;
    const int64_t col = task % across * gemm.task_cols;
    const int64_t rows = std::min(gemm.task_rows, block.rows - row);
    const int64_t cols = std::min(gemm.task_cols, block.cols - col);
    const int64_t at = (block.row + row) * gemm.out_stride + block.col + col;
    if (gemm.out_dtype == DType::kF32) {
      multiply_tile(run, block, row, rows, col, cols, static_cast<float*>(run.c) + at, gemm.out_stride,
                    gemm.accumulate || block.deep > 0);
    } else {
      alignas(kBufferAlignment) float tile[kTaskRows * kTaskCols];
      multiply_tile(run, block, row, rows, col, cols, tile, gemm.task_cols, false);
      BF16* to = static_cast<BF16*>(run.c) + at;
      for (int64_t r = 0; r < rows; ++r) {
        convert(to + r * gemm.out_stride, DType::kBF16, tile + r * gemm.task_cols, DType::kF32, cols);
      }
    }
  });
}

}  // namespace

void plan_panels(PanelGemm& gemm) {
  const PanelShape shape = gemm.shape;
  const bool f32 = gemm.out_dtype == DType::kF32;
  gemm.direct_a = gemm.a.dtype == DType::kF32 && !gemm.a.depth_major;
  gemm.depth_step = even_part(gemm.depth, kDepthStep, 8);
  // A bf16 result is rounded once, so all of its depth must pass in one block.
  gemm.depth_block = f32 ? even_part(gemm.depth, kDepthBlock, gemm.depth_step) : align_up(gemm.depth, 8);
  const int64_t depth = std::max<int64_t>(gemm.depth_block, 1);
  gemm.col_block = even_part(gemm.cols, kPackedElements / depth, shape.nr);
  gemm.row_block = gemm.direct_a
                       ? std::max<int64_t>(gemm.rows, 1)
                       : even_part(gemm.rows, std::max(kTaskRows, kPackedElements / depth), shape.mr);
  gemm.task_rows = even_part(gemm.row_block, kTaskRows, shape.mr);
  gemm.task_cols = even_part(gemm.col_block, kTaskCols, shape.nr);
  gemm.a_offset = align_up(gemm.col_block * gemm.depth_block * size_of(DType::kF32), kBufferAlignment);
  const int64_t a_elements = gemm.direct_a ? 0 : align_up(gemm.row_block, shape.mr) * gemm.depth_block;
  gemm.scratch_bytes = gemm.a_offset + align_up(a_elements * size_of(DType::kF32), kBufferAlignment);
}

void check_panels(const PanelGemm& gemm) {
  const PanelShape own = panel_shape();
  STRATA_CHECK(gemm.shape.mr == own.mr && gemm.shape.nr == own.nr,
               "[gemm] planned for panels of {} x {}, and the kernels of this processor have {} x {}",
               gemm.shape.mr, gemm.shape.nr, own.mr, own.nr);
}

void run_panels(const PanelGemm& gemm, const void* a, const void* b, const float* bias, void* c,
                void* scratch) {
  if (gemm.rows == 0 || gemm.cols == 0) return;
  if (gemm.depth == 0 && gemm.accumulate) return;
  auto* memory = static_cast<std::byte*>(scratch);
  Run run{gemm,
          gemm.a,
          gemm.b,
          bias,
          c,
          reinterpret_cast<float*>(memory + gemm.a_offset),
          reinterpret_cast<float*>(memory),
          gemm.shape};
  run.a.data = a;
  run.b.data = b;
  Block block{};
  for (block.col = 0; block.col < gemm.cols; block.col += gemm.col_block) {
    block.cols = std::min(gemm.col_block, gemm.cols - block.col);
    block.deep = 0;
    do {
      block.depth = std::min(gemm.depth_block, gemm.depth - block.deep);
      pack_b(run, block);
      for (block.row = 0; block.row < gemm.rows; block.row += gemm.row_block) {
        block.rows = std::min(gemm.row_block, gemm.rows - block.row);
        if (!gemm.direct_a) pack_a(run, block);
        multiply(run, block);
      }
      block.deep += block.depth;
    } while (block.deep < gemm.depth);
  }
}

}  // namespace strata::cpu::detail
