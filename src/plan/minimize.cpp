#include "plan/minimize.h"

#include <algorithm>
#include <cmath>
#include <deque>

namespace strata::planning {
namespace {

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

struct Pair {
  std::vector<double> step;    // x[k+1] - x[k]
  std::vector<double> change;  // of the gradient
  double rho = 0.0;            // 1 / (step · change)
};

// -H g by the two-loop recursion.
std::vector<double> direction_of(std::span<const double> gradient, const std::deque<Pair>& pairs) {
  std::vector<double> q(gradient.begin(), gradient.end());
  std::vector<double> alpha(pairs.size());
  for (size_t k = pairs.size(); k-- > 0;) {
    alpha[k] = pairs[k].rho * dot(pairs[k].step, q);
    for (size_t i = 0; i < q.size(); ++i) q[i] -= alpha[k] * pairs[k].change[i];
  }
  if (!pairs.empty()) {
    const Pair& last = pairs.back();
    const double scale = 1 / (last.rho * dot(last.change, last.change));
    for (double& value : q) value *= scale;
  }
  for (size_t k = 0; k < pairs.size(); ++k) {
    const double beta = pairs[k].rho * dot(pairs[k].change, q);
    for (size_t i = 0; i < q.size(); ++i) q[i] += (alpha[k] - beta) * pairs[k].step[i];
  }
  for (double& value : q) value = -value;
  return q;
}

double largest(std::span<const double> values) {
  double most = 0.0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

}  // namespace

Minimum minimize(Objective objective, std::vector<double> start, const MinimizeOptions& options) {
  const size_t n = start.size();
  Minimum best{.x = std::move(start), .value = 0.0, .iterations = 0, .converged = false};
  std::vector<double> gradient(n), next(n), next_gradient(n);
  best.value = objective(best.x, gradient);
  std::deque<Pair> pairs;
  for (; best.iterations < options.max_iterations; ++best.iterations) {
    if (largest(gradient) <= options.gradient_tolerance * std::max(1.0, std::abs(best.value))) {
      best.converged = true;
      break;
    }
    std::vector<double> direction = direction_of(gradient, pairs);
    double slope = dot(direction, gradient);
    if (!(slope < 0)) {  // not a descent direction: restart from the gradient
      pairs.clear();
      direction = direction_of(gradient, pairs);
      slope = dot(direction, gradient);
    }
    // Weak Wolfe conditions by bisection; these also hold at kinks, where residuals change sign.
    double low = 0.0, high = INFINITY;
    double t = pairs.empty() ? std::min(1.0, 0.1 / largest(direction)) : 1.0;
    double value = best.value;
    bool accepted = false;
    for (int trial = 0; trial < 40; ++trial) {
      for (size_t i = 0; i < n; ++i) next[i] = best.x[i] + t * direction[i];
      value = objective(next, next_gradient);
      if (!std::isfinite(value) || value > best.value + 1e-4 * t * slope) {
        high = t;
      } else if (dot(next_gradient, direction) < 0.9 * slope) {
        low = t;
        accepted = true;  // sufficient decrease, though the step may still grow
      } else {
        accepted = true;
        break;
      }
      t = std::isfinite(high) ? (low + high) / 2 : 2 * t;
    }
    if (!accepted || !(value < best.value)) {
      best.converged = pairs.empty() || best.iterations > 0;
      if (pairs.empty()) break;
      pairs.clear();
      continue;
    }
    Pair pair{.step = std::vector<double>(n), .change = std::vector<double>(n), .rho = 0.0};
    for (size_t i = 0; i < n; ++i) {
      pair.step[i] = next[i] - best.x[i];
      pair.change[i] = next_gradient[i] - gradient[i];
    }
    const double curvature = dot(pair.step, pair.change);
    if (curvature > 1e-300) {
      pair.rho = 1 / curvature;
      pairs.push_back(std::move(pair));
      if (pairs.size() > static_cast<size_t>(options.memory)) pairs.pop_front();
    }
    const double decrease = best.value - value;
    std::swap(best.x, next);
    std::swap(gradient, next_gradient);
    best.value = value;
    if (decrease <= options.value_tolerance * std::max(1.0, std::abs(best.value))) {
      best.converged = true;
      break;
    }
  }
  return best;
}

}  // namespace strata::planning
