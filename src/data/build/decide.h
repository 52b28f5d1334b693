// The decision of a deduplication within a build: over the records of all parts, once.
#pragma once

#include "data/build/build_stats.h"
#include "data/build/job.h"

namespace strata::data {

// Writes each part's decisions, clusters/NN-KIND.jsonl if the recipe asks for it, and last the marker that
// they are complete; existing files are not touched.
void decide(const BuildJob& job, size_t phase);

// What deciding counted and found, from the marker.
RowStats decided_stats(const BuildJob& job, size_t phase);

}  // namespace strata::data
