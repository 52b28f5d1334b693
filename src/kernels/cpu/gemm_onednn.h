// GEMMs by oneDNN's matmul primitive: bf16 where the processor has dot products or tiles for it. Internal to
// the gemm family.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cpu/gemm.h"

namespace strata::cpu {

struct WeightEncoding::Packer {
  virtual ~Packer() = default;
  virtual void pack(void* dst, const float* master) = 0;
};

namespace detail {

// True where oneDNN computes bf16 GEMMs with bf16 instructions on this processor.
bool onednn_has_native_bf16();

class OneDnnGemm {
 public:
  explicit OneDnnGemm(const GemmSpec& spec);  // strides filled in, no size 0
  ~OneDnnGemm();
  OneDnnGemm(const OneDnnGemm&) = delete;
  OneDnnGemm& operator=(const OneDnnGemm&) = delete;
  int64_t scratch_bytes() const;
  std::string name() const;
  void run(const GemmArgs& args);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Completes an encoding whose role, sizes, dtype and engine are set.
void plan_onednn_encoding(WeightEncoding& encoding);

}  // namespace detail
}  // namespace strata::cpu
