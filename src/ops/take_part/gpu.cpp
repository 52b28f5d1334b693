#include "ops/take_part/take_part.h"

#include "device/gpu/gpu.h"
#include "kernels/gpu/launch_experts.h"

namespace strata::device {
namespace {

// Where the rank's place is; an axis of one rank has none.
const int32_t* place_at(const int32_t* rank_block, const ops::TakePartAttrs& attrs) {
  return attrs.ranks > 1 ? rank_block + static_cast<size_t>(attrs.axis) : nullptr;
}

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::TakePart>& node) {
  const int64_t n = node.out.part->shape[0];
  return node.kernel(
      [n, attrs = node.attrs, kernel = gpu::take_part(false, n)](const Operands<ops::TakePart>& at) {
        start(at.launch, kernel,
              gpu::TakePartArgs{.x = const_cast<float*>(at.in.x),  // only read
                                .part = at.out.part,
                                .place = place_at(at.in.rank, attrs),
                                .n = n,
                                .parts = attrs.ranks,
                                .accumulate = 0});
      });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::TakePartGrad>& node) {
  const int64_t n = node.in.dy->shape[0];
  return node.kernel(
      [n, attrs = node.attrs, adds = node.adds.dx,
       kernel = gpu::take_part(true, n * node.attrs.ranks)](const Operands<ops::TakePartGrad>& at) {
        start(at.launch, kernel,
              gpu::TakePartArgs{.x = at.out.dx,
                                .part = const_cast<float*>(at.in.dy),  // only read
                                .place = place_at(at.in.rank, attrs),
                                .n = n,
                                .parts = attrs.ranks,
                                .accumulate = adds ? 1 : 0});
      });
}

}  // namespace strata::device
