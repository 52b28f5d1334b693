#include "ops/soft_experts/soft_experts.h"

#include "device/gpu/gpu.h"
#include "kernels/gpu/launch_experts.h"

namespace strata::device {
namespace {

// What all four have: softmaxes over a group's tokens (dispatch) or mixed inputs (combine), in scratch memory.
struct SoftMixture {
  gpu::SoftArgs sizes{};
  DType dtype;
  bool of_tokens;

  template <typename Op>
  SoftMixture(const Bind<Op>& node, const graph::Value& rows, bool over_tokens)
      : dtype(rows.dtype), of_tokens(over_tokens) {
    const Shape& logits = node.in.logits->shape;
    sizes.groups = static_cast<int32_t>(logits[0] / node.attrs.rows);
    sizes.rows = static_cast<int32_t>(node.attrs.rows);
    sizes.slots = static_cast<int32_t>(logits[1]);
    sizes.of_expert = static_cast<int32_t>(logits[1] / node.attrs.experts);
    sizes.columns = rows.shape[1];
  }
  int64_t scratch_bytes() const {
    return int64_t{sizes.groups} * sizes.rows * sizes.slots * size_of(DType::kF32);
  }
  gpu::SoftArgs weigh(const Launch& launch, const float* logits, std::byte* scratch) const {
    gpu::SoftArgs args = sizes;
    args.weights = reinterpret_cast<float*>(scratch);
    args.logits = logits;
    start(launch, gpu::soft_weights(of_tokens, args), args);
    return args;
  }
  void mix(const Launch& launch, gpu::SoftArgs args, bool to_slots, const void* from, void* to) const {
    args.a = from;
    args.out = to;
    start(launch, gpu::soft_mix(to_slots, dtype, args), args);
  }
  // The gradient of the logits, from the rows whose dot products are that of the weights.
  void through(const Launch& launch, gpu::SoftArgs args, const void* tokens, const void* slots,
               float* dlogits) const {
    args.a = tokens;
    args.b = slots;
    args.dlogits = dlogits;
    start(launch, gpu::soft_products(dtype, args), args);
    start(launch, gpu::soft_through(of_tokens, args), args);
  }
};

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::SoftDispatch>& node) {
  const SoftMixture mixture(node, *node.in.x, true);
  return node.kernel(
      [mixture](const Operands<ops::SoftDispatch>& at) {
        gpu::SoftArgs args = mixture.weigh(at.launch, at.in.logits, at.scratch);
        mixture.mix(at.launch, args, true, at.in.x, at.out.slots);
        args.experts = at.out.experts;
        args.ones = at.out.weights;
        start(at.launch, gpu::soft_slots(args), args);
      },
      mixture.scratch_bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::SoftDispatchGrad>& node) {
  const SoftMixture mixture(node, *node.in.x, true);
  return node.kernel(
      [mixture](const Operands<ops::SoftDispatchGrad>& at) {
        const gpu::SoftArgs args = mixture.weigh(at.launch, at.in.logits, at.scratch);
        mixture.mix(at.launch, args, false, at.in.dslots, at.out.dx);
        mixture.through(at.launch, args, at.in.x, at.in.dslots, at.out.dlogits);
      },
      mixture.scratch_bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::SoftCombine>& node) {
  const SoftMixture mixture(node, *node.in.h, false);
  return node.kernel(
      [mixture](const Operands<ops::SoftCombine>& at) {
        const gpu::SoftArgs args = mixture.weigh(at.launch, at.in.logits, at.scratch);
        mixture.mix(at.launch, args, false, at.in.h, at.out.y);
      },
      mixture.scratch_bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::SoftCombineGrad>& node) {
  const SoftMixture mixture(node, *node.in.h, false);
  return node.kernel(
      [mixture](const Operands<ops::SoftCombineGrad>& at) {
        const gpu::SoftArgs args = mixture.weigh(at.launch, at.in.logits, at.scratch);
        mixture.mix(at.launch, args, true, at.in.dy, at.out.dh);
        mixture.through(at.launch, args, at.in.dy, at.in.h, at.out.dlogits);
      },
      mixture.scratch_bytes());
}

}  // namespace strata::device
