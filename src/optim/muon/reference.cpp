#include <algorithm>

#include "base/parallel.h"
#include "optim/muon/muon.h"
#include "optim/reference.h"

namespace strata::reference {
namespace {

// A matrix [rows, columns] with its singular values brought near one.
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

// The momentum moved by a gradient, and the input of the orthogonalization.
struct MuonMoved {
  double m, x;
  MuonMoved(const optim::Muon& constants, double before, double g)
      : m(before + (1 - constants.momentum) * (g - before)),
        x(constants.nesterov ? g + constants.momentum * (m - g) : m) {}
};

}  // namespace

template <>
void compute(const Arrays<optim::MuonUpdate>& at) {
  const Update update(at);
  if (update.scalars.skip != 0) return;
  const auto& constants = at.attrs.rule.optimizer.as<optim::Muon>();
  std::vector<double> x;
  for (int64_t i = 0; i < update.count; ++i) {
    const int64_t held = update.state_first + i;
    const MuonMoved moved(constants, at.in.momentum.at(held), update.g(i));
    at.out.momentum.put(held, moved.m);
    x.push_back(moved.x);
  }
  x = newton_schulz(x, update.rows, update.columns, constants.steps);
  for (int64_t i = 0; i < update.count; ++i)
    update.put_p(i, update.p(i) * update.keep - update.rate * x[static_cast<size_t>(i)]);
}

template <>
void compute(const Arrays<optim::MuonMomentum>& at) {
  const UpdateScalars scalars = scalars_of(at.in.scalars);
  const Array& stack = at.out.stack;
  const int64_t n = stack.shape[1] * stack.shape[2];
  int64_t to = 0;
  for (const auto& slot : at.attrs.slots) {
    if (slot.operand < 0 || scalars.skip != 0) {
      for (int64_t i = 0; i < n; ++i) stack.put(to++, 0);
      continue;
    }
    const auto operand = static_cast<size_t>(slot.operand);
    const Array &gradient = at.in.gradients[operand], &momentum = at.out.momenta[operand];
    const optim::UpdateElements own(slot.update, gradient.shape);
    for (int64_t i = 0; i < n; ++i) {
      const double g = gradient.at(own.first + i) * static_cast<double>(scalars.grad_scale);
      const MuonMoved moved(slot.update.rule.optimizer.as<optim::Muon>(), momentum.at(own.state_first + i),
                            g);
      momentum.put(own.state_first + i, moved.m);
      stack.put(to++, moved.x);
    }
  }
}

template <>
void compute(const Arrays<optim::NewtonSchulz>& at) {
  const Array& x = at.in.x;
  const int64_t rows = x.shape[1], columns = x.shape[2], n = rows * columns;
  for (int64_t first = 0; first < x.shape.elements(); first += n) {
    std::vector<double> matrix;
    for (int64_t i = 0; i < n; ++i) matrix.push_back(x.at(first + i));
    matrix = newton_schulz(matrix, rows, columns, at.attrs.steps);
    for (int64_t i = 0; i < n; ++i) at.out.orthogonal.put(first + i, matrix[static_cast<size_t>(i)]);
  }
}

template <>
void compute(const Arrays<optim::MuonApply>& at) {
  const UpdateScalars scalars = scalars_of(at.in.scalars);
  if (scalars.skip != 0) return;
  const int64_t n = at.in.stack.shape[1] * at.in.stack.shape[2];
  int64_t from = -n;
  for (const auto& slot : at.attrs.slots) {
    from += n;
    if (slot.operand < 0) continue;
    const Array& parameter = at.out.parameters[static_cast<size_t>(slot.operand)];
    const double rate = static_cast<double>(scalars.lr) * slot.update.rule.lr_scale;
    const int64_t first = optim::UpdateElements(slot.update, parameter.shape).first;
    for (int64_t i = 0; i < n; ++i) {
      const double p = parameter.at(first + i) * (1 - rate * slot.update.rule.weight_decay);
      parameter.put(first + i, p - rate * at.in.stack.at(from + i));
    }
  }
}

}  // namespace strata::reference
