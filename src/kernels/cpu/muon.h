// Muon (Jordan et al. 2024): the momentum of a matrix with its singular values brought near one by five
// products of Newton and Schulz. Products are fp32 (the authors' are bf16), through the plans of gemm.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/optimizer.h"

namespace strata::cpu {

struct MuonConstants {
  double momentum = 0.95;
  bool nesterov = true;
  int64_t steps = 5;  // of Newton and Schulz
  double weight_decay = 0;
  double lr_scale = 1;  // with the factor that follows from the matrix's sides
};

// The products for one shape: data, like a GemmPlan.
struct MuonPlan {
  int64_t rows = 0, columns = 0;
  GemmPlan gram, square, product;
  WeightEncoding encoding;  // of the matrix that `product` multiplies with
  int64_t scratch_bytes = 0;
};
MuonPlan plan_muon(int64_t rows, int64_t columns, const hardware::DeviceSpec& device);

// A plan made ready on this machine; used by one thread at a time, as a Gemm is.
class Muon {
 public:
  explicit Muon(const MuonPlan& plan);

  // With g = grad · grad_scale and rate = lr · lr_scale:
  //   m += (1 - momentum)(g - m);   x = nesterov ? g + momentum (m - g) : m;   x /= ‖x‖ + 1e-7
  //   steps times: a = x xᵀ, x = 3.4445 x + (-4.7750 a + 2.0315 a²) x   (of the transpose where rows >
  //   columns) p -= rate · weight_decay · p;   p -= rate · x
  // scratch: scratch_bytes, aligned to 64.
  void update(float* master, float* momentum, const float* grad, const UpdateScalars* scalars,
              const MuonConstants& constants, void* scratch);

 private:
  MuonPlan plan_;
  Gemm gram_, square_, product_;
  WeightPacker packer_;
};

}  // namespace strata::cpu
