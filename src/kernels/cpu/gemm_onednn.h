// GEMMs by oneDNN's matmul primitive: bf16 where the processor has dot products or tiles for it. Internal to
// the gemm family.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cpu/gemm.h"

namespace strata::cpu {

namespace detail {

// True where oneDNN computes bf16 GEMMs with bf16 instructions on this processor.
bool onednn_has_native_bf16();

// Scratch that a product takes on this device. The library is asked where it would compute there as it does
// here; else it is an estimate, to price a program with.
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

// Completes an encoding whose role, sizes and dtype are set: 16 x 64 blocks of pairs, which its products read
// on every processor with bf16 instructions, and which are the own panels of pairs too (bf16_block.h).
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
