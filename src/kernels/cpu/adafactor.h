// Adafactor (Shazeer and Stern 2018) as torch.optim.Adafactor has it: no first moment, the second one of a
// matrix as means over its rows and over its columns, the step relative to the parameter's own size.
#pragma once

#include <cstdint>

#include "kernels/cpu/optimizer.h"

namespace strata::cpu {

struct AdafactorConstants {
  double beta2_decay = -0.8;  // the second moment takes a share of t^beta2_decay of the new one
  double eps1 = 0;            // least root of a second moment, and least mean of those of the rows
  double eps2 = 1e-3;         // least size of a parameter
  double clip_threshold = 1;  // largest root mean square of the update, before the rate
  double weight_decay = 0;
  double lr_scale = 1;
};

// Bytes that an update of a matrix (a vector: rows = 1) works with, aligned to 64.
int64_t adafactor_scratch_bytes(int64_t rows, int64_t columns);

// With g = grad · grad_scale, rate = lr · lr_scale, w = t^beta2_decay:
//   alpha = max(eps2, rms(p)) · min(rate, 1/√t);   p -= rate · weight_decay · p
//   row += w (mean of g² over a row − row), column += w (mean of g² over a column − column)
//   u = g / √max(row · column / max(mean of row, eps1), eps1²);   p -= alpha / max(1, rms(u) /
//   clip_threshold) · u
// Sums are taken in blocks whose size depends on the shape alone.
void adafactor_update(int64_t rows, int64_t columns, float* master, float* row, float* column,
                      const float* grad, const UpdateScalars* scalars, const AdafactorConstants& constants,
                      void* scratch);

// The same for a vector, whose second moment is whole: u = g / √max(variance, eps1²).
void adafactor_vector_update(int64_t n, float* master, float* variance, const float* grad,
                             const UpdateScalars* scalars, const AdafactorConstants& constants,
                             void* scratch);

}  // namespace strata::cpu
