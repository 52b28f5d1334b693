#include "device/gpu/gpu.h"
#include "kernels/gpu/launch_plain.h"
#include "ops/predict/predict.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<ops::TargetsAhead>& node) {
  const int64_t rows = node.in.targets->shape[0];
  return node.kernel([rows, length = node.attrs.sequence_length,
                      kernel = gpu::targets_ahead(rows)](const Operands<ops::TargetsAhead>& at) {
    start(at.launch, kernel,
          gpu::TargetsAheadArgs{.tokens = at.out.tokens,
                                .ahead_out = at.out.ahead,
                                .targets = at.in.targets,
                                .ahead = at.in.ahead,
                                .rows = static_cast<int32_t>(rows),
                                .length = static_cast<int32_t>(length)});
  });
}

}  // namespace strata::device
