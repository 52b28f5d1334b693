// How many terms the losses of a step have, where it has several: known before its first micro-batch, since
// each loss has its own denominator.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/ranks.h"

namespace strata::train {

// Of targets in rows of `length`, -1 where there is none: how many tokens have one, then how many have one of
// k
// + 1 places ahead too, with all between, for k = 1 to `further`, as ops::targets_ahead gives them.
std::vector<int64_t> count_terms(std::span<const int32_t> targets, int64_t length, int64_t further);

// The sum over the parts of the batch; `mine` is of this rank's part. All ranks call it.
std::vector<int64_t> terms_of_all(const std::vector<int64_t>& mine, const program::Ranks& ranks);

}  // namespace strata::train
