#include "plan/scale_json.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/text.h"

namespace strata::planning {
namespace {

std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

}  // namespace

std::string to_json(const Allocation& allocation) {
  const bool params_given = allocation.params.low == allocation.params.high;
  const Interval& interval = params_given ? allocation.tokens : allocation.params;
  return fmt::format(R"({{"law": {}, "params": {}, "tokens": {}, "loss": {}, "low": {}, "high": {}}})",
                     json_string(allocation.law), json_number(allocation.params.value),
                     json_number(allocation.tokens.value), json_number(allocation.loss.value_or(NAN)),
                     json_number(interval.low), json_number(interval.high));
}

std::string to_json(const LawFit& fit) {
  const std::pair<const char*, const Interval&> coefficients[] = {
      {"E", fit.e},         {"A", fit.a},       {"B", fit.b},
      {"alpha", fit.alpha}, {"beta", fit.beta}, {"params_exponent", fit.params_exponent}};
  std::string out;
  for (const auto& [name, interval] : coefficients) {
    out += fmt::format(R"({}"{}": {{"value": {}, "low": {}, "high": {}}})", out.empty() ? "" : ", ", name,
                       json_number(interval.value), json_number(interval.low), json_number(interval.high));
  }
  return fmt::format(R"({{"law": "chinchilla", "coefficients": {{{}}}}})", out);
}

}  // namespace strata::planning
