// The decision of a deduplication within a build: over the records of all parts, once.
#pragma once

#include "data/build/build_stats.h"
#include "data/build/job.h"

namespace strata::data {

// Writes each part's decisions, clusters/NN-KIND.jsonl where the recipe asks for it, and last of all the
// marker that says so; what stands already is left as it is.
void decide(const BuildJob& job, size_t phase);

// What deciding counted and found, from the marker.
RowStats decided_stats(const BuildJob& job, size_t phase);

}  // namespace strata::data
