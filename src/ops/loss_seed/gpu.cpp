#include "device/gpu/gpu.h"
#include "graph/loss_seed.h"
#include "kernels/gpu/launch_plain.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<graph::LossSeed>& node) {
  if (node.in.scale) not_yet("loss_seed", "of a scaled loss");
  return node.kernel([weight = node.attrs.weight](const Operands<graph::LossSeed>& at) {
    start(at.launch, gpu::loss_seed(),
          gpu::LossSeedArgs{
              .seed = at.out.seed, .main_terms = at.in.main_terms, .terms = at.in.terms, .weight = weight});
  });
}

}  // namespace strata::device
