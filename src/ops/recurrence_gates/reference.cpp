#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/recurrence_gates/recurrence_gates.h"
#include "ops/reference.h"

namespace strata::reference {
namespace {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// A column of a row: what its decay and step are made of.
struct GateColumn {
  double rate;   // exp(a_log)
  double step;   // the softplus, clamped for state space
  double slope;  // of the step by its argument
  int64_t head;  // in a row

  template <typename Op>
  GateColumn(const Arrays<Op>& at, int64_t i) {
    const int64_t width = at.in.a.shape[1], heads = at.in.a_log.shape[0], c = i % width;
    head = c / (width / heads);
    rate = std::exp(at.in.a_log.at(head));
    const double x = at.in.a.at(i) + at.in.dt_bias.at(c);
    step = std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0);
    slope = sigmoid(x);
    if (at.attrs.kind == RecurrenceKind::kDelta) return;
    if (step < at.attrs.least || step > at.attrs.greatest) slope = 0;
    step = std::clamp(step, at.attrs.least, at.attrs.greatest);
  }
};

// The gradient of the argument of the softplus.
template <typename Op>
double argument_gradient(const Arrays<Op>& at, const GateColumn& column, int64_t i) {
  const bool steps = at.attrs.kind == RecurrenceKind::kStateSpace;
  return ((steps ? at.in.dbeta.at(i) : 0) - column.rate * at.in.dg.at(i)) * column.slope;
}

}  // namespace

template <>
void compute(const Arrays<ops::RecurrenceGates>& at) {
  parallel_for(at.in.a.shape.elements(), [&](int64_t i) {
    const GateColumn column(at, i);
    at.out.g.put(i, -column.rate * column.step);
    if (at.attrs.kind == RecurrenceKind::kStateSpace) at.out.beta.put(i, column.step);
  });
  if (!at.in.b.present()) return;
  parallel_for(at.in.b.shape.elements(),
               [&](int64_t i) { at.out.beta.put(i, at.attrs.beta_scale * sigmoid(at.in.b.at(i))); });
}

template <>
void compute(const Arrays<ops::RecurrenceGatesGradInput>& at) {
  parallel_for(at.in.a.shape.elements(),
               [&](int64_t i) { at.out.da.put(i, argument_gradient(at, GateColumn(at, i), i)); });
  if (!at.in.b.present()) return;
  parallel_for(at.in.b.shape.elements(), [&](int64_t i) {
    const double s = sigmoid(at.in.b.at(i));
    at.out.db.put(i, at.in.dbeta.at(i) * at.attrs.beta_scale * s * (1 - s));
  });
}

template <>
void compute(const Arrays<ops::RecurrenceGatesGradWeight>& at) {
  const int64_t rows = at.in.a.shape[0], width = at.in.a.shape[1], heads = at.in.a_log.shape[0];
  std::vector<double> logs(static_cast<size_t>(heads)), biases(static_cast<size_t>(width));
  for (int64_t i = 0; i < rows * width; ++i) {
    const GateColumn column(at, i);
    logs[static_cast<size_t>(column.head)] -= at.in.dg.at(i) * column.rate * column.step;
    biases[static_cast<size_t>(i % width)] += argument_gradient(at, column, i);
  }
  for (int64_t h = 0; h < heads; ++h) at.out.da_log.give(h, logs[static_cast<size_t>(h)]);
  for (int64_t c = 0; c < width; ++c) at.out.ddt_bias.give(c, biases[static_cast<size_t>(c)]);
}

}  // namespace strata::reference
