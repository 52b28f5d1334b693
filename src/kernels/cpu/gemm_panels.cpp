#include "kernels/cpu/gemm_panels.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/bf16_block.h"
#include "kernels/cpu/gemm_panels-inl.h"
#include "kernels/cpu/parts.h"
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
constexpr int64_t kTaskElements = kTaskRows * kDepthBlock;
constexpr int64_t kPackedElements = 2 << 20;  // of b's block
// At least this many tasks (of rows and, if there are few row blocks, of groups of columns), so that all
// threads finish at about the same time.
constexpr int64_t kTasks = 16;
// With fewer columns, packing a costs more than reading it unpacked, from too many addresses at the same
// time.
constexpr int64_t kPackedCols = 256;

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

// Operands in memory as OperandView describes them.
template <typename Panels>
class PlainOperands {
 public:
  using Value = typename Panels::Value;
  PlainOperands(const PanelGemm& gemm, const void* a, const void* b) : gemm_(gemm), a_(gemm.a), b_(gemm.b) {
    a_.data = a;
    b_.data = b;
  }

  static int64_t values(int64_t depth, int64_t width) { return Panels::values(depth, width); }
  void pack_a(Value* to, int64_t row, int64_t rows, int64_t deep, int64_t depth) const {
    Panels::pack(to, gemm_.shape.mr, a_, row, rows, deep, depth);
  }
  void pack_b(Value* to, int64_t col, int64_t cols, int64_t deep, int64_t depth) const {
    Panels::pack(to, gemm_.shape.nr, b_, col, cols, deep, depth);
  }
  const Value* ready_b(int64_t col, int64_t deep) const {
    if (gemm_.b_panel_depth == 0) return nullptr;
    const int64_t nr = gemm_.shape.nr;
    return static_cast<const Value*>(b_.data) + col / nr * ready_stride() + deep * nr;
  }
  int64_t ready_stride() const { return values(gemm_.b_panel_depth, gemm_.shape.nr); }
  void multiply(const BlockOutput& out, PanelPlace place, const Value* a, int64_t a_stride, const Value* b,
                int64_t b_stride, int64_t rows, int64_t cols, int64_t depth, const Value* next) const {
    if (!gemm_.direct_a) return Panels::multiply(out, a, a_stride, b, b_stride, rows, cols, depth, next);
    const Value* const from = static_cast<const Value*>(a_.data) + place.row * a_.stride + place.deep;
    Panels::multiply_rows(out, from, a_.stride, b, b_stride, rows, cols, depth, next);
  }

 private:
  const PanelGemm& gemm_;
  OperandView a_, b_;
};

template <typename Panels>
void run_plain(const PanelGemm& gemm, const void* a, const void* b, const float* bias, void* c,
               void* scratch) {
  const PlainOperands<Panels> operands(gemm, a, b);
  PanelProduct(gemm, operands, bias, c, scratch).run();
}

}  // namespace

void plan_panels(PanelGemm& gemm, int threads) {
  const PanelShape shape = gemm.shape;
  const bool f32 = gemm.out_dtype == DType::kF32;
  const DType panels = gemm.pairs ? DType::kBF16 : DType::kF32;
  const int64_t in_float = size_of(DType::kF32) / size_of(panels);
  gemm.threads = threads;
  // VNNI pairs can be read unpacked only if the depth is even.
  gemm.direct_a = !gemm.codes && gemm.a.dtype == panels && !gemm.a.depth_major && gemm.cols <= kPackedCols &&
                  gemm.depth % in_float == 0;
  if (gemm.depth_step == 0)
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
  if (gemm.pairs) return run_plain<PairPanels>(gemm, a, b, bias, c, scratch);
  run_plain<FloatPanels>(gemm, a, b, bias, c, scratch);
}

}  // namespace strata::cpu::detail
