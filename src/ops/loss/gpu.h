// A head's GEMMs on a GPU, for both forms of the loss: rows in chunks, so that few logits are in memory at a time.
#pragma once

#include <algorithm>

#include "device/gpu/gpu.h"

namespace strata::device {

// Sizes of a head, and rows of a chunk.
struct GpuHead {
  int64_t tokens, hidden, vocabulary;  // vocabulary: rows of the weight
  DType dtype;
  int64_t rows;

  template <typename Op>
  explicit GpuHead(const Bind<Op>& node)
      : tokens(node.in.x->shape[0]),
        hidden(node.in.x->shape[1]),
        vocabulary(node.in.weight->shape[0]),
        dtype(node.in.x->dtype),
        rows(std::clamp<int64_t>(kLogits / vocabulary / 64 * 64, 64, std::max<int64_t>(64, tokens))) {}

  int64_t most_rows() const { return std::min(rows, tokens); }

 private:
  static constexpr int64_t kLogits = int64_t{1} << 25;  // in memory at a time
};

// Which results a head has.
struct GpuHeadResults {
  bool input = false, weight = false;
};

// The GEMMs of `rows` rows: logits in fp32, and from their gradient, in the dtype of x, those of x, weight and bias.
struct GpuHeadChunk {
  GpuHeadResults results;
  GpuGemm logits, input, weight;
  GpuColumnSums bias;

  GpuHeadChunk(const GpuHead& of, int64_t rows, const GpuHeadResults& wanted,
               const hardware::DeviceSpec& device)
      : results(wanted),
        logits({.layout = gpu::GemmLayout::kNT,
                .dtype = of.dtype,
                .out_dtype = DType::kF32,
                .m = rows,
                .n = of.vocabulary,
                .k = of.hidden,
                .a_stride = of.hidden,
                .b_stride = of.hidden,
                .c_stride = of.vocabulary},
               device),
        input({.layout = gpu::GemmLayout::kNN,
               .dtype = of.dtype,
               .out_dtype = of.dtype,
               .m = rows,
               .n = of.hidden,
               .k = of.vocabulary,
               .a_stride = of.vocabulary,
               .b_stride = of.hidden,
               .c_stride = of.hidden},
              device),
        weight({.layout = gpu::GemmLayout::kTN,
                .dtype = of.dtype,
                .out_dtype = DType::kF32,
                .m = of.vocabulary,
                .n = of.hidden,
                .k = rows,
                .a_stride = of.vocabulary,
                .b_stride = of.hidden,
                .c_stride = of.hidden},
               device),
        bias(of.dtype, rows, of.vocabulary) {}
  int64_t scratch_bytes() const {
    return std::max({logits.scratch_bytes(), results.input ? input.scratch_bytes() : 0,
                     results.weight ? weight.scratch_bytes() : 0, results.weight ? bias.scratch_bytes() : 0});
  }
};

}  // namespace strata::device
