#include "kernels/cpu/adafactor.h"

#include <algorithm>

#include "base/parallel.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adafactor.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <cmath>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// sums[columns] += g² of one row; returns the sum of g².
float AddSquares(const float* grad, float grad_scale, int64_t columns, float* sums) {
  const Vector scale = constant(grad_scale);
  return sum_over(columns, [&](int64_t j, auto span, Vector sum) HWY_ATTR {
    const Vector g = hn::Mul(load(grad + j, span), scale);
    store(sums + j, hn::MulAdd(g, g, load(sums + j, span)), span);
    return hn::MulAdd(g, g, sum);
  });
}

// variance += share (g² − variance), element-wise.
void MoveVariance(float* variance, const float* grad, float grad_scale, float share, int64_t n) {
  const Vector scale = constant(grad_scale), part = constant(share);
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    const Vector g = hn::Mul(load(grad + i, span), scale), old = load(variance + i, span);
    store(variance + i, hn::MulAdd(part, hn::Sub(hn::Mul(g, g), old), old), span);
  });
}

// u = g / √max(factor · second, least).
HWY_INLINE Vector scaled_update(Vector g, Vector second, Vector factor, Vector least) {
  return hn::Div(g, hn::Sqrt(hn::Max(hn::Mul(factor, second), least)));
}

// The sum of u² over one row.
float UpdateSquares(const float* grad, float grad_scale, const float* second, float row_factor, float least,
                    int64_t n) {
  const Vector scale = constant(grad_scale), factor = constant(row_factor), floor = constant(least);
  return sum_over(n, [&](int64_t i, auto span, Vector sum) HWY_ATTR {
    const Vector g = hn::Mul(load(grad + i, span), scale);
    const Vector u = keep(scaled_update(g, load(second + i, span), factor, floor), span);
    return hn::MulAdd(u, u, sum);
  });
}

// p = keep · p − step · u over one row.
void ApplyRow(float* p, const float* grad, float grad_scale, const float* second, float row_factor,
              float least, float keep_p, float step, int64_t n) {
  const Vector scale = constant(grad_scale), factor = constant(row_factor), floor = constant(least);
  const Vector kept = constant(keep_p), rate = constant(step);
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    const Vector g = hn::Mul(load(grad + i, span), scale);
    const Vector u = scaled_update(g, load(second + i, span), factor, floor);
    store(p + i, hn::NegMulAdd(rate, u, hn::Mul(load(p + i, span), kept)), span);
  });
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(AddSquares);
HWY_EXPORT(MoveVariance);
HWY_EXPORT(UpdateSquares);
HWY_EXPORT(ApplyRow);

namespace {

// Rows per task: at most kTasks tasks, since each has sums for all columns.
constexpr int64_t kTasks = 64;
int64_t rows_of_task(int64_t rows) {
  return std::max<int64_t>(16, (rows + kTasks - 1) / kTasks);
}
constexpr int64_t kVectorBlock = 16384;

int64_t padded(int64_t floats) {
  return (floats + 15) / 16 * 16;
}

struct Scratch {
  double* partials;  // sums of p² or u², one per block
  double* sums;      // for an update that runs all phases in one call
  float* columns;    // [tasks, columns] of g²
};

int64_t partial_count(int64_t rows, int64_t columns) {
  return std::max({norm_partials(rows * columns), kTasks, (columns + kVectorBlock - 1) / kVectorBlock});
}

Scratch scratch_at(void* memory, int64_t rows, int64_t columns) {
  auto* const partials = static_cast<double*>(memory);
  double* const sums = partials + padded(partial_count(rows, columns));
  return {partials, sums, reinterpret_cast<float*>(sums + padded(adafactor_sum_count(columns) + 1))};
}

double root_mean_square(double squares, int64_t n) {
  return n > 0 ? std::sqrt(squares / static_cast<double>(n)) : 0.0;
}

double sum_of_squares(const float* x, int64_t n, double* partials) {
  double squares = 0;
  sum_of_squares_partials(x, n, partials);
  reduce_sum(partials, norm_partials(n), &squares);
  return squares;
}

// One step's scalars, combined with the constants.
struct Step {
  Step(const UpdateScalars& s, const AdafactorConstants& constants)
      : c(constants),
        rate(double{s.lr} * c.lr_scale),
        t(static_cast<double>(s.update)),
        share(static_cast<float>(std::pow(t, c.beta2_decay))),
        keep(static_cast<float>(1 - rate * c.weight_decay)),
        least(static_cast<float>(c.eps1 * c.eps1)) {}

  // Step length from the sums of squares of a tensor's n weights and of their updates.
  float length(double weights, double updates, int64_t n) const {
    const double alpha = std::max(c.eps2, root_mean_square(weights, n)) * std::min(rate, 1 / std::sqrt(t));
    return static_cast<float>(alpha / std::max(1.0, root_mean_square(updates, n) / c.clip_threshold));
  }

  const AdafactorConstants& c;
  double rate, t;
  float share, keep, least;
};

void move_to(float* mean, double wanted, float share) {
  *mean += share * (static_cast<float>(wanted) - *mean);
}

// Factor of a row's second moment.
double row_factor(const AdafactorPart& part, const double* sums, const AdafactorConstants& c) {
  const double mean = sums[part.columns + 1] / static_cast<double>(part.of_rows);
  return 1 / std::max(mean, c.eps1);
}

}  // namespace

int64_t adafactor_scratch_bytes(int64_t rows, int64_t columns) {
  const int64_t tasks = (rows + rows_of_task(rows) - 1) / rows_of_task(rows);
  return (padded(partial_count(rows, columns)) + padded(adafactor_sum_count(columns) + 1)) * 8 +
         padded(tasks * columns) * 4;
}

void adafactor_sums(const AdafactorPart& part, const float* master, float* row, const float* grad,
                    const UpdateScalars* scalars, const AdafactorConstants& constants, double* sums,
                    void* memory) {
  const UpdateScalars& s = *scalars;
  const int64_t rows = part.rows, columns = part.columns;
  std::fill_n(sums, adafactor_sum_count(columns), 0.0);
  if (s.skip != 0) return;
  const Scratch scratch = scratch_at(memory, rows, columns);
  const Step step(s, constants);
  const int64_t of_task = rows_of_task(rows), tasks = (rows + of_task - 1) / of_task;
  const auto add_squares = HWY_DYNAMIC_DISPATCH(AddSquares);
  parallel_ranges(rows, of_task, [&](int64_t begin, int64_t end) {
    float* const of_columns = scratch.columns + begin / of_task * columns;
    std::fill(of_columns, of_columns + columns, 0.0f);
    for (int64_t i = begin; i < end; ++i) {
      const float squares = add_squares(grad + i * columns, s.grad_scale, columns, of_columns);
      move_to(row + i, double{squares} / static_cast<double>(columns), step.share);
    }
  });
  parallel_ranges(columns, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      for (int64_t task = 0; task < tasks; ++task) sums[j] += double{scratch.columns[task * columns + j]};
    }
  });
  sums[columns] = sum_of_squares(master, rows * columns, scratch.partials);
  for (int64_t i = 0; i < rows; ++i) sums[columns + 1] += double{row[i]};
}

void adafactor_columns(const AdafactorPart& part, const float* row, float* column, const float* grad,
                       const double* sums, const UpdateScalars* scalars, const AdafactorConstants& constants,
                       double* squares, void* memory) {
  const UpdateScalars& s = *scalars;
  *squares = 0;
  if (s.skip != 0) return;
  const int64_t rows = part.rows, columns = part.columns;
  const Scratch scratch = scratch_at(memory, rows, columns);
  const Step step(s, constants);
  parallel_ranges(columns, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j)
      move_to(column + j, sums[j] / static_cast<double>(part.of_rows), step.share);
  });
  const double of_row = row_factor(part, sums, constants);
  const int64_t of_task = rows_of_task(rows), tasks = (rows + of_task - 1) / of_task;
  const auto update_squares = HWY_DYNAMIC_DISPATCH(UpdateSquares);
  parallel_ranges(rows, of_task, [&](int64_t begin, int64_t end) {
    double of_rows = 0;
    for (int64_t i = begin; i < end; ++i) {
      const auto factor = static_cast<float>(double{row[i]} * of_row);
      of_rows +=
          double{update_squares(grad + i * columns, s.grad_scale, column, factor, step.least, columns)};
    }
    scratch.partials[begin / of_task] = of_rows;
  });
  reduce_sum(scratch.partials, tasks, squares);
}

void adafactor_apply(const AdafactorPart& part, float* master, const float* row, const float* column,
                     const float* grad, const double* sums, double squares, const UpdateScalars* scalars,
                     const AdafactorConstants& constants) {
  const UpdateScalars& s = *scalars;
  if (s.skip != 0) return;
  const int64_t columns = part.columns;
  const Step step(s, constants);
  const float length = step.length(sums[columns], squares, part.of_rows * columns);
  const double of_row = row_factor(part, sums, constants);
  const auto apply = HWY_DYNAMIC_DISPATCH(ApplyRow);
  parallel_ranges(part.rows, rows_of_task(part.rows), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      apply(master + i * columns, grad + i * columns, s.grad_scale, column,
            static_cast<float>(double{row[i]} * of_row), step.least, step.keep, length, columns);
    }
  });
}

void adafactor_update(int64_t rows, int64_t columns, float* master, float* row, float* column,
                      const float* grad, const UpdateScalars* scalars, const AdafactorConstants& constants,
                      void* memory) {
  if (scalars->skip != 0 || rows == 0 || columns == 0) return;
  const AdafactorPart all{rows, columns, rows};
  double* const sums = scratch_at(memory, rows, columns).sums;
  double* const squares = sums + adafactor_sum_count(columns);
  adafactor_sums(all, master, row, grad, scalars, constants, sums, memory);
  adafactor_columns(all, row, column, grad, sums, scalars, constants, squares, memory);
  adafactor_apply(all, master, row, column, grad, sums, *squares, scalars, constants);
}

void adafactor_vector_sums(int64_t n, const float* master, float* variance, const float* grad,
                           const UpdateScalars* scalars, const AdafactorConstants& constants, double* sums,
                           void* memory) {
  const UpdateScalars& s = *scalars;
  sums[0] = sums[1] = 0;
  if (s.skip != 0) return;
  const Scratch scratch = scratch_at(memory, 1, n);
  const Step step(s, constants);
  sums[0] = sum_of_squares(master, n, scratch.partials);
  const auto move = HWY_DYNAMIC_DISPATCH(MoveVariance);
  const auto update_squares = HWY_DYNAMIC_DISPATCH(UpdateSquares);
  parallel_ranges(n, kVectorBlock, [&](int64_t begin, int64_t end) {
    move(variance + begin, grad + begin, s.grad_scale, step.share, end - begin);
    scratch.partials[begin / kVectorBlock] =
        double{update_squares(grad + begin, s.grad_scale, variance + begin, 1, step.least, end - begin)};
  });
  reduce_sum(scratch.partials, (n + kVectorBlock - 1) / kVectorBlock, sums + 1);
}

void adafactor_vector_apply(int64_t n, int64_t of_n, float* master, const float* variance, const float* grad,
                            const double* sums, const UpdateScalars* scalars,
                            const AdafactorConstants& constants) {
  const UpdateScalars& s = *scalars;
  if (s.skip != 0) return;
  const Step step(s, constants);
  const float length = step.length(sums[0], sums[1], of_n);
  const auto apply = HWY_DYNAMIC_DISPATCH(ApplyRow);
  parallel_ranges(n, kVectorBlock, [&](int64_t begin, int64_t end) {
    apply(master + begin, grad + begin, s.grad_scale, variance + begin, 1, step.least, step.keep, length,
          end - begin);
  });
}

void adafactor_vector_update(int64_t n, float* master, float* variance, const float* grad,
                             const UpdateScalars* scalars, const AdafactorConstants& constants,
                             void* memory) {
  if (scalars->skip != 0 || n == 0) return;
  double* const sums = scratch_at(memory, 1, n).sums;
  adafactor_vector_sums(n, master, variance, grad, scalars, constants, sums, memory);
  adafactor_vector_apply(n, n, master, variance, grad, sums, scalars, constants);
}

}  // namespace strata::cpu
#endif
