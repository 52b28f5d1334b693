#include "device/gpu/gpu.h"
#include "kernels/gpu/launch_experts.h"
#include "optim/router_bias/router_bias.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<optim::RouterBiasUpdate>& node) {
  return node.kernel([experts = static_cast<int32_t>(node.in.bias->shape[0]),
                      rate = node.attrs.rate](const Operands<optim::RouterBiasUpdate>& at) {
    start(at.launch, gpu::router_bias_update(),
          gpu::RouterBiasArgs{.bias = at.out.bias,
                              .loads = at.in.loads,
                              .scalars = at.in.scalars,
                              .rate = rate,
                              .experts = experts});
  });
}

}  // namespace strata::device
