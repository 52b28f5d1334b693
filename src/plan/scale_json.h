// Results of scaling laws as JSON.
#pragma once

#include <string>

#include "plan/fit.h"

namespace strata::planning {

// {"law", "params", "tokens", "loss", "low", "high"}: low and high are the 90 % interval of the parameters,
// or of the tokens if the parameters were given. null: the law has no loss, or no published uncertainty.
std::string to_json(const Allocation& allocation);

// {"law": "chinchilla", "coefficients": {"E", "A", "B", "alpha", "beta", "params_exponent"}}, each with
// {"value", "low", "high"}.
std::string to_json(const LawFit& fit);

}  // namespace strata::planning
