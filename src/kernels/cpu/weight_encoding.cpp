#include "kernels/cpu/weight_encoding.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/bf16_block.h"
#include "kernels/cpu/gemm_onednn.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

using detail::kEncodedColumns;
using detail::kEncodedDepth;

// A packed weight consists of panels of kEncodedColumns columns of the GEMM's right operand, `stride` values
// apart: Wᵀ for the forward GEMM, whose columns are W's rows, and W for the input gradient.
struct Panels {
  bool forward;
  int64_t depth, columns, stride;
  explicit Panels(const WeightEncoding& encoding)
      : forward(encoding.role == GemmRole::kForward),
        depth(forward ? encoding.k : encoding.n),
        columns(forward ? encoding.n : encoding.k),
        stride(align_up(depth, kEncodedDepth) * kEncodedColumns) {}
};

}  // namespace

void encode_rows(const WeightEncoding& encoding, BF16* to, const float* master, int64_t begin, int64_t end) {
  static_assert(kEncodedColumns % kEncodedRows == 0 && kEncodedDepth % kEncodedRows == 0);
  STRATA_CHECK(begin % kEncodedRows == 0, "[gemm] rows to pack begin at {}: expected a multiple of {}", begin,
               kEncodedRows);
  const Panels panels(encoding);
  const int64_t k = encoding.k;
  if (panels.forward) {
    for (int64_t row = begin; row < end; row += kEncodedRows) {
      BF16* const at = to + row / kEncodedColumns * panels.stride + row % kEncodedColumns * 2;
      detail::pack_pairs_within(at, kEncodedColumns, master + row * k, k, std::min(kEncodedRows, end - row),
                                k);
    }
    return;
  }
  const detail::OperandView view{.data = master, .dtype = DType::kF32, .stride = k, .depth_major = true};
  for (int64_t column = 0; column < k; column += kEncodedColumns) {
    BF16* const at = to + column / kEncodedColumns * panels.stride + begin * kEncodedColumns;
    detail::pack_pairs(at, kEncodedColumns, view, column, std::min(kEncodedColumns, k - column), begin,
                       end - begin);
  }
}

void clear_encoding(const WeightEncoding& encoding, BF16* to) {
  const Panels panels(encoding);
  for (int64_t column = 0; column < panels.columns; column += kEncodedColumns, to += panels.stride) {
    const bool is_full = column + kEncodedColumns <= panels.columns;
    std::fill(is_full ? to + panels.depth / 2 * 2 * kEncodedColumns : to, to + panels.stride, BF16());
  }
}

}  // namespace strata::cpu
