// Muon (Jordan et al. 2024): orthogonalizes the momentum of a matrix by five Newton-Schulz iterations. Their
// GEMMs are fp32 (the authors' are bf16) and use the plans of gemm.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/optimizer.h"

namespace strata::cpu {

struct MuonConstants {
  double momentum = 0.95;
  bool nesterov = true;
  int64_t steps = 5;  // Newton-Schulz iterations
  double weight_decay = 0;
  double lr_scale = 1;  // includes the factor that depends on the matrix's dimensions
};

// The GEMMs for one shape: data, like a GemmPlan.
struct MuonPlan {
  int64_t rows = 0, columns = 0;
  GemmPlan gram, square, product;
  WeightEncoding encoding;  // packed layout of the last GEMM's weight operand
  int64_t scratch_bytes = 0;
};
MuonPlan plan_muon(int64_t rows, int64_t columns, const hardware::DeviceSpec& device);

// Addresses in the scratch of a plan. The rows of x are the longer dimension.
struct MuonScratch {
  float *x, *next, *gram, *square;
  std::byte *encoded, *gemm;
};

// A plan prepared on this machine. Like a Gemm, used by one thread at a time.
class Muon {
 public:
  explicit Muon(const MuonPlan& plan);

  // With g = grad · grad_scale and rate = lr · lr_scale:
  //   momentum:  m += (1 - momentum)(g - m);   x = nesterov ? g + momentum (m - g) : m
  //  iterate:   x /= ‖x‖ + 1e-7;   steps times: a = x xᵀ, x = 3.4445 x + (-4.7750 a + 2.0315 a²) x
  //             (of the transpose if rows > columns)
  //   apply:     p -= rate · weight_decay · p;   p -= rate · x
  // scratch: scratch_bytes, aligned to 64.
  void update(float* master, float* momentum, const float* grad, const UpdateScalars* scalars,
              const MuonConstants& constants, void* scratch);

  // Only the iterations. y may alias x.
  void newton_schulz(const float* x, float* y, int64_t steps, void* scratch);

 private:
  // Returns the result, which is in scratch. `from` may be in scratch too.
  float* orthogonalize(const float* from, const MuonScratch& scratch, int64_t steps);

  MuonPlan plan_;
  Gemm gram_, square_, product_;
  WeightPacker packer_;
};

// The first and last formula above for n elements; ignores scalars->skip.
void muon_momentum(int64_t n, float* momentum, const float* grad, float* x, const UpdateScalars* scalars,
                   const MuonConstants& constants);
void muon_apply(int64_t n, float* master, const float* x, const UpdateScalars* scalars,
                const MuonConstants& constants);

}  // namespace strata::cpu
