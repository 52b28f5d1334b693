// GEMMs by oneDNN's matmul primitive, with bf16 on processors with bf16 dot products or AMX. Internal to the
// gemm family.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cpu/gemm.h"

namespace strata::cpu {

namespace detail {

// True if oneDNN computes bf16 GEMMs with bf16 instructions on this processor.
bool onednn_has_native_bf16();

// Scratch bytes of a GEMM on this device. Queries the library if the device has the relevant instruction sets
// of this processor; otherwise returns an estimate, for pricing.
int64_t onednn_scratch_bytes(const GemmSpec& spec, const hardware::DeviceSpec& device);

class OneDnnGemm {
 public:
  OneDnnGemm(const GemmSpec& spec, int threads);  // strides filled in, no size 0
  ~OneDnnGemm();
  OneDnnGemm(OneDnnGemm&&) noexcept;
  int64_t scratch_bytes() const;
  std::string name() const;
  void run(const GemmArgs& args);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Completes a packed layout whose role, sizes and dtype are set. For bf16: VNNI blocks of 16 pairs x 64
// columns, which the library's GEMMs read on every processor with bf16 instructions and which are also the
// VNNI panels of the in-house GEMM (bf16_block.h).
inline constexpr int64_t kEncodedDepth = 32;
inline constexpr int64_t kEncodedColumns = 64;
void plan_onednn_encoding(WeightEncoding& encoding);

class OneDnnPacker {
 public:
  explicit OneDnnPacker(const WeightEncoding& encoding);
  ~OneDnnPacker();
  OneDnnPacker(OneDnnPacker&&) noexcept;
  void pack(void* dst, const float* master);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace detail
}  // namespace strata::cpu
