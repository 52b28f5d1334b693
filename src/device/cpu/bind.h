// What the CPU's bindings share. Each file ends with its rows of the table.
#pragma once

#include "device/bindings.h"
#include "device/plan.h"
#include "kernels/cpu/gemm.h"

namespace strata::device::cpu_bind {

inline const float* f32(const std::byte* pointer) {
  return reinterpret_cast<const float*>(pointer);
}
inline float* f32(std::byte* pointer) {
  return reinterpret_cast<float*>(pointer);
}
inline const int32_t* i32(const std::byte* pointer) {
  return reinterpret_cast<const int32_t*>(pointer);
}
inline int32_t* i32(std::byte* pointer) {
  return reinterpret_cast<int32_t*>(pointer);
}

// bind_gemm.cpp
// The encoding in which a GEMM of this role wants the weight `input`, with the activations of input 0.
std::vector<WantedEncoding> weight_encoding(cpu::GemmRole role, int input, const graph::NodeView&,
                                            const hardware::DeviceSpec&);
// The encoding that a packed weight has; InternalError where no product of the device wants it.
cpu::WeightEncoding weight_encoding_of(const graph::Value& packed, const hardware::DeviceSpec&);

// The rows of each file: ops and what binds them. Lowering sees them as one table (bindings.h).
std::span<const Binding> attention_bindings();
std::span<const Binding> capacity_bindings();
std::span<const Binding> context_bindings();
std::span<const Binding> cross_bindings();
std::span<const Binding> elementwise_bindings();
std::span<const Binding> experts_bindings();
std::span<const Binding> gemm_bindings();
std::span<const Binding> latent_bindings();
std::span<const Binding> loss_bindings();
std::span<const Binding> router_bindings();
std::span<const Binding> routers_bindings();
std::span<const Binding> update_bindings();
std::span<const Binding> update_shard_bindings();

}  // namespace strata::device::cpu_bind
