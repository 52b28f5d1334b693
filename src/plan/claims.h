// Published claims about training runs, recomputed: `strata plan --check-claims`.
//
// The claims are figures of five widely read guides and of model reports. Each has the formula that checks it;
// the catalogue supplies peaks and prices.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "plan/catalogue.h"
#include "plan/published_laws.h"

namespace strata::planning {

enum class Verdict {
  kRight,       // within the tolerance of the claim's rounding
  kOff,         // another value follows from the claim's own inputs
  kImpossible,  // a share of a peak above 1
  kConflict,    // the source states two values
};
std::string_view to_string(Verdict verdict);

struct CheckedClaim {
  std::string_view id;
  std::string_view source;
  std::string_view claim;    // the statement of the source
  std::string_view formula;  // of `computed`
  std::string_view unit;     // of both values; empty: a ratio
  double published = 0.0;
  Interval computed;   // low = high unless the inputs are ranges
  double ratio = 0.0;  // published over computed
  Verdict verdict = Verdict::kRight;
  std::string_view why;  // the reason for the difference, or a consequence; may be empty
};

// The names of sources ("guide 0"), each with its title.
struct ClaimSource {
  std::string_view name, title;
};
std::span<const ClaimSource> claim_sources();

// Every claim, by source.
std::vector<CheckedClaim> check_claims(const Catalogue& catalogue);

// A table, then the reasons of all differences.
std::string to_text(std::span<const CheckedClaim> claims);
// {"claims": [{"id", "source", "claim", "formula", "unit", "published", "computed", "low", "high", "ratio",
// "verdict", "why"}, …], "right", "off", "impossible", "conflict"}
nlohmann::ordered_json json_of(std::span<const CheckedClaim> claims);

}  // namespace strata::planning
