#include "ops/loss/loss.h"

#include "ops/loss/gpu.h"

namespace strata::device {
namespace {

// The loss of rows in chunks, so that few logits are in memory at a time: their GEMM into fp32, then softmax and
// gradient, then the GEMMs of both gradients.
template <typename Op>
class Head {
 public:
  explicit Head(const Bind<Op>& node)
      : head_(node),
        loss_(gpu::cross_entropy(DType::kF32, head_.dtype, head_.rows, head_.vocabulary, head_.vocabulary)),
        softcap_(static_cast<float>(node.attrs.softcap)),
        adds_loss_(node.adds.sum) {
    if constexpr (kTrains) {
      adds_weight_ = node.adds.dw;
      adds_bias_ = node.adds.dbias;
    }
    const int64_t tokens = head_.tokens, logits = head_.most_rows() * head_.vocabulary;
    losses_at_ = scratch_.take(tokens * size_of(DType::kF32));
    logits_at_ = scratch_.take(logits * size_of(DType::kF32));
    gradient_at_ =
        head_.dtype == DType::kF32 || !kTrains ? logits_at_ : scratch_.take(logits * size_of(head_.dtype));
    int64_t parts = 0;
    const GpuHeadResults results{.input = kTrains, .weight = kTrains};
    if (tokens >= head_.rows) chunks_.emplace_back(head_, head_.rows, results, node.device);
    if (tokens % head_.rows != 0) chunks_.emplace_back(head_, tokens % head_.rows, results, node.device);
    for (const GpuHeadChunk& chunk : chunks_) parts = std::max(parts, chunk.scratch_bytes());
    parts_at_ = scratch_.take(parts);
  }

  int64_t scratch_bytes() const { return scratch_.bytes(); }

  void run(const Operands<Op>& at) const {
    auto* losses = reinterpret_cast<float*>(at.scratch + losses_at_);
    if constexpr (!kTrains) {
      if (at.out.per_token != nullptr) losses = at.out.per_token;
    }
    for (int64_t first = 0; first < head_.tokens; first += head_.rows) {
      const int64_t rows = std::min(head_.rows, head_.tokens - first);
      run_chunk(at, first, rows, rows < head_.rows ? chunks_.back() : chunks_.front(), losses);
    }
    start(at.launch, gpu::loss_sum(),
          gpu::LossSumArgs{.sum = at.out.sum,
                           .count = at.out.count,
                           .losses = losses,
                           .targets = at.in.targets,
                           .tokens = static_cast<int32_t>(head_.tokens),
                           .accumulate = adds_loss_ ? 1 : 0});
  }

 private:
  static constexpr bool kTrains = std::is_same_v<Op, ops::LinearCrossEntropyTrain>;
  void run_chunk(const Operands<Op>& at, int64_t first, int64_t rows, const GpuHeadChunk& chunk,
                 float* losses) const {
    const int64_t row = head_.hidden * size_of(head_.dtype);
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
                               .stride = head_.vocabulary,
                               .vocab = static_cast<int32_t>(head_.vocabulary),
                               .valid = static_cast<int32_t>(head_.vocabulary),
                               .grad_scale = 1,
                               .z_loss = 0,
                               .softcap = softcap_};
    if constexpr (kTrains) {
      args.gradient = gradient;
      args.scale = at.in.seed;
    } else if (at.out.greedy != nullptr) {
      args.greedy = at.out.greedy + first;
    }
    gpu::KernelLaunch loss = loss_;
    loss.grid_x = static_cast<uint32_t>(rows);
    start(at.launch, loss, args);
    if constexpr (kTrains) {
      chunk.weight.run(at.launch, gradient, x, at.out.dw, adds_weight_ || first > 0, parts);
      if (at.out.dbias != nullptr)
        chunk.bias.run(at.launch, gradient, at.out.dbias, adds_bias_ || first > 0, parts);
      // Last: dx may take the place of x.
      chunk.input.run(at.launch, gradient, at.in.weight_of_dx, at.out.dx + first * row, false, parts);
    }
  }

  GpuHead head_;
  gpu::KernelLaunch loss_;  // of a chunk
  float softcap_;
  bool adds_loss_, adds_weight_ = false, adds_bias_ = false;
  GpuScratch scratch_;
  int64_t losses_at_ = 0, logits_at_ = 0, gradient_at_ = 0, parts_at_ = 0;
  std::vector<GpuHeadChunk> chunks_;  // whole ones, then the last one
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
