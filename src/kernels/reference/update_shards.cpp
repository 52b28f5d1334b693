// Updates of parameters in shards that ranks make together.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "kernels/reference/call.h"
#include "kernels/reference/orthogonal.h"
#include "optim/operands.h"
#include "optim/optimizer.h"
#include "tensor/update_scalars.h"

namespace strata::reference {

std::vector<double> newton_schulz(const std::vector<double>& matrix, int64_t rows, int64_t columns,
                                  int64_t steps) {
  const bool tall = rows > columns;
  const int64_t n = std::min(rows, columns), width = std::max(rows, columns);
  const auto place = [&](int64_t i) {
    return static_cast<size_t>(tall ? i % columns * width + i / columns : i);
  };
  std::vector<double> x(matrix.size());  // [n, width]
  double squares = 0;
  for (const double value : matrix) squares += value * value;
  for (int64_t i = 0; i < rows * columns; ++i)
    x[place(i)] = matrix[static_cast<size_t>(i)] / (std::sqrt(squares) + 1e-7);
  const auto at = [](const std::vector<double>& values, int64_t across, int64_t i, int64_t j) {
    return values[static_cast<size_t>(i * across + j)];
  };
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<double> a(static_cast<size_t>(n * n)), b = a, next = x;
    for (int64_t i = 0; i < n * n; ++i) {
      for (int64_t k = 0; k < width; ++k)
        a[static_cast<size_t>(i)] += at(x, width, i / n, k) * at(x, width, i % n, k);
    }
    for (int64_t i = 0; i < n * n; ++i) {
      double square = 0;
      for (int64_t k = 0; k < n; ++k) square += at(a, n, i / n, k) * at(a, n, k, i % n);
      b[static_cast<size_t>(i)] = -4.7750 * a[static_cast<size_t>(i)] + 2.0315 * square;
    }
    parallel_for(n, [&](int64_t i) {
      for (int64_t j = 0; j < width; ++j) {
        double sum = 3.4445 * at(x, width, i, j);
        for (int64_t k = 0; k < n; ++k) sum += at(b, n, i, k) * at(x, width, k, j);
        next[static_cast<size_t>(i * width + j)] = sum;
      }
    });
    x = std::move(next);
  }
  std::vector<double> out(matrix.size());
  for (int64_t i = 0; i < rows * columns; ++i) out[static_cast<size_t>(i)] = x[place(i)];
  return out;
}

namespace {

UpdateScalars scalars_of(const Array& bytes) {
  UpdateScalars scalars;
  std::memcpy(&scalars, bytes.data, sizeof scalars);
  return scalars;
}

// (momentum, gradient, …, scalars) → momentum…, stack; cpu::muon_momentum for each slot
void muon_momentum(const Call& call) {
  using Op = optim::MuonMomentumOperands;
  const UpdateScalars scalars = scalars_of(call.in.back());
  const Array& stack = call.out.back();
  const int64_t columns = stack.shape[2], n = stack.shape[1] * columns;
  int64_t at = 0;
  for (const auto& slot : call.attrs.as<optim::MuonStackAttrs>().slots) {
    if (slot.operand < 0 || scalars.skip != 0) {
      for (int64_t i = 0; i < n; ++i) stack.put(at++, 0);
      continue;
    }
    const auto operand = static_cast<int>(slot.operand);
    const auto& constants = std::get<optim::Muon>(slot.update.rule.optimizer);
    const Array& gradient = call.in[static_cast<size_t>(Op::gradient(operand))];
    const Array& before = call.in[static_cast<size_t>(Op::momentum(operand))];
    const optim::RowRange rows = optim::row_range(slot.update, gradient.shape);
    for (int64_t i = 0; i < n; ++i) {
      const double g = gradient.at(rows.first * columns + i) * static_cast<double>(scalars.grad_scale);
      double m = before.at(rows.state_first * columns + i);
      m += (1 - constants.momentum) * (g - m);
      call.out[static_cast<size_t>(operand)].put(rows.state_first * columns + i, m);
      stack.put(at++, constants.nesterov ? g + constants.momentum * (m - g) : m);
    }
  }
}

// (stack) → stack
void orthogonal_stack(const Call& call) {
  const Array &x = call.in[0], &y = call.out[0];
  const int64_t rows = x.shape[1], columns = x.shape[2], n = rows * columns;
  for (int64_t first = 0; first < x.shape.elements(); first += n) {
    std::vector<double> matrix;
    for (int64_t i = 0; i < n; ++i) matrix.push_back(x.at(first + i));
    matrix = newton_schulz(matrix, rows, columns, call.attrs.as<optim::NewtonSchulzAttrs>().steps);
    for (int64_t i = 0; i < n; ++i) y.put(first + i, matrix[static_cast<size_t>(i)]);
  }
}

// (master…, stack, scalars) → master…; cpu::muon_apply for each slot
void muon_apply(const Call& call) {
  const UpdateScalars scalars = scalars_of(call.in.back());
  if (scalars.skip != 0) return;
  const Array& stack = call.in[call.out.size()];
  const int64_t columns = stack.shape[2], n = stack.shape[1] * columns;
  int64_t at = -n;
  for (const auto& slot : call.attrs.as<optim::MuonStackAttrs>().slots) {
    at += n;
    if (slot.operand < 0) continue;
    const auto operand = static_cast<size_t>(slot.operand);
    const double rate = static_cast<double>(scalars.lr) * slot.update.rule.lr_scale;
    const int64_t first = optim::row_range(slot.update, call.in[operand].shape).first * columns;
    for (int64_t i = 0; i < n; ++i) {
      const double p = call.in[operand].at(first + i) * (1 - rate * slot.update.rule.weight_decay);
      call.out[operand].put(first + i, p - rate * stack.at(at + i));
    }
  }
}

}  // namespace

std::span<const Row> update_shard_kernels() {
  static const Row kRows[] = {
      {&optim::kMuonMomentum, muon_momentum},
      {&optim::kNewtonSchulz, orthogonal_stack},
      {&optim::kMuonApply, muon_apply},
  };
  return kRows;
}

}  // namespace strata::reference
