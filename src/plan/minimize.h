// Minimizes smooth functions of a few variables with L-BFGS (Nocedal & Wright, algorithm 7.5).
#pragma once

#include <span>
#include <vector>

#include "base/function_ref.h"

namespace strata::planning {

// The value at `x`; writes the gradient. A value that is not finite means that `x` is outside the domain.
using Objective = FunctionRef<double(std::span<const double> x, std::span<double> gradient)>;

struct MinimizeOptions {
  int memory = 8;
  int max_iterations = 200;
  double gradient_tolerance = 1e-8;  // of the largest component, relative to max(1, |value|)
  double value_tolerance = 1e-12;    // stops below this relative decrease
};

struct Minimum {
  std::vector<double> x;
  double value = 0.0;
  int iterations = 0;
  bool converged = false;
};

Minimum minimize(Objective objective, std::vector<double> start, const MinimizeOptions& options = {});

}  // namespace strata::planning
