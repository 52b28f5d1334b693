#include "kernels/cpu/jitter.h"

#include "device/cpu/cpu.h"
#include "ops/jitter/jitter.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::Jitter>& node) {
  const Shape& x = node.in.x->shape;
  return node.kernel(
      [shape = cpu::JitterShape{.rows = x[0],
                                .columns = x[1],
                                .eps = static_cast<float>(node.attrs.eps),
                                .stream = static_cast<uint32_t>(node.attrs.stream)}](
          const Operands<ops::Jitter>& at) { cpu::jitter(shape, at.out.y, at.in.x, at.in.places); });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::SamplePlaces>& node) {
  return node.kernel(
      [samples = node.in.samples->shape[0], rows = node.attrs.rows](const Operands<ops::SamplePlaces>& at) {
        cpu::sample_places(samples, rows, at.out.places, at.in.samples);
      });
}

}  // namespace strata::device
