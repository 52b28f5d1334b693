// What a run would gain from what this version cannot run: fp8, an offloaded optimizer, other devices.
#pragma once

#include <string>
#include <vector>

#include "plan/search.h"

namespace strata::planning {

struct Hypothesis {
  std::string what;          // "fp8 matmuls"
  std::string note;          // its assumptions; may be empty
  std::string cluster = {};  // its name, of another device; else empty
  std::string chip = {};
  RankedLayout best = {};
  double host_bytes = 0;  // of the host's memory, for each device
};

// The best layout by formulas of each: the same job on the same number of devices, fastest first. A hypothesis that fits nowhere
// or that the device does not have is left out. Catalogued clusters of a chip other than the request's are other
// devices, each chip once.
std::vector<Hypothesis> hypotheses(const SearchRequest& request, const Catalogue& catalogue);

}  // namespace strata::planning
