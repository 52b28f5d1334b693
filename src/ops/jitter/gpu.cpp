#include "ops/jitter/jitter.h"

#include "device/gpu/gpu.h"
#include "kernels/gpu/launch_experts.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<ops::Jitter>& node) {
  const Shape& x = node.in.x->shape;
  return node.kernel([rows = x[0], columns = x[1], eps = static_cast<float>(node.attrs.eps),
                      stream = static_cast<uint32_t>(node.attrs.stream),
                      kernel = gpu::jitter(x[0], x[1])](const Operands<ops::Jitter>& at) {
    start(at.launch, kernel,
          gpu::JitterArgs{.y = at.out.y,
                          .x = at.in.x,
                          .places = at.in.places,
                          .rows = rows,
                          .columns = columns,
                          .eps = eps,
                          .stream = stream});
  });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::SamplePlaces>& node) {
  const int64_t rows = node.out.places->shape[0];
  return node.kernel([rows, of_sample = static_cast<int32_t>(node.attrs.rows),
                      kernel = gpu::sample_places(rows)](const Operands<ops::SamplePlaces>& at) {
    start(at.launch, kernel,
          gpu::SamplePlacesArgs{
              .places = at.out.places, .samples = at.in.samples, .rows = rows, .of_sample = of_sample});
  });
}

}  // namespace strata::device
