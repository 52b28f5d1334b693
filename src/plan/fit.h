// Fits L(N, D) = E + A / N^alpha + B / D^beta to runs, with intervals.
//
// The fit is Chinchilla's approach 3 (Hoffmann et al., arXiv 2203.15556, eq. 3): the sum over runs of the
// Huber loss of LSE(log A - alpha log N, log B - beta log D, log E) - log L, minimised by L-BFGS from the
// best cells of a grid of exponents. Sums, not means: means made the published fit stop early (Epoch AI,
// arXiv 2404.10102).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/laws.h"
#include "plan/published_laws.h"

namespace strata::plan {

struct RunPoint {
  double params = 0.0;
  double tokens = 0.0;
  double loss = 0.0;  // final, nats per token
};

struct FitOptions {
  // Where residuals of log L count linearly; Chinchilla used 1e-3. 0: 1.345 robust standard deviations of the
  // residuals, at least 1e-3, which loses 5 % of efficiency for normal noise.
  double huber_delta = 0.0;
  int bootstraps = 200;
  uint64_t seed = 1;
};

struct LawFit {
  LossLaw law;
  Interval e, a, b, alpha, beta;  // 90 %, percentiles of the bootstrap
  Interval params_exponent;       // beta / (alpha + beta): N ~ C^this
  double huber_delta = 0.0;       // as used
  double residual = 0.0;          // standard deviation of log L, robust, with 5 degrees of freedom taken off
  int64_t runs = 0;
  bool converged = false;
  std::vector<LossLaw> samples;  // the bootstrap's laws
};

// DataError when the runs cannot determine the law: fewer than 6, fewer than 3 sizes or 3 numbers of tokens
// that differ by 10 %, or a value that is not above 0.
LawFit fit_loss_law(std::span<const RunPoint> runs, const FitOptions& options = {});

// The optimum for a budget with 90 % intervals from the bootstrap.
Allocation allocate_flops(const LawFit& fit, double flops);

// Chinchilla's approach 2: for each budget a parabola of the loss over log N, whose minima N(C) and D(C)
// follow power laws. Runs whose 6 N D agree within 20 % are one budget; DataError with fewer than 3 budgets
// that have a minimum inside their sizes.
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

// y = scale * x^exponent by least squares of the logarithms. At least 2 points.
PowerLaw fit_power_law(std::span<const double> x, std::span<const double> y);

}  // namespace strata::plan
