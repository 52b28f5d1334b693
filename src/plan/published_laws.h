// Published scaling laws with their sources, and the optimal sizes that they predict, with intervals.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "plan/laws.h"

namespace strata::planning {

// A law for the optimal number of parameters for a budget: either `loss`, or the power law N = params_law(C).
struct AllocationLaw {
  std::string_view name;  // for --law
  std::string_view title;
  std::string_view source;
  Evidence evidence = Evidence::kRead;
  std::string_view corrected_by = {};  // the law that a replication replaced it with; empty: none
  std::optional<LossLaw> loss = {};
  PowerLaw params_law = {};  // C in FLOPs
  // Standard deviation of ln N at C: sqrt(base^2 + (exponent * ln(C / pivot))^2). All 0 if not published.
  double sigma_base = 0.0;
  double sigma_exponent = 0.0;
  double pivot = 0.0;  // FLOPs
};

// Every law, the default first.
std::span<const AllocationLaw> allocation_laws();
// "chinchilla" is the default. ConfigError with the nearest name.
const AllocationLaw& find_allocation_law(std::string_view name);

// Value with its 90 % interval; low and high are NaN if the law has no uncertainty.
struct Interval {
  double value = 0.0;
  double low = 0.0;
  double high = 0.0;
};

struct Allocation {
  std::string_view law;
  double flops = 0.0;
  Interval params;
  Interval tokens;
  std::optional<double> loss;
};
Allocation allocate_flops(const AllocationLaw& law, double flops);
// The budget whose optimum has `params` (or `tokens`). The given number has an interval of width 0.
Allocation allocate_params(const AllocationLaw& law, double params);
Allocation allocate_tokens(const AllocationLaw& law, double tokens);

struct NamedKaplanLaw {
  std::string_view source;
  KaplanLaw law;
};
// The constants of equations 1.1 and 1.2, then the joint fit of table 2.
std::span<const NamedKaplanLaw> kaplan_laws();

const DataConstrainedLaw& data_constrained_law();  // Muennighoff et al., appendix A, C4
const FineGrainedLaw& fine_grained_law();          // Krajewski et al., table 1; from memory
const LossLaw& fine_grained_dense_law();           // same table, dense models; from memory
const RoutedLaw& routed_law();                     // Clark et al., S-BASE; from memory

}  // namespace strata::planning
