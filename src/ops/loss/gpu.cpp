#include "ops/loss/loss.h"

#include <algorithm>

#include "device/gpu/gpu.h"

namespace strata::device {
namespace {

// The loss of rows in chunks, so that few logits are in memory at a time: their GEMM into fp32, then softmax and
// gradient, then the GEMMs of both gradients.
template <typename Op>
class Head {
 public:
  explicit Head(const Bind<Op>& node)
      : tokens_(node.in.x->shape[0]),
        hidden_(node.in.x->shape[1]),
        vocab_(node.in.weight->shape[0]),
        dtype_(node.in.x->dtype),
        rows_(std::clamp<int64_t>(kLogits / vocab_ / 64 * 64, 64, std::max<int64_t>(64, tokens_))),
        softcap_(static_cast<float>(node.attrs.softcap)),
        adds_loss_(node.adds.sum) {
    if constexpr (kTrains) {
      adds_weight_ = node.adds.dw;
      adds_bias_ = node.adds.dbias;
    }
    losses_at_ = scratch_.take(tokens_ * size_of(DType::kF32));
    const int64_t most = std::min(rows_, tokens_);
    logits_at_ = scratch_.take(most * vocab_ * size_of(DType::kF32));
    gradient_at_ =
        dtype_ == DType::kF32 || !kTrains ? logits_at_ : scratch_.take(most * vocab_ * size_of(dtype_));
    int64_t parts = 0;
    if (tokens_ >= rows_) chunks_.emplace_back(*this, rows_, node.device);
    if (tokens_ % rows_ != 0) chunks_.emplace_back(*this, tokens_ % rows_, node.device);
    for (const Chunk& chunk : chunks_) parts = std::max(parts, chunk.scratch_bytes());
    parts_at_ = scratch_.take(parts);
  }

  int64_t scratch_bytes() const { return scratch_.bytes(); }

  void run(const Operands<Op>& at) const {
    auto* losses = reinterpret_cast<float*>(at.scratch + losses_at_);
    if constexpr (!kTrains) {
      if (at.out.per_token != nullptr) losses = at.out.per_token;
    }
    for (int64_t first = 0; first < tokens_; first += rows_)
      run_chunk(at, first, tokens_ - first < rows_ ? chunks_.back() : chunks_.front(), losses);
    start(at.launch, gpu::loss_sum(),
          gpu::LossSumArgs{.sum = at.out.sum,
                           .count = at.out.count,
                           .losses = losses,
                           .targets = at.in.targets,
                           .tokens = static_cast<int32_t>(tokens_),
                           .accumulate = adds_loss_ ? 1 : 0});
  }

 private:
  static constexpr bool kTrains = std::is_same_v<Op, ops::LinearCrossEntropyTrain>;
  static constexpr int64_t kLogits = int64_t{1} << 25;  // in memory at a time

  struct Chunk {
    int64_t rows;
    GpuGemm logits, input, weight;
    GpuColumnSums bias;
    gpu::KernelLaunch loss;

    Chunk(const Head& of, int64_t count, const hardware::DeviceSpec& device)
        : rows(count),
          logits({.layout = gpu::GemmLayout::kNT,
                  .dtype = of.dtype_,
                  .out_dtype = DType::kF32,
                  .m = count,
                  .n = of.vocab_,
                  .k = of.hidden_,
                  .a_stride = of.hidden_,
                  .b_stride = of.hidden_,
                  .c_stride = of.vocab_},
                 device),
          input({.layout = gpu::GemmLayout::kNN,
                 .dtype = of.dtype_,
                 .out_dtype = of.dtype_,
                 .m = count,
                 .n = of.hidden_,
                 .k = of.vocab_,
                 .a_stride = of.vocab_,
                 .b_stride = of.hidden_,
                 .c_stride = of.hidden_},
                device),
          weight({.layout = gpu::GemmLayout::kTN,
                  .dtype = of.dtype_,
                  .out_dtype = DType::kF32,
                  .m = of.vocab_,
                  .n = of.hidden_,
                  .k = count,
                  .a_stride = of.vocab_,
                  .b_stride = of.hidden_,
                  .c_stride = of.hidden_},
                 device),
          bias(of.dtype_, count, of.vocab_),
          loss(gpu::cross_entropy(DType::kF32, of.dtype_, count, of.vocab_, of.vocab_)) {}
    int64_t scratch_bytes() const {
      return std::max({logits.scratch_bytes(), kTrains ? input.scratch_bytes() : 0,
                       kTrains ? weight.scratch_bytes() : 0, kTrains ? bias.scratch_bytes() : 0});
    }
  };

  void run_chunk(const Operands<Op>& at, int64_t first, const Chunk& chunk, float* losses) const {
    const int64_t row = hidden_ * size_of(dtype_);
    const std::byte* const x = at.in.x + first * row;
    std::byte *const logits = at.scratch + logits_at_, *const parts = at.scratch + parts_at_;
    std::byte* const gradient = at.scratch + gradient_at_;
    chunk.logits.run(at.launch, x, at.in.weight, logits, false, parts, at.in.bias);
    gpu::CrossEntropyArgs args{.logits = logits,
                               .gradient = nullptr,
                               .targets = at.in.targets + first,
                               .losses = losses + first,
                               .lse = nullptr,
                               .greedy = nullptr,
                               .scale = nullptr,
                               .stride = vocab_,
                               .vocab = static_cast<int32_t>(vocab_),
                               .valid = static_cast<int32_t>(vocab_),
                               .grad_scale = 1,
                               .z_loss = 0,
                               .softcap = softcap_};
    if constexpr (kTrains) {
      args.gradient = gradient;
      args.scale = at.in.seed;
    } else if (at.out.greedy != nullptr) {
      args.greedy = at.out.greedy + first;
    }
    start(at.launch, chunk.loss, args);
    if constexpr (kTrains) {
      chunk.weight.run(at.launch, gradient, x, at.out.dw, adds_weight_ || first > 0, parts);
      if (at.out.dbias != nullptr)
        chunk.bias.run(at.launch, gradient, at.out.dbias, adds_bias_ || first > 0, parts);
      // Last: dx may take the place of x.
      chunk.input.run(at.launch, gradient, at.in.weight_of_dx, at.out.dx + first * row, false, parts);
    }
  }

  int64_t tokens_, hidden_, vocab_;
  DType dtype_;
  int64_t rows_;  // of a chunk
  float softcap_;
  bool adds_loss_, adds_weight_ = false, adds_bias_ = false;
  GpuScratch scratch_;
  int64_t losses_at_ = 0, logits_at_ = 0, gradient_at_ = 0, parts_at_ = 0;
  std::vector<Chunk> chunks_;  // whole ones, then the last one
};

template <typename Op>
BoundKernel bind_head(const Bind<Op>& node) {
  const Head<Op> head(node);
  return node.kernel([head](const Operands<Op>& at) { head.run(at); }, head.scratch_bytes());
}

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::LinearCrossEntropy>& node) {
  return bind_head(node);
}
template <>
Encodings<ops::LinearCrossEntropy> encodings(Gpu, const graph::View<ops::LinearCrossEntropy>& node,
                                             const hardware::DeviceSpec&) {
  return bf16_copies<ops::LinearCrossEntropy>(node, node.in.x->dtype, {"weight"});
}

template <>
BoundKernel bind(Gpu, const Bind<ops::LinearCrossEntropyTrain>& node) {
  return bind_head(node);
}
template <>
Encodings<ops::LinearCrossEntropyTrain> encodings(Gpu, const graph::View<ops::LinearCrossEntropyTrain>& node,
                                                  const hardware::DeviceSpec&) {
  return bf16_copies<ops::LinearCrossEntropyTrain>(node, node.in.x->dtype, {"weight", "weight_of_dx"});
}

}  // namespace strata::device
