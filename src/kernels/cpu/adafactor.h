// Adafactor (Shazeer and Stern 2018) as in torch.optim.Adafactor: no first moment; the second moment of a
// matrix as means over its rows and its columns; steps relative to the parameter's RMS.
#pragma once

#include <cstdint>

#include "kernels/cpu/optimizer.h"

namespace strata::cpu {

struct AdafactorConstants {
  double beta2_decay = -0.8;  // weight of the new second moment: t^beta2_decay
  double eps1 = 0;            // lower bound for roots of second moments and the mean of `row`
  double eps2 = 1e-3;         // lower bound for the RMS of a parameter
  double clip_threshold = 1;  // upper bound for the RMS of the update, before the rate
  double weight_decay = 0;
  double lr_scale = 1;
};

// Scratch bytes, aligned to 64, for the update of a matrix (a vector: rows = 1) or of some of its rows.
int64_t adafactor_scratch_bytes(int64_t rows, int64_t columns);

// With g = grad · grad_scale, rate = lr · lr_scale, w = t^beta2_decay:
//   alpha = max(eps2, rms(p)) · min(rate, 1/√t);   p -= rate · weight_decay · p
//   row += w (mean of g² over a row − row), column += w (mean of g² over a column − column)
//   u = g / √max(row · column / max(mean of row, eps1), eps1²);   p -= alpha / max(1, rms(u) /
//   clip_threshold) · u
// Sums are taken in blocks whose size depends only on the shape.
void adafactor_update(int64_t rows, int64_t columns, float* master, float* row, float* column,
                      const float* grad, const UpdateScalars* scalars, const AdafactorConstants& constants,
                      void* scratch);

// Like adafactor_update(), for a vector, whose second moment is stored in full: u = g / √max(variance,
// eps1²).
void adafactor_vector_update(int64_t n, float* master, float* variance, const float* grad,
                             const UpdateScalars* scalars, const AdafactorConstants& constants,
                             void* scratch);

// adafactor_update() in phases, for tensors of which each rank holds some rows. Between two phases the caller
// adds up their sums over the ranks. A skipped step yields zeros and changes nothing.
struct AdafactorPart {
  int64_t rows = 0, columns = 0;  // of this rank
  int64_t of_rows = 0;            // of the whole tensor; excludes padding rows of zeros
};
// Per-column sums of g², then the sums of p² and of the new row moments.
constexpr int64_t adafactor_sum_count(int64_t columns) {
  return columns + 2;
}

// Updates row. sums: adafactor_sum_count(columns).
void adafactor_sums(const AdafactorPart& part, const float* master, float* row, const float* grad,
                    const UpdateScalars* scalars, const AdafactorConstants& constants, double* sums,
                    void* scratch);
// Updates column. *squares: the sum of u².
void adafactor_columns(const AdafactorPart& part, const float* row, float* column, const float* grad,
                       const double* sums, const UpdateScalars* scalars, const AdafactorConstants& constants,
                       double* squares, void* scratch);
// Updates p.
void adafactor_apply(const AdafactorPart& part, float* master, const float* row, const float* column,
                     const float* grad, const double* sums, double squares, const UpdateScalars* scalars,
                     const AdafactorConstants& constants);

// n elements of a vector of of_n; sums: p² and u².
void adafactor_vector_sums(int64_t n, const float* master, float* variance, const float* grad,
                           const UpdateScalars* scalars, const AdafactorConstants& constants, double* sums,
                           void* scratch);
void adafactor_vector_apply(int64_t n, int64_t of_n, float* master, const float* variance, const float* grad,
                            const double* sums, const UpdateScalars* scalars,
                            const AdafactorConstants& constants);

}  // namespace strata::cpu
