// Chooses the keys with the greatest scores of an indexer for each row (indexer.h).
#pragma once

#include "hardware/device_spec.h"
#include "kernels/cpu/indexer.h"

namespace strata::cpu {

// Bytes of scratch for a number of threads; more threads than that do not take part in a call. Only the scores
// of a few rows against all keys are stored at a time.
struct KeySelectionPlan {
  IndexerShape shape;
  int64_t threads = 1;
  int64_t bytes = 0;
};
KeySelectionPlan plan_key_selection(const IndexerShape& shape, const hardware::DeviceSpec& device);

// chosen int32 [sequences · q_len, count]: places in the row's sequence, ascending, then -1. Of equal scores the first
// are chosen; +0 and -0 are equal; NaN is less than all numbers. Scores are fp32, with the same bits for any number of
// threads. Scratch is aligned to 64 bytes and keeps nothing between calls.
void select_keys(const KeySelectionPlan& plan, int32_t* chosen, const IndexerInputs& in, void* scratch);

}  // namespace strata::cpu
