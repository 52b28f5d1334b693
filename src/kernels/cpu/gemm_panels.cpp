#include "kernels/cpu/gemm_panels.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/worker_tasks.h"
#include "tensor/arena.h"

namespace strata::cpu::detail {
namespace {

// A panel of b (depth_step x nr) fits the L1 cache; a task's rows of a (task_rows x
// depth_block) with the part of c that it works on (task_rows x task_cols) fit the L2 cache, and depth_block
// x col_block of b the last-level cache.
constexpr int64_t kPanelElements = 8192;
constexpr int64_t kDepthBlock = 1024;
constexpr int64_t kTaskRows = 96;
constexpr int64_t kTaskCols = 256;
constexpr int64_t kTaskElements = kTaskRows * kDepthBlock;
constexpr int64_t kPackedElements = 2 << 20;  // of b's block
// As many tasks, of rows and, where those are few, of groups of columns: the last ones of all threads end at
// about the same time.
constexpr int64_t kTasks = 16;
// With fewer columns packing a costs more than reading it where it lies, from too many places at once.
constexpr int64_t kPackedCols = 256;

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
  float* b_packed;
  float* a_packed;  // a part for each worker
  PanelShape shape;
};

// One block of the loop nest: columns [col, col + cols), depths [deep, deep + depth).
struct Block {
  int64_t col, cols;
  int64_t deep, depth;
};

void pack_b(const Run& run, const Block& block) {
  const int64_t width = 4 * run.shape.nr;
  parallel_for(divide_up(block.cols, width), [&](int64_t task) {
    const int64_t begin = task * width;
    pack_panels(run.b_packed + begin * block.depth, run.shape.nr, run.b, block.col + begin,
                std::min(width, block.cols - begin), block.deep, block.depth);
  });
}

// Adds the products of rows x cols at (row, col of the block) into `to`, which is that tile's first element.
void multiply_tile(const Run& run, const Block& block, const float* a_packed, int64_t row, int64_t rows,
                   int64_t col, int64_t cols, float* to, int64_t to_stride, bool accumulate) {
  const PanelGemm& gemm = run.gemm;
  int64_t deep = 0;
  do {  // once even without depth: the result is then zero, or the bias
    const int64_t depth = std::min(gemm.depth_step, block.depth - deep);
    const bool first = deep == 0 && !accumulate;
    const BlockOutput out{to, to_stride, !first, first && run.bias ? run.bias + block.col + col : nullptr};
    const float* const panels = run.b_packed + col * block.depth;
    const float* const b = panels + deep * run.shape.nr;
    const int64_t b_stride = block.depth * run.shape.nr;
    // What the next step begins with, or the next columns.
    const bool last = deep + depth >= block.depth;
    const float* const next = !last                     ? b + depth * run.shape.nr
                              : col + cols < block.cols ? panels + cols * block.depth
                                                        : run.b_packed;
    if (gemm.direct_a) {
      const float* a = static_cast<const float*>(run.a.data) + row * run.a.stride + block.deep + deep;
      multiply_block_rows(out, a, run.a.stride, b, b_stride, rows, cols, depth, next);
    } else {
      multiply_block(out, a_packed + deep * run.shape.mr, block.depth * run.shape.mr, b, b_stride, rows, cols,
                     depth, next);
    }
    deep += depth;
  } while (deep < block.depth);
}

// The task's rows of c, and its group of the block's columns.
void multiply_rows(const Run& run, const Block& block, int64_t task, float* a_packed) {
  const PanelGemm& gemm = run.gemm;
  const int64_t groups = divide_up(block.cols, gemm.group_cols);
  const int64_t row = task / groups * gemm.task_rows;
  const int64_t rows = std::min(gemm.task_rows, gemm.rows - row);
  const int64_t begin = task % groups * gemm.group_cols;
  const int64_t end = std::min(begin + gemm.group_cols, block.cols);
  if (!gemm.direct_a) pack_panels(a_packed, run.shape.mr, run.a, row, rows, block.deep, block.depth);
  for (int64_t col = begin; col < end; col += gemm.task_cols) {
    const int64_t cols = std::min(gemm.task_cols, end - col);
    const int64_t at = row * gemm.out_stride + block.col + col;
    if (gemm.out_dtype == DType::kF32) {
      multiply_tile(run, block, a_packed, row, rows, col, cols, static_cast<float*>(run.c) + at,
                    gemm.out_stride, gemm.accumulate || block.deep > 0);
    } else {
      alignas(kBufferAlignment) float tile[kTaskRows * kTaskCols];
      multiply_tile(run, block, a_packed, row, rows, col, cols, tile, gemm.task_cols, false);
      BF16* to = static_cast<BF16*>(run.c) + at;
      for (int64_t r = 0; r < rows; ++r) {
        convert(to + r * gemm.out_stride, DType::kBF16, tile + r * gemm.task_cols, DType::kF32, cols);
      }
    }
  }
}

void multiply(const Run& run, const Block& block) {
  const PanelGemm& gemm = run.gemm;
  const int64_t tasks = divide_up(gemm.rows, gemm.task_rows) * divide_up(block.cols, gemm.group_cols);
  for_each_task(tasks, gemm.threads, [&](int64_t task, int64_t worker) {
    multiply_rows(run, block, task, run.a_packed + worker * gemm.a_elements);
  });
}

}  // namespace

void plan_panels(PanelGemm& gemm, int threads) {
  const PanelShape shape = gemm.shape;
  const bool f32 = gemm.out_dtype == DType::kF32;
  gemm.threads = threads;
  gemm.direct_a = gemm.a.dtype == DType::kF32 && !gemm.a.depth_major && gemm.cols <= kPackedCols;
  gemm.depth_step = even_part(gemm.depth, kPanelElements / shape.nr, 8);
  // A bf16 result is rounded once, so all of its depth must pass in one block.
  gemm.depth_block = f32 ? even_part(gemm.depth, kDepthBlock, gemm.depth_step) : align_up(gemm.depth, 8);
  const int64_t depth = std::max<int64_t>(gemm.depth_block, 1);
  gemm.col_block = even_part(gemm.cols, kPackedElements / depth, shape.nr);
  gemm.task_rows = even_part(gemm.rows, std::clamp(kTaskElements / depth, 2 * shape.mr, kTaskRows), shape.mr);
  const int64_t groups =
      std::min(divide_up(kTasks, divide_up(std::max<int64_t>(gemm.rows, 1), gemm.task_rows)),
               divide_up(gemm.col_block, kTaskCols));
  gemm.group_cols = even_part(gemm.col_block, divide_up(gemm.col_block, groups), shape.nr);
  gemm.task_cols = even_part(gemm.group_cols, kTaskCols, shape.nr);
  gemm.a_offset = align_up(gemm.col_block * gemm.depth_block * size_of(DType::kF32), kBufferAlignment);
  constexpr int64_t kAligned = kBufferAlignment / size_of(DType::kF32);
  gemm.a_elements = gemm.direct_a ? 0 : align_up(gemm.task_rows * gemm.depth_block, kAligned);
  gemm.scratch_bytes = gemm.a_offset + threads * gemm.a_elements * size_of(DType::kF32);
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
          reinterpret_cast<float*>(memory),
          reinterpret_cast<float*>(memory + gemm.a_offset),
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
      multiply(run, block);
      block.deep += block.depth;
    } while (block.deep < gemm.depth);
  }
}

}  // namespace strata::cpu::detail
