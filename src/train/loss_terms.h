// Counts the terms of each loss of a step with several losses. Each loss has its own denominator, which must
// be known before the first micro-batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/ranks.h"

namespace strata::training {

// `targets`: rows of `length`, -1 for no target. Element 0 of the result is the number of targets; element k,
// for k = 1 to `further`, is the number of tokens with a target whose next k tokens have one too, as
// ops::targets_ahead returns them.
std::vector<int64_t> count_terms(std::span<const int32_t> targets, int64_t length, int64_t further);

// The sum over the shards of the batch; `mine` is for this rank's shard. All ranks call it.
std::vector<int64_t> terms_of_all(const std::vector<int64_t>& mine, const program::Ranks& ranks);

}  // namespace strata::training
