#include "kernels/cpu/gemm_panels.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/bf16_block.h"
#include "kernels/cpu/worker_tasks.h"
#include "tensor/arena.h"

namespace strata::cpu::detail {
namespace {

// Block sizes for the caches:
//   L1: a panel of b (depth_step x nr)
//   L2: a task's rows of a (task_rows x depth_block) and its part of c (task_rows x task_cols)
//   last level: a block of b (depth_block x col_block)
// Sizes count fp32 values, except for VNNI panels; two bf16 values take the space of one.
constexpr int64_t kPanelElements = 8192;
constexpr int64_t kPairPanelValues = 12288;  // leaves space in 32 KB for rows of a
constexpr int64_t kDepthBlock = 1024;
// A bf16 result with at most this depth is summed in one block, because fp32 sums of all of it take memory.
constexpr int64_t kWholeDepth = 8 * kDepthBlock;
constexpr int64_t kTaskRows = 96;
constexpr int64_t kTaskCols = 256;
constexpr int64_t kTaskElements = kTaskRows * kDepthBlock;
constexpr int64_t kPackedElements = 2 << 20;  // of b's block
// At least this many tasks (of rows and, if there are few row blocks, of groups of columns), so that all
// threads finish at about the same time.
constexpr int64_t kTasks = 16;
// With fewer columns, packing a costs more than reading it unpacked, from too many addresses at the same
// time.
constexpr int64_t kPackedCols = 256;

int64_t divide_up(int64_t n, int64_t d) {
  return (n + d - 1) / d;
}

// Splits n into nearly equal parts of at most `most`, each a multiple of `unit`; returns their size.
int64_t even_part(int64_t n, int64_t most, int64_t unit) {
  const int64_t parts = divide_up(std::max<int64_t>(n, 1), std::max(most, unit));
  return align_up(divide_up(std::max<int64_t>(n, 1), parts), unit);
}

// Packing and multiplication of fp32 panels, and of VNNI panels.
struct FloatPanels {
  using Value = float;
  static int64_t values(int64_t depth, int64_t width) { return depth * width; }
  static constexpr auto pack = pack_panels;
  static constexpr auto multiply = multiply_block;
  static void multiply_rows(const BlockOutput& out, const float* a, int64_t a_stride, const float* b,
                            int64_t b_stride, int64_t rows, int64_t cols, int64_t depth, const float* next) {
    multiply_block_rows(out, a, a_stride, b, b_stride, rows, cols, depth, next);
  }
};
struct PairPanels {
  using Value = BF16;
  static int64_t values(int64_t depth, int64_t width) { return panel_values(depth, width); }
  static constexpr auto pack = pack_pairs;
  static constexpr auto multiply = multiply_pairs;
  static void multiply_rows(const BlockOutput& out, const BF16* a, int64_t a_stride, const BF16* b,
                            int64_t b_stride, int64_t rows, int64_t cols, int64_t depth, const BF16*) {
    multiply_pairs_listed(out, nullptr, a, a_stride, nullptr, b, b_stride, rows, cols, depth);
  }
};

// One block of the loop nest: columns [col, col + cols), depths [deep, deep + depth), and b's panels for
// them.
template <typename Panels>
struct Block {
  int64_t col, cols;
  int64_t deep, depth;
  const typename Panels::Value* b;
  int64_t b_stride;  // from panel to panel
};

template <typename Panels>
class Product {
 public:
  using Value = typename Panels::Value;
  Product(const PanelGemm& gemm, const void* a, const void* b, const float* bias, void* c, void* scratch)
      : gemm_(gemm), a_(gemm.a), b_(gemm.b), bias_(bias), c_(c), b_packed_(static_cast<Value*>(scratch)) {
    a_.data = a;
    b_.data = b;
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
    Block<Panels> block{};
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
  void find_b(Block<Panels>& block) const {
    const int64_t nr = gemm_.shape.nr;
    if (gemm_.b_panel_depth > 0) {
      block.b_stride = Panels::values(gemm_.b_panel_depth, nr);
      block.b = static_cast<const Value*>(b_.data) + block.col / nr * block.b_stride + block.deep * nr;
      return;
    }
    block.b = b_packed_;
    block.b_stride = Panels::values(block.depth, nr);
    constexpr int64_t kAtOnce = 4;
    const int64_t width = kAtOnce * nr;
    parallel_for(divide_up(block.cols, width), [&](int64_t task) {
      const int64_t begin = task * width;
      Panels::pack(b_packed_ + task * kAtOnce * block.b_stride, nr, b_, block.col + begin,
                   std::min(width, block.cols - begin), block.deep, block.depth);
    });
  }

  void multiply(const Block<Panels>& block) const {
    const int64_t tasks = divide_up(gemm_.rows, gemm_.task_rows) * divide_up(block.cols, gemm_.group_cols);
    for_each_task(tasks, gemm_.threads, [&](int64_t task, int64_t worker) {
      multiply_rows(block, task, a_packed_ + worker * gemm_.a_values);
    });
  }

  // The task's rows of c, and its group of the block's columns.
  void multiply_rows(const Block<Panels>& block, int64_t task, Value* a_packed) const {
    const int64_t groups = divide_up(block.cols, gemm_.group_cols);
    const int64_t row = task / groups * gemm_.task_rows;
    const int64_t rows = std::min(gemm_.task_rows, gemm_.rows - row);
    const int64_t begin = task % groups * gemm_.group_cols;
    const int64_t end = std::min(begin + gemm_.group_cols, block.cols);
    if (!gemm_.direct_a) Panels::pack(a_packed, gemm_.shape.mr, a_, row, rows, block.deep, block.depth);
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
  void multiply_tile(const Block<Panels>& block, const Value* a_packed, int64_t row, int64_t rows,
                     int64_t col, int64_t cols, float* to, int64_t to_stride, bool accumulate) const {
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
      if (gemm_.direct_a) {
        const Value* a = static_cast<const Value*>(a_.data) + row * a_.stride + block.deep + deep;
        Panels::multiply_rows(out, a, a_.stride, b, block.b_stride, rows, cols, depth, next);
      } else {
        Panels::multiply(out, a_packed + deep * mr, Panels::values(block.depth, mr), b, block.b_stride, rows,
                         cols, depth, next);
      }
      deep += depth;
    } while (deep < block.depth);
  }

  const PanelGemm& gemm_;
  OperandView a_, b_;
  const float* bias_;
  void* c_;
  float* sums_ = nullptr;  // of all blocks; null if each is rounded immediately
  int64_t sums_stride_ = 0;
  Value* b_packed_;
  Value* a_packed_;  // one buffer per worker
};

}  // namespace

void plan_panels(PanelGemm& gemm, int threads) {
  const PanelShape shape = gemm.shape;
  const bool f32 = gemm.out_dtype == DType::kF32;
  const DType panels = gemm.pairs ? DType::kBF16 : DType::kF32;
  const int64_t in_float = size_of(DType::kF32) / size_of(panels);
  gemm.threads = threads;
  // VNNI pairs can be read unpacked only if the depth is even.
  gemm.direct_a =
      gemm.a.dtype == panels && !gemm.a.depth_major && gemm.cols <= kPackedCols && gemm.depth % in_float == 0;
  gemm.depth_step = even_part(gemm.depth, (gemm.pairs ? kPairPanelValues : kPanelElements) / shape.nr, 8);
  gemm.sums_apart = !f32 && gemm.depth > in_float * kWholeDepth;
  gemm.depth_block = f32 || gemm.sums_apart ? even_part(gemm.depth, in_float * kDepthBlock, gemm.depth_step)
                                            : align_up(gemm.depth, 8);
  const int64_t depth = std::max<int64_t>(gemm.depth_block / in_float, 1);
  gemm.col_block = even_part(gemm.cols, kPackedElements / depth, shape.nr);
  gemm.task_rows = even_part(gemm.rows, std::clamp(kTaskElements / depth, 2 * shape.mr, kTaskRows), shape.mr);
  const int64_t groups =
      std::min(divide_up(kTasks, divide_up(std::max<int64_t>(gemm.rows, 1), gemm.task_rows)),
               divide_up(gemm.col_block, kTaskCols));
  gemm.group_cols = even_part(gemm.col_block, divide_up(gemm.col_block, groups), shape.nr);
  gemm.task_cols = even_part(gemm.group_cols, kTaskCols, shape.nr);
  const int64_t b_values = gemm.b_panel_depth > 0 ? 0 : gemm.col_block * gemm.depth_block;
  gemm.a_offset = align_up(b_values * size_of(panels), kBufferAlignment);
  gemm.a_values =
      gemm.direct_a ? 0 : align_up(gemm.task_rows * gemm.depth_block, kBufferAlignment / size_of(panels));
  gemm.sums_offset = align_up(gemm.a_offset + threads * gemm.a_values * size_of(panels), kBufferAlignment);
  const int64_t sums = gemm.sums_apart ? gemm.rows * gemm.cols : 0;
  gemm.scratch_bytes = gemm.sums_offset + sums * size_of(DType::kF32);
}

void check_panels(const PanelGemm& gemm) {
  const PanelShape own = gemm.pairs ? kPairPanels : panel_shape();
  STRATA_CHECK(gemm.shape.mr == own.mr && gemm.shape.nr == own.nr,
               "[gemm] plan has panels of {} x {}: the kernels of this processor have {} x {}", gemm.shape.mr,
               gemm.shape.nr, own.mr, own.nr);
}

void run_panels(const PanelGemm& gemm, const void* a, const void* b, const float* bias, void* c,
                void* scratch) {
  if (gemm.rows == 0 || gemm.cols == 0) return;
  if (gemm.depth == 0 && gemm.accumulate) return;
  if (gemm.pairs) return Product<PairPanels>(gemm, a, b, bias, c, scratch).run();
  Product<FloatPanels>(gemm, a, b, bias, c, scratch).run();
}

}  // namespace strata::cpu::detail
