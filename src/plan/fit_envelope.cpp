#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "plan/fit.h"

namespace strata::planning {
namespace {

// Hoffmann et al. (arXiv 2203.15556), section 3.1.
constexpr int kEnvelopeBudgets = 1500;

// The loss after `tokens`, linear in the logarithm of the tokens; NaN outside of the curve.
double loss_at(const RunCurve& curve, double tokens) {
  const auto above = std::lower_bound(curve.tokens.begin(), curve.tokens.end(), tokens);
  if (above == curve.tokens.end()) return NAN;
  const auto i = static_cast<size_t>(above - curve.tokens.begin());
  if (*above == tokens) return curve.loss[i];
  if (i == 0) return NAN;
  const double part =
      std::log(tokens / curve.tokens[i - 1]) / std::log(curve.tokens[i] / curve.tokens[i - 1]);
  return curve.loss[i - 1] + part * (curve.loss[i] - curve.loss[i - 1]);
}

// The size with the lowest loss at a budget; 0: none, or one at the edge of the sizes.
double best_size(std::span<const RunCurve> curves, double flops) {
  double least = INFINITY, best = 0.0;
  std::set<double> sizes;
  for (const RunCurve& curve : curves) {
    const double loss = loss_at(curve, flops / (6 * curve.params));
    if (!std::isfinite(loss)) continue;
    sizes.insert(curve.params);
    if (loss < least) {
      least = loss;
      best = curve.params;
    }
  }
  const bool inside = sizes.size() >= 3 && best != *sizes.begin() && best != *sizes.rbegin();
  return inside ? best : 0.0;
}

}  // namespace

EnvelopeFit fit_envelope(std::span<const RunCurve> curves) {
  double low = INFINITY, high = 0.0;
  for (const RunCurve& curve : curves) {
    if (curve.tokens.empty()) continue;
    low = std::min(low, 6 * curve.params * curve.tokens.front());
    high = std::max(high, 6 * curve.params * curve.tokens.back());
  }
  std::vector<double> budgets, params;
  for (int i = 0; i < kEnvelopeBudgets && low < high; ++i) {
    const double flops = low * std::pow(high / low, static_cast<double>(i) / (kEnvelopeBudgets - 1));
    const double best = best_size(curves, flops);
    if (best <= 0) continue;
    budgets.push_back(flops);
    params.push_back(best);
  }
  const std::set<double> sizes(params.begin(), params.end());
  if (sizes.size() < 2) {
    throw DataError(
        "[scale fit] found {} sizes that are the best of some budget and between two others, expected at least 2; "
        "train more sizes longer",
        sizes.size());
  }
  return {.params = fit_power_law(budgets, params),
          .sizes = static_cast<int64_t>(sizes.size()),
          .low = budgets.front(),
          .high = budgets.back()};
}

}  // namespace strata::planning
