#include "plan/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/random.h"
#include "plan/minimize.h"

namespace strata::planning {
namespace {

constexpr size_t kVariables = 5;

// The logarithms of the runs, centered, which makes log A and alpha nearly independent.
struct LogRuns {
  std::vector<double> params, tokens, loss;
  double mean_params = 0.0, mean_tokens = 0.0;
};

LogRuns logs_of(std::span<const RunPoint> runs) {
  LogRuns out;
  for (const RunPoint& run : runs) {
    out.params.push_back(std::log(run.params));
    out.tokens.push_back(std::log(run.tokens));
    out.loss.push_back(std::log(run.loss));
  }
  const auto centre = [](std::vector<double>& values) {
    double mean = 0.0;
    for (const double value : values) mean += value / static_cast<double>(values.size());
    for (double& value : values) value -= mean;
    return mean;
  };
  out.mean_params = centre(out.params);
  out.mean_tokens = centre(out.tokens);
  return out;
}

// log E, log A and log B at the means, alpha, beta.
using Variables = std::array<double, kVariables>;

// The log of the loss of run i, and the shares of its three terms.
double log_loss(const LogRuns& runs, size_t i, std::span<const double> x, std::array<double, 3>& share) {
  share = {x[0], x[1] - x[3] * runs.params[i], x[2] - x[4] * runs.tokens[i]};
  const double most = std::max({share[0], share[1], share[2]});
  double sum = 0.0;
  for (double& term : share) {
    term = std::exp(term - most);
    sum += term;
  }
  for (double& term : share) term /= sum;
  return most + std::log(sum);
}

// Sum of weight * huber(residual) / delta², with its gradient.
double objective(const LogRuns& runs, std::span<const double> targets, std::span<const double> weights,
                 double delta, std::span<const double> x, std::span<double> gradient) {
  std::fill(gradient.begin(), gradient.end(), 0.0);
  // Keeps the search within the range of exponents and terms that laws have.
  if (!(x[3] > 1e-3 && x[3] < 5 && x[4] > 1e-3 && x[4] < 5) || std::abs(x[0]) > 50) return INFINITY;
  double sum = 0.0;
  std::array<double, 3> share;
  for (size_t i = 0; i < targets.size(); ++i) {
    const double weight = weights.empty() ? 1.0 : weights[i];
    if (weight == 0) continue;
    const double residual = (log_loss(runs, i, x, share) - targets[i]) / delta;
    const double size = std::abs(residual);
    sum += weight * (size <= 1 ? residual * residual / 2 : size - 0.5);
    const double slope = weight * std::clamp(residual, -1.0, 1.0) / delta;
    gradient[0] += slope * share[0];
    gradient[1] += slope * share[1];
    gradient[2] += slope * share[2];
    gradient[3] -= slope * share[1] * runs.params[i];
    gradient[4] -= slope * share[2] * runs.tokens[i];
  }
  return sum;
}

Minimum search(const LogRuns& runs, std::span<const double> targets, std::span<const double> weights,
               double delta, const Variables& start) {
  return minimize(
      [&](std::span<const double> x, std::span<double> gradient) {
        return objective(runs, targets, weights, delta, x, gradient);
      },
      std::vector<double>(start.begin(), start.end()), {.memory = 8, .max_iterations = 300});
}

// E, A and B at the means by least squares for given exponents, each at least 1e-3 times the lowest loss.
Variables start_at(const LogRuns& runs, double alpha, double beta) {
  double m[3][4] = {};
  double least = INFINITY;
  for (size_t i = 0; i < runs.loss.size(); ++i) {
    const double loss = std::exp(runs.loss[i]);
    least = std::min(least, loss);
    const double row[4] = {1.0, std::exp(-alpha * runs.params[i]), std::exp(-beta * runs.tokens[i]), loss};
    for (int r = 0; r < 3; ++r) {
      for (int c = 0; c < 4; ++c) m[r][c] += row[r] * row[c] / (loss * loss);
    }
  }
  for (int r = 0; r < 3; ++r) m[r][r] *= 1 + 1e-9;
  for (int k = 0; k < 3; ++k) {
    for (int r = 0; r < 3; ++r) {
      if (r == k || m[k][k] == 0) continue;
      const double factor = m[r][k] / m[k][k];
      for (int c = k; c < 4; ++c) m[r][c] -= factor * m[k][c];
    }
  }
  Variables out{};
  for (size_t k = 0; k < 3; ++k) {
    const double value = m[k][k] == 0 ? 0.0 : m[k][3] / m[k][k];
    out[k] = std::log(std::clamp(value, 1e-3 * least, 1e3 * least));
  }
  out[3] = alpha;
  out[4] = beta;
  return out;
}

Minimum best_of_grid(const LogRuns& runs, double delta) {
  constexpr double kExponents[] = {0.08, 0.15, 0.25, 0.35, 0.5, 0.7, 1.0};
  std::vector<std::pair<double, Variables>> cells;
  Variables ignored{};
  for (const double alpha : kExponents) {
    for (const double beta : kExponents) {
      const Variables start = start_at(runs, alpha, beta);
      cells.emplace_back(objective(runs, runs.loss, {}, delta, start, ignored), start);
    }
  }
  std::sort(cells.begin(), cells.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Minimum best;
  best.value = INFINITY;
  for (size_t i = 0; i < 5; ++i) {
    Minimum found = search(runs, runs.loss, {}, delta, cells[i].second);
    if (found.value < best.value) best = std::move(found);
  }
  return best;
}

LossLaw law_of(std::span<const double> x, const LogRuns& runs) {
  return {.e = std::exp(x[0]),
          .a = std::exp(x[1] + x[3] * runs.mean_params),
          .b = std::exp(x[2] + x[4] * runs.mean_tokens),
          .alpha = x[3],
          .beta = x[4]};
}

std::vector<double> residuals_of(const LogRuns& runs, std::span<const double> x) {
  std::vector<double> out;
  std::array<double, 3> share;
  for (size_t i = 0; i < runs.loss.size(); ++i) out.push_back(runs.loss[i] - log_loss(runs, i, x, share));
  return out;
}

// The q quantile with linear interpolation; sorts `values`. Another draw is below it with probability q.
double quantile(std::vector<double>& values, double q) {
  std::sort(values.begin(), values.end());
  const double last = static_cast<double>(values.size() - 1);
  const double at = std::clamp(q * (last + 2) - 1, 0.0, last);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

// 1.4826 times the median absolute value: the standard deviation of normal residuals.
double robust_deviation(std::vector<double> residuals) {
  for (double& residual : residuals) residual = std::abs(residual);
  return 1.4826 * quantile(residuals, 0.5);
}

// The 90 % interval from the bootstrap of a fit to `runs` runs. The tails are those of Student's t, because
// the noise is estimated too (Cornish-Fisher to first order).
template <typename Get>
Interval percentiles(double value, const std::vector<LossLaw>& samples, int64_t runs, Get get) {
  if (samples.empty()) return {value, NAN, NAN};
  std::vector<double> values;
  for (const LossLaw& law : samples) values.push_back(get(law));
  constexpr double kNormal = 1.6449;
  const double freedom = static_cast<double>(std::max<int64_t>(1, runs - static_cast<int64_t>(kVariables)));
  const double student = kNormal * (1 + (kNormal * kNormal + 1) / (4 * freedom));
  const double tail = std::erfc(student / std::sqrt(2.0)) / 2;
  const double low = quantile(values, tail);
  return {value, low, quantile(values, 1 - tail)};
}

size_t distinct(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t count = 0;
  double last = 0.0;
  for (const double value : values) {
    if (count > 0 && value < last * 1.1) continue;
    last = value;
    ++count;
  }
  return count;
}

void check_runs(std::span<const RunPoint> runs) {
  std::vector<double> params, tokens;
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunPoint& run = runs[i];
    for (const double value : {run.params, run.tokens, run.loss}) {
      if (!(value > 0) || !std::isfinite(value)) {
        throw DataError("[run {}] found {} parameters, {} tokens and a loss of {}, expected numbers above 0",
                        i + 1, run.params, run.tokens, run.loss);
      }
    }
    params.push_back(run.params);
    tokens.push_back(run.tokens);
  }
  const size_t sizes = distinct(params), lengths = distinct(tokens);
  if (runs.size() < 6 || sizes < 3 || lengths < 3) {
    throw DataError(
        "[scale fit] found {} runs with {} sizes and {} token counts, expected at least 6 runs with 3 sizes "
        "and 3 token counts; add runs",
        runs.size(), sizes, lengths);
  }
}

// Uniform in [0, n).
size_t below(uint32_t bits, size_t n) {
  return static_cast<size_t>((uint64_t{bits} * n) >> 32);
}

}  // namespace

LawFit fit_loss_law(std::span<const RunPoint> runs, const FitOptions& options) {
  check_runs(runs);
  const LogRuns logs = logs_of(runs);
  const size_t n = runs.size();
  LawFit out;
  out.runs = static_cast<int64_t>(n);
  out.huber_delta = options.huber_delta > 0 ? options.huber_delta : 0.01;
  Minimum best = best_of_grid(logs, out.huber_delta);
  std::vector<double> residuals = residuals_of(logs, best.x);
  if (options.huber_delta <= 0) {
    out.huber_delta = std::max(1e-3, 1.345 * robust_deviation(residuals));
    Variables start{};
    std::copy(best.x.begin(), best.x.end(), start.begin());
    best = search(logs, logs.loss, {}, out.huber_delta, start);
    residuals = residuals_of(logs, best.x);
  }
  out.converged = best.converged;
  out.law = law_of(best.x, logs);
  // Residuals are smaller than the noise, because the fit follows part of it.
  const double widen =
      std::sqrt(static_cast<double>(n) / static_cast<double>(n - std::min(n - 1, kVariables)));
  out.residual = widen * robust_deviation(residuals);

  Variables start{};
  std::copy(best.x.begin(), best.x.end(), start.begin());
  std::vector<double> targets(n);
  for (int sample = 0; sample < options.bootstraps; ++sample) {
    for (size_t i = 0; i < n; ++i) {
      const auto bits = philox({options.seed, static_cast<uint32_t>(sample)}, i);
      const double drawn = widen * residuals[below(bits[0], n)];
      targets[i] = logs.loss[i] - residuals[i] + ((bits[1] & 1) != 0 ? drawn : -drawn);
    }
    out.samples.push_back(law_of(search(logs, targets, {}, out.huber_delta, start).x, logs));
  }
  const auto& samples = out.samples;
  out.e = percentiles(out.law.e, samples, out.runs, [](const LossLaw& law) { return law.e; });
  out.a = percentiles(out.law.a, samples, out.runs, [](const LossLaw& law) { return law.a; });
  out.b = percentiles(out.law.b, samples, out.runs, [](const LossLaw& law) { return law.b; });
  out.alpha = percentiles(out.law.alpha, samples, out.runs, [](const LossLaw& law) { return law.alpha; });
  out.beta = percentiles(out.law.beta, samples, out.runs, [](const LossLaw& law) { return law.beta; });
  const auto exponent = [](const LossLaw& law) { return law.beta / (law.alpha + law.beta); };
  out.params_exponent = percentiles(exponent(out.law), samples, out.runs, exponent);
  return out;
}

Allocation allocate_flops(const LawFit& fit, double flops) {
  const Optimum best = optimum_for_flops(fit.law, flops);
  const auto of = [&](double Optimum::*member) {
    return percentiles(best.*member, fit.samples, fit.runs,
                       [&](const LossLaw& law) { return optimum_for_flops(law, flops).*member; });
  };
  return {.law = "fit",
          .flops = flops,
          .params = of(&Optimum::params),
          .tokens = of(&Optimum::tokens),
          .loss = best.loss};
}

PowerLaw fit_power_law(std::span<const double> x, std::span<const double> y) {
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double u = std::log(x[i]), v = std::log(y[i]);
    n += 1;
    sx += u;
    sy += v;
    sxx += u * u;
    sxy += u * v;
  }
  const double spread = n * sxx - sx * sx;
  if (n < 2 || !(spread > 1e-12 * n * sxx))
    throw DataError("[power law] found {} points at one abscissa, expected at least 2 that differ", n);
  const double exponent = (n * sxy - sx * sy) / spread;
  return {.scale = std::exp((sy - exponent * sx) / n), .exponent = exponent};
}

namespace {

// The minimum of the parabola through the losses of one budget; nullopt if it is outside the range of sizes.
std::optional<IsoFlopFit::Budget> minimum_of(std::span<const RunPoint> runs) {
  if (runs.size() < 3) return std::nullopt;
  double mean = 0.0, flops = 0.0, least = INFINITY, most = 0.0;
  for (const RunPoint& run : runs) {
    const double count = static_cast<double>(runs.size());
    mean += std::log(run.params) / count;
    flops += std::log(6 * run.params * run.tokens) / count;
    least = std::min(least, run.params);
    most = std::max(most, run.params);
  }
  // Normal equations of c0 + c1 u + c2 u², u = log N - mean.
  double s[5] = {}, t[3] = {};
  for (const RunPoint& run : runs) {
    const double u = std::log(run.params) - mean;
    for (int k = 0; k < 5; ++k) s[k] += std::pow(u, k);
    for (int k = 0; k < 3; ++k) t[k] += run.loss * std::pow(u, k);
  }
  const auto det = [](double a, double b, double c, double d, double e, double f, double g, double h,
                      double i) { return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g); };
  const double whole = det(s[0], s[1], s[2], s[1], s[2], s[3], s[2], s[3], s[4]);
  if (!(std::abs(whole) > 0)) return std::nullopt;
  const double c0 = det(t[0], s[1], s[2], t[1], s[2], s[3], t[2], s[3], s[4]) / whole;
  const double c1 = det(s[0], t[0], s[2], s[1], t[1], s[3], s[2], t[2], s[4]) / whole;
  const double c2 = det(s[0], s[1], t[0], s[1], s[2], t[1], s[2], s[3], t[2]) / whole;
  if (!(c2 > 0)) return std::nullopt;
  const double u = -c1 / (2 * c2), params = std::exp(mean + u);
  if (params < least || params > most) return std::nullopt;
  return IsoFlopFit::Budget{std::exp(flops), params, c0 - c1 * c1 / (4 * c2)};
}

}  // namespace

IsoFlopFit fit_isoflop(std::span<const RunPoint> runs) {
  std::vector<RunPoint> sorted(runs.begin(), runs.end());
  const auto flops = [](const RunPoint& run) { return 6 * run.params * run.tokens; };
  std::sort(sorted.begin(), sorted.end(),
            [&](const RunPoint& a, const RunPoint& b) { return flops(a) < flops(b); });
  IsoFlopFit out;
  for (size_t begin = 0; begin < sorted.size();) {
    size_t end = begin + 1;
    while (end < sorted.size() && flops(sorted[end]) <= 1.2 * flops(sorted[begin])) ++end;
    if (const auto budget = minimum_of(std::span(sorted).subspan(begin, end - begin)))
      out.budgets.push_back(*budget);
    begin = end;
  }
  if (out.budgets.size() < 3) {
    throw DataError(
        "[scale fit] found {} budgets with a minimum within their sizes, expected at least 3 budgets of 3 or "
        "more runs",
        out.budgets.size());
  }
  std::vector<double> budgets, params, tokens;
  for (const IsoFlopFit::Budget& budget : out.budgets) {
    budgets.push_back(budget.flops);
    params.push_back(budget.params);
    tokens.push_back(budget.flops / (6 * budget.params));
  }
  out.params = fit_power_law(budgets, params);
  out.tokens = fit_power_law(budgets, tokens);
  return out;
}

}  // namespace strata::planning
