// The split form of the loss on a GPU.
#include "kernels/gpu/launch_plain.h"
#include "ops/loss/gpu.h"
#include "ops/loss/loss.h"

namespace strata::device {
namespace {

// Logits of rows in chunks, then their statistics, or their gradient and from it those of x and of the weight.
template <typename Op>
class SplitHead {
 public:
  explicit SplitHead(const Bind<Op>& node)
      : head_(node),
        parts_(node.in.vocab_start ? node.in.vocab_start->shape[0] : 1),
        vocabulary_(static_cast<int32_t>(node.attrs.vocabulary)),
        softcap_(static_cast<float>(node.attrs.softcap)) {
    if constexpr (kWeight) {
      adds_weight_ = node.adds.dw;
      adds_bias_ = node.adds.dbias;
    }
    const int64_t logits = head_.most_rows() * head_.vocabulary;
    logits_at_ = scratch_.take(logits * size_of(DType::kF32));
    gradient_at_ = head_.dtype == DType::kF32 || !(kInput || kWeight)
                       ? logits_at_
                       : scratch_.take(logits * size_of(head_.dtype));
    const GpuHeadResults results{.input = kInput, .weight = kWeight};
    if (head_.tokens >= head_.rows) chunks_.emplace_back(head_, head_.rows, results, node.device);
    if (head_.tokens % head_.rows != 0)
      chunks_.emplace_back(head_, head_.tokens % head_.rows, results, node.device);
    int64_t sums = 0;
    for (const GpuHeadChunk& chunk : chunks_) sums = std::max(sums, chunk.scratch_bytes());
    sums_at_ = scratch_.take(sums);
  }

  int64_t scratch_bytes() const { return scratch_.bytes(); }

  void run(const Operands<Op>& at) const {
    for (int64_t first = 0; first < head_.tokens; first += head_.rows) {
      const int64_t rows = std::min(head_.rows, head_.tokens - first);
      run_chunk(at, first, rows, rows < head_.rows ? chunks_.back() : chunks_.front());
    }
  }

 private:
  static constexpr bool kInput =
      std::is_same_v<Op, ops::CrossEntropyGradInput> || std::is_same_v<Op, ops::CrossEntropyGrad>;
  static constexpr bool kWeight =
      std::is_same_v<Op, ops::CrossEntropyGradWeight> || std::is_same_v<Op, ops::CrossEntropyGrad>;

  void run_chunk(const Operands<Op>& at, int64_t first, int64_t rows, const GpuHeadChunk& chunk) const {
    const int64_t row = head_.hidden * size_of(head_.dtype), columns = head_.vocabulary / parts_;
    const std::byte* const x = at.in.x + first * row;
    std::byte *const logits = at.scratch + logits_at_, *const gradient = at.scratch + gradient_at_,
                     *const sums = at.scratch + sums_at_;
    chunk.logits.run(at.launch, x, at.in.weight, logits, false, sums, at.in.bias);
    gpu::SplitLossArgs args{};
    args.logits = reinterpret_cast<const float*>(logits);
    args.targets = at.in.targets + first;
    args.starts = at.in.vocab_start;
    args.tokens = head_.tokens;
    args.stride = head_.vocabulary;
    args.parts = static_cast<int32_t>(parts_);
    args.columns = static_cast<int32_t>(columns);
    args.vocabulary = vocabulary_;
    args.softcap = softcap_;
    if constexpr (!kInput && !kWeight) {
      args.statistics = at.out.statistics + 3 * first;
      start(at.launch, gpu::split_loss_statistics(rows, parts_, columns), args);
    } else {
      args.statistics = const_cast<float*>(at.in.statistics) + 3 * first;  // only read
      args.dstatistics = at.in.dstatistics + 3 * first;
      args.gradient = gradient;
      start(at.launch, gpu::split_loss_gradient(head_.dtype, rows, parts_, columns), args);
    }
    if constexpr (kWeight) {
      chunk.weight.run(at.launch, gradient, x, at.out.dw, adds_weight_ || first > 0, sums);
      if (at.out.dbias != nullptr)
        chunk.bias.run(at.launch, gradient, at.out.dbias, adds_bias_ || first > 0, sums);
    }
    // Last: dx may take the place of x.
    if constexpr (kInput)
      chunk.input.run(at.launch, gradient, at.in.weight_of_dx, at.out.dx + first * row, false, sums);
  }

  GpuHead head_;
  int64_t parts_;
  int32_t vocabulary_;  // of all ranks
  float softcap_;
  bool adds_weight_ = false, adds_bias_ = false;
  GpuScratch scratch_;
  int64_t logits_at_ = 0, gradient_at_ = 0, sums_at_ = 0;
  std::vector<GpuHeadChunk> chunks_;  // whole ones, then the last one
};

template <typename Op>
BoundKernel bind_split(const Bind<Op>& node) {
  const SplitHead<Op> head(node);
  return node.kernel([head](const Operands<Op>& at) { head.run(at); }, head.scratch_bytes());
}

template <typename Op>
gpu::LossOfStatisticsArgs statistics_of(const Bind<Op>& node) {
  gpu::LossOfStatisticsArgs args{};
  args.parts = static_cast<int32_t>(node.in.statistics->shape[0]);
  args.tokens = static_cast<int32_t>(node.in.statistics->shape[1]);
  return args;
}

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::CrossEntropyStatistics>& node) {
  return bind_split(node);
}
template <>
Encodings<ops::CrossEntropyStatistics> encodings(Gpu, const graph::View<ops::CrossEntropyStatistics>& node,
                                                 const hardware::DeviceSpec&) {
  return bf16_copies<ops::CrossEntropyStatistics>(node, node.in.x->dtype, {"weight"});
}

template <>
BoundKernel bind(Gpu, const Bind<ops::CrossEntropyGradInput>& node) {
  return bind_split(node);
}
template <>
Encodings<ops::CrossEntropyGradInput> encodings(Gpu, const graph::View<ops::CrossEntropyGradInput>& node,
                                                const hardware::DeviceSpec&) {
  return bf16_copies<ops::CrossEntropyGradInput>(node, node.in.x->dtype, {"weight", "weight_of_dx"});
}

template <>
BoundKernel bind(Gpu, const Bind<ops::CrossEntropyGradWeight>& node) {
  return bind_split(node);
}
template <>
Encodings<ops::CrossEntropyGradWeight> encodings(Gpu, const graph::View<ops::CrossEntropyGradWeight>& node,
                                                 const hardware::DeviceSpec&) {
  return bf16_copies<ops::CrossEntropyGradWeight>(node, node.in.x->dtype, {"weight"});
}

template <>
BoundKernel bind(Gpu, const Bind<ops::CrossEntropyGrad>& node) {
  return bind_split(node);
}
template <>
Encodings<ops::CrossEntropyGrad> encodings(Gpu, const graph::View<ops::CrossEntropyGrad>& node,
                                           const hardware::DeviceSpec&) {
  return bf16_copies<ops::CrossEntropyGrad>(node, node.in.x->dtype, {"weight", "weight_of_dx"});
}

template <>
BoundKernel bind(Gpu, const Bind<ops::CrossEntropyLoss>& node) {
  const gpu::LossOfStatisticsArgs args = statistics_of(node);
  return node.kernel(
      [args, adds = node.adds.sum](const Operands<ops::CrossEntropyLoss>& at) {
        gpu::LossOfStatisticsArgs now = args;
        now.statistics = at.in.statistics;
        now.targets = at.in.targets;
        now.losses = at.out.per_token != nullptr ? at.out.per_token : reinterpret_cast<float*>(at.scratch);
        now.greedy = at.out.greedy;
        start(at.launch, gpu::loss_of_statistics(args.tokens), now);
        start(at.launch, gpu::loss_sum(),
              gpu::LossSumArgs{.sum = at.out.sum,
                               .count = at.out.count,
                               .losses = now.losses,
                               .targets = at.in.targets,
                               .tokens = args.tokens,
                               .accumulate = adds ? 1 : 0});
      },
      args.tokens * size_of(DType::kF32));
}

template <>
BoundKernel bind(Gpu, const Bind<ops::CrossEntropyLossGrad>& node) {
  return node.kernel([args = statistics_of(node)](const Operands<ops::CrossEntropyLossGrad>& at) {
    gpu::LossOfStatisticsArgs now = args;
    now.statistics = at.in.statistics;
    now.dstatistics = at.out.dstatistics;
    now.targets = at.in.targets;
    now.seed = at.in.seed;
    start(at.launch, gpu::loss_of_statistics_gradient(args.tokens), now);
  });
}

}  // namespace strata::device
