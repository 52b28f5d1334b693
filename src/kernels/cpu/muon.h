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

// Places in the scratch of a plan. x is held with its long side first.
struct MuonScratch {
  float *x, *next, *gram, *square;
  std::byte *encoded, *gemm;
};

// A plan made ready on this machine; used by one thread at a time, as a Gemm is.
class Muon {
 public:
  explicit Muon(const MuonPlan& plan);

  // With g = grad · grad_scale and rate = lr · lr_scale:
  //   momentum:  m += (1 - momentum)(g - m);   x = nesterov ? g + momentum (m - g) : m
  //   products:  x /= ‖x‖ + 1e-7;   steps times: a = x xᵀ, x = 3.4445 x + (-4.7750 a + 2.0315 a²) x
  //              (of the transpose where rows > columns)
  //   apply:     p -= rate · weight_decay · p;   p -= rate · x
  // scratch: scratch_bytes, aligned to 64.
  void update(float* master, float* momentum, const float* grad, const UpdateScalars* scalars,
              const MuonConstants& constants, void* scratch);

  // The products alone, to y, which may be x.
  void newton_schulz(const float* x, float* y, int64_t steps, void* scratch);

 private:
  // Returns where the result lies: in the scratch, as may what it is made from.
  float* orthogonalize(const float* from, const MuonScratch& scratch, int64_t steps);

  MuonPlan plan_;
  Gemm gram_, square_, product_;
  WeightPacker packer_;
};

// The momentum's and the last line for n elements, whatever scalars->skip says.
void muon_momentum(int64_t n, float* momentum, const float* grad, float* x, const UpdateScalars* scalars,
                   const MuonConstants& constants);
void muon_apply(int64_t n, float* master, const float* x, const UpdateScalars* scalars,
                const MuonConstants& constants);

}  // namespace strata::cpu
