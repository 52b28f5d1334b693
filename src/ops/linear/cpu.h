// Packed layouts of weights for GEMMs on the CPU.
#pragma once

#include <initializer_list>

#include "device/cpu/cpu.h"
#include "kernels/cpu/gemm.h"

namespace strata::device {

// A weight of an op, and the role of the GEMM that reads it.
template <typename Op>
struct ProductWeight {
  graph::InputName<Op> input;
  cpu::GemmRole role;
};

// With activations of this type. Weights that GEMMs read unpacked have none.
template <typename Op>
Encodings<Op> encodings_of(const graph::View<Op>& node, DType dtype, const hardware::DeviceSpec& device,
                           std::initializer_list<ProductWeight<Op>> weights) {
  Encodings<Op> wanted;
  for (const auto& [input, role] : weights) {
    const Shape& weight = node.untyped().in(input.position).shape;
    const auto encoding = cpu::plan_weight_encoding(role, weight[0], weight[1], dtype, device);
    if (encoding.plain) continue;
    wanted.push_back({input, {graph::Encoding::Kind::kPacked, encoding.bytes, encoding.id}, dtype});
  }
  return wanted;
}

// The layout of a packed weight; InternalError if no GEMM of the device reads it.
cpu::WeightEncoding weight_encoding_of(const graph::Value& packed, const hardware::DeviceSpec& device);

}  // namespace strata::device
