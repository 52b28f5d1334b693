#include "kernels/cpu/adafactor.h"

#include <algorithm>

#include "base/parallel.h"
#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adafactor.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <cmath>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// sums[columns] += g² of one row; returns their sum.
float AddSquares(const float* grad, float grad_scale, int64_t columns, float* sums) {
  const Vector scale = constant(grad_scale);
  return sum_over(columns, [&](int64_t j, auto span, Vector sum) HWY_ATTR {
    const Vector g = hn::Mul(load(grad + j, span), scale);
    store(sums + j, hn::MulAdd(g, g, load(sums + j, span)), span);
    return hn::MulAdd(g, g, sum);
  });
}

// variance += share (g² − variance), element by element.
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

// Rows of one task: at most kTasks of them, since each keeps sums for all columns.
constexpr int64_t kTasks = 64;
int64_t rows_of_task(int64_t rows) {
  return std::max<int64_t>(16, (rows + kTasks - 1) / kTasks);
}
constexpr int64_t kVectorBlock = 16384;

int64_t padded(int64_t floats) {
  return (floats + 15) / 16 * 16;
}

struct Scratch {
  double* partials;  // sums of p² or u², one a block
  float* sums;       // [tasks, columns] of g²
};

int64_t partial_count(int64_t rows, int64_t columns) {
  return std::max({norm_partials(rows * columns), kTasks, (columns + kVectorBlock - 1) / kVectorBlock});
}

Scratch scratch_at(void* memory, int64_t rows, int64_t columns) {
  auto* const partials = static_cast<double*>(memory);
  return {partials, reinterpret_cast<float*>(partials + padded(partial_count(rows, columns)))};
}

double root_mean_square(double squares, int64_t n) {
  return n > 0 ? std::sqrt(squares / static_cast<double>(n)) : 0.0;
}

// What the scalars say of this step; `step` follows when the update's size is known.
struct StepFactors {
  float share, keep, least;
  double alpha;
};

StepFactors step_factors(const UpdateScalars& s, const AdafactorConstants& c, int64_t n, const float* master,
                         double* partials) {
  sum_of_squares_partials(master, n, partials);
  double squares = 0;
  reduce_sum(partials, norm_partials(n), &squares);
  const double rate = double{s.lr} * c.lr_scale, t = static_cast<double>(s.update);
  return {.share = static_cast<float>(std::pow(t, c.beta2_decay)),
          .keep = static_cast<float>(1 - rate * c.weight_decay),
          .least = static_cast<float>(c.eps1 * c.eps1),
          .alpha = std::max(c.eps2, root_mean_square(squares, n)) * std::min(rate, 1 / std::sqrt(t))};
}

float clipped_step(const StepFactors& f, const AdafactorConstants& c, double* partials, int64_t count,
                   int64_t n) {
  double squares = 0;
  reduce_sum(partials, count, &squares);
  return static_cast<float>(f.alpha / std::max(1.0, root_mean_square(squares, n) / c.clip_threshold));
}

void move_to(float* mean, double wanted, float share) {
  *mean += share * (static_cast<float>(wanted) - *mean);
}

}  // namespace

int64_t adafactor_scratch_bytes(int64_t rows, int64_t columns) {
  const int64_t tasks = (rows + rows_of_task(rows) - 1) / rows_of_task(rows);
  return padded(partial_count(rows, columns)) * 8 + padded(tasks * columns) * 4;
}

void adafactor_update(int64_t rows, int64_t columns, float* master, float* row, float* column,
                      const float* grad, const UpdateScalars* scalars, const AdafactorConstants& constants,
                      void* memory) {
  const UpdateScalars& s = *scalars;
  if (s.skip != 0 || rows == 0 || columns == 0) return;
  const Scratch scratch = scratch_at(memory, rows, columns);
  const StepFactors f = step_factors(s, constants, rows * columns, master, scratch.partials);
  const int64_t of_task = rows_of_task(rows), tasks = (rows + of_task - 1) / of_task;

  const auto add_squares = HWY_DYNAMIC_DISPATCH(AddSquares);
  parallel_ranges(rows, of_task, [&](int64_t begin, int64_t end) {
    float* const sums = scratch.sums + begin / of_task * columns;
    std::fill(sums, sums + columns, 0.0f);
    for (int64_t i = begin; i < end; ++i) {
      const float squares = add_squares(grad + i * columns, s.grad_scale, columns, sums);
      move_to(row + i, double{squares} / static_cast<double>(columns), f.share);
    }
  });
  parallel_ranges(columns, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      double squares = 0;
      for (int64_t task = 0; task < tasks; ++task) squares += double{scratch.sums[task * columns + j]};
      move_to(column + j, squares / static_cast<double>(rows), f.share);
    }
  });
  double mean = 0;
  for (int64_t i = 0; i < rows; ++i) mean += double{row[i]};
  const double inverse = 1 / std::max(mean / static_cast<double>(rows), constants.eps1);

  const auto update_squares = HWY_DYNAMIC_DISPATCH(UpdateSquares);
  parallel_ranges(rows, of_task, [&](int64_t begin, int64_t end) {
    double squares = 0;
    for (int64_t i = begin; i < end; ++i) {
      const auto factor = static_cast<float>(double{row[i]} * inverse);
      squares += double{update_squares(grad + i * columns, s.grad_scale, column, factor, f.least, columns)};
    }
    scratch.partials[begin / of_task] = squares;
  });
  const float step = clipped_step(f, constants, scratch.partials, tasks, rows * columns);
  const auto apply = HWY_DYNAMIC_DISPATCH(ApplyRow);
  parallel_ranges(rows, of_task, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      apply(master + i * columns, grad + i * columns, s.grad_scale, column,
            static_cast<float>(double{row[i]} * inverse), f.least, f.keep, step, columns);
    }
  });
}

void adafactor_vector_update(int64_t n, float* master, float* variance, const float* grad,
                             const UpdateScalars* scalars, const AdafactorConstants& constants,
                             void* memory) {
  const UpdateScalars& s = *scalars;
  if (s.skip != 0 || n == 0) return;
  const Scratch scratch = scratch_at(memory, 1, n);
  const StepFactors f = step_factors(s, constants, n, master, scratch.partials);
  const auto move = HWY_DYNAMIC_DISPATCH(MoveVariance);
  const auto update_squares = HWY_DYNAMIC_DISPATCH(UpdateSquares);
  parallel_ranges(n, kVectorBlock, [&](int64_t begin, int64_t end) {
    move(variance + begin, grad + begin, s.grad_scale, f.share, end - begin);
    scratch.partials[begin / kVectorBlock] =
        double{update_squares(grad + begin, s.grad_scale, variance + begin, 1, f.least, end - begin)};
  });
  const int64_t blocks = (n + kVectorBlock - 1) / kVectorBlock;
  const float step = clipped_step(f, constants, scratch.partials, blocks, n);
  const auto apply = HWY_DYNAMIC_DISPATCH(ApplyRow);
  parallel_ranges(n, kVectorBlock, [&](int64_t begin, int64_t end) {
    apply(master + begin, grad + begin, s.grad_scale, variance + begin, 1, f.least, f.keep, step,
          end - begin);
  });
}

}  // namespace strata::cpu
#endif
