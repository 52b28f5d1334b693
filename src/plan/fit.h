// Fits L(N, D) = E + A / N^alpha + B / D^beta to runs, with intervals.
//
// The fit is Chinchilla's approach 3 (Hoffmann et al., arXiv 2203.15556, eq. 3): the sum over runs of the
// Huber loss of LSE(log A - alpha log N, log B - beta log D, log E) - log L, minimized with L-BFGS from the
// best cells of a grid of exponents. Sums instead of means, because means made the published fit stop early
// (Epoch AI, arXiv 2404.10102).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/laws.h"
#include "plan/published_laws.h"

namespace strata::planning {

struct RunPoint {
  double params = 0.0;
  double tokens = 0.0;
  double loss = 0.0;  // final, nats per token
};

struct FitOptions {
  // Residuals of log L above this value count linearly; Chinchilla used 1e-3. 0: 1.345 robust standard
  // deviations of the residuals (95 % efficiency under normal noise), at least 1e-3.
  double huber_delta = 0.0;
  int bootstraps = 200;
  uint64_t seed = 1;
};

struct LawFit {
  LossLaw law;
  Interval e, a, b, alpha, beta;  // 90 %, percentiles of the bootstrap
  Interval params_exponent;       // beta / (alpha + beta): N ~ C^this
  double huber_delta = 0.0;       // the value used
  double residual = 0.0;          // robust standard deviation of log L, less 5 degrees of freedom
  int64_t runs = 0;
  bool converged = false;
  std::vector<LossLaw> samples;  // the bootstrap's laws
};

// DataError if the runs cannot determine the law: fewer than 6 runs, fewer than 3 sizes or 3 token counts
// that differ by 10 %, or a value that is not above 0.
LawFit fit_loss_law(std::span<const RunPoint> runs, const FitOptions& options = {});

// The optimum for a budget with 90 % intervals from the bootstrap.
Allocation allocate_flops(const LawFit& fit, double flops);

// Chinchilla's approach 2: fits a parabola of the loss over log N for each budget, then power laws to the
// minima N(C) and D(C). Runs whose 6 N D agree within 20 % form one budget. DataError if fewer than 3 budgets
// have a minimum within their range of sizes.
struct IsoFlopFit {
  PowerLaw params;  // N = scale * C^exponent
  PowerLaw tokens;
  struct Budget {
    double flops = 0.0;
    double params = 0.0;
    double loss = 0.0;
  };
  std::vector<Budget> budgets;  // ascending
};
IsoFlopFit fit_isoflop(std::span<const RunPoint> runs);

// The losses of one run while it trained.
struct RunCurve {
  double params = 0.0;
  std::vector<double> tokens;  // ascending
  std::vector<double> loss;    // smoothed; NaN: none
};

// Chinchilla's approach 1: at each of 1500 budgets, spaced evenly in the logarithm, the size whose curve has
// the lowest loss; a power law through these sizes. Budgets count if curves of at least 3 sizes reach them and
// the lowest is neither of the smallest nor of the largest size. Losses before the learning rate has decayed
// are above those of a run that ends there. DataError if fewer than 2 sizes are the best of some budget.
struct EnvelopeFit {
  PowerLaw params;    // N = scale * C^exponent
  int64_t sizes = 0;  // that are the best of some budget
  double low = 0.0;   // range of these budgets, FLOPs
  double high = 0.0;
};
EnvelopeFit fit_envelope(std::span<const RunCurve> curves);

// y = scale * x^exponent by least squares of the logarithms. DataError with fewer than 2 different x.
PowerLaw fit_power_law(std::span<const double> x, std::span<const double> y);

}  // namespace strata::planning
