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

// Bytes that an update of a matrix (a vector: rows = 1), or a part of one, works with, aligned to 64.
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

// The same in parts, for tensors of which a rank has some rows. Between two parts what they give is added up
// over the ranks. A skipped step gives zeros and moves nothing.
struct AdafactorPart {
  int64_t rows = 0, columns = 0;  // of this rank
  int64_t of_rows = 0;            // of the whole tensor; rows of zeros behind them count nowhere
};
// Sums of g² over each column, of p², and of the new row.
constexpr int64_t adafactor_sum_count(int64_t columns) {
  return columns + 2;
}

// Moves row. sums: adafactor_sum_count(columns).
void adafactor_sums(const AdafactorPart& part, const float* master, float* row, const float* grad,
                    const UpdateScalars* scalars, const AdafactorConstants& constants, double* sums,
                    void* scratch);
// Moves column. *squares: the sum of u².
void adafactor_columns(const AdafactorPart& part, const float* row, float* column, const float* grad,
                       const double* sums, const UpdateScalars* scalars, const AdafactorConstants& constants,
                       double* squares, void* scratch);
// Moves p.
void adafactor_apply(const AdafactorPart& part, float* master, const float* row, const float* column,
                     const float* grad, const double* sums, double squares, const UpdateScalars* scalars,
                     const AdafactorConstants& constants);

// Of n elements of a vector of of_n; sums: of p² and u².
void adafactor_vector_sums(int64_t n, const float* master, float* variance, const float* grad,
                           const UpdateScalars* scalars, const AdafactorConstants& constants, double* sums,
                           void* scratch);
void adafactor_vector_apply(int64_t n, int64_t of_n, float* master, const float* variance, const float* grad,
                            const double* sums, const UpdateScalars* scalars,
                            const AdafactorConstants& constants);

}  // namespace strata::cpu
