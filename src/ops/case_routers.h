// Sizes of the cases of routers other than top-k choice by each token.
#pragma once

#include "ops/cases.h"

namespace strata::device::op_rows {

struct RouterSizes {
  std::string name;  // follows that of the case
  int64_t groups, rows, experts, capacity, of_expert, width;
  int64_t levels;  // groups of experts
  bool ragged;

  int64_t tokens() const { return groups * rows; }
  int64_t slots() const { return groups * experts * capacity; }
};
inline std::vector<RouterSizes> router_sizes() {
  return {{"", 4, 8, 6, 3, 2, 20, 3, false},
          {"_ragged", 1, 13, 5, 4, 3, 301, 5, true},
          {"_of_all_tokens", 1, 3, 4, 3, 1, 7, 1, true},
          {"_of_one", 1, 1, 1, 1, 1, 1, 1, true}};
}

}  // namespace strata::device::op_rows
