// What the CPU's bindings share. The functions are gathered in the table of bindings.cpp.
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

// bind_gemm.cpp
// The encoding in which a GEMM of this role wants the weight `input`, with the activations of input 0.
std::vector<WantedEncoding> weight_encoding(cpu::GemmRole role, int input, const graph::NodeView&,
                                            const hardware::DeviceSpec&);
BoundKernel linear(const BindRequest&);
BoundKernel linear_grad_input(const BindRequest&);
BoundKernel linear_grad_weight(const BindRequest&);
BoundKernel pack_weight(const BindRequest&);
std::vector<WantedEncoding> linear_encodings(const graph::NodeView&, const hardware::DeviceSpec&);
std::vector<WantedEncoding> linear_grad_input_encodings(const graph::NodeView&, const hardware::DeviceSpec&);
// bind_loss.cpp
BoundKernel loss_seed(const BindRequest&);
BoundKernel softcap(const BindRequest&);
BoundKernel linear_cross_entropy(const BindRequest&);
BoundKernel linear_cross_entropy_train(const BindRequest&);
std::vector<WantedEncoding> linear_cross_entropy_encodings(const graph::NodeView&,
                                                           const hardware::DeviceSpec&);
std::vector<WantedEncoding> linear_cross_entropy_train_encodings(const graph::NodeView&,
                                                                 const hardware::DeviceSpec&);
// bind_attention.cpp
BoundKernel constant(const BindRequest&);
BoundKernel rope_table(const BindRequest&);
BoundKernel qk_norm(const BindRequest&);
BoundKernel qk_norm_grad_input(const BindRequest&);
BoundKernel qk_norm_grad_weight(const BindRequest&);
BoundKernel rope(const BindRequest&);
BoundKernel attention(const BindRequest&);
BoundKernel attention_grad(const BindRequest&);
BoundKernel cached_attention(const BindRequest&);
// bind_cross.cpp
BoundKernel cross_attention(const BindRequest&);
BoundKernel cross_attention_grad(const BindRequest&);
BoundKernel cached_cross_attention(const BindRequest&);
BoundKernel store_cross(const BindRequest&);
BoundKernel document_ends(const BindRequest&);
BoundKernel relative_bias(const BindRequest&);
BoundKernel relative_bias_grad(const BindRequest&);
// bind_elementwise.cpp
BoundKernel add(const BindRequest&);
BoundKernel embedding(const BindRequest&);
BoundKernel embedding_grad(const BindRequest&);
BoundKernel rms_norm(const BindRequest&);
BoundKernel rms_norm_grad_input(const BindRequest&);
BoundKernel rms_norm_grad_weight(const BindRequest&);
BoundKernel layer_norm(const BindRequest&);
BoundKernel layer_norm_grad_input(const BindRequest&);
BoundKernel layer_norm_grad_weight(const BindRequest&);
BoundKernel gated(const BindRequest&);
BoundKernel gated_grad(const BindRequest&);
BoundKernel activation(const BindRequest&);
BoundKernel activation_grad(const BindRequest&);
BoundKernel column_sums(const BindRequest&);
BoundKernel scale(const BindRequest&);
BoundKernel add_row(const BindRequest&);
BoundKernel add_row_grad(const BindRequest&);
BoundKernel take_row(const BindRequest&);
// bind_clamp.cpp
BoundKernel clamp(const BindRequest&);
BoundKernel clamp_grad(const BindRequest&);
// bind_update.cpp
BoundKernel sum_of_squares(const BindRequest&);
BoundKernel update_scalars(const BindRequest&);
BoundKernel root_of_sum(const BindRequest&);
BoundKernel adamw(const BindRequest&);

}  // namespace strata::device::cpu_bind
