#include "device/gpu/gpu.h"
#include "kernels/gpu/launch_plain.h"
#include "ops/vocabulary/vocabulary.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<ops::VocabStart>& node) {
  return node.kernel([attrs = node.attrs](const Operands<ops::VocabStart>& at) {
    start(at.launch, gpu::vocab_start(attrs.parts),
          gpu::VocabStartArgs{.start = at.out.start,
                              .rank = at.in.rank,
                              .parts = static_cast<int32_t>(attrs.parts),
                              .rows = static_cast<int32_t>(attrs.rows),
                              .ranks = static_cast<int32_t>(attrs.ranks),
                              .axis = static_cast<int32_t>(attrs.axis)});
  });
}

}  // namespace strata::device
