// The layout of a run's ranks, from [parallel]: their mesh, and each rank's share of the machine and the
// batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/world.h"
#include "config/choice.h"
#include "graph/placement.h"
#include "layers/layers.h"

namespace strata::config {

// A run's ranks, as known when it starts. The defaults describe a single rank.
struct RankPlace {
  int64_t ranks = 1;
  int local_ranks = 1;  // on this host, which share its processors and its memory
};

// Resolves degrees of [parallel] that are -1 from the remaining ranks of `ranks`. Throws ConfigError if the
// degrees do not multiply to `ranks`, naming the nearest ones that do.
std::vector<Choice> choose_degrees(const RunConfig& config, int64_t ranks);
// Returns the configuration with these degrees.
RunConfig with_degrees(const RunConfig& config, int64_t ranks);
// The mesh of a configuration with resolved degrees; open degrees count as on one rank.
graph::Mesh mesh_of(const RunConfig& config);

// For resolved degrees: "replicate 1 x shard 4 x tensor 2, ZeRO stage 1".
std::string layout_in_words(const RunConfig& config);

// Keys of [parallel] that were set but have no effect with the degrees, ZeRO stage and other keys. An open
// degree (-1) or "auto" may still resolve to a value that uses them. In a configuration as written they are
// errors; in a resolved one they may result from the number of ranks.
std::vector<Issue> idle_keys(const RunConfig& config);
// An IssueHook: adds them for a configuration that a user wrote, not for one stored by a run.
void check_idle_keys(const RunConfig& config, std::vector<Issue>& issues);

// How ranks share experts, if the model has any. `host_ranks`: ranks on this host.
layers::ExpertLayout expert_layout(const RunConfig& config, int64_t host_ranks);

// Watchdog and progress of the ranks' world; progress = "auto" means inline.
comm::WorldOptions world_options(const RunConfig& config);

// Consecutive rows of a batch.
struct BatchPart {
  int64_t first = 0, rows = 0;
};
// Rows of part `index` of `parts`; sizes differ by at most one row.
BatchPart batch_part(int64_t rows, int64_t index, int64_t parts);
// Of a batch of this number of sequences: those in the largest part, and the micro-batches it processes them
// in. The batch of a step is global_batch_size unless a ramp has another (ramp.h).
int64_t sequences_of_part(const RunConfig& config, int64_t batch);
int64_t micro_batches_of_part(const RunConfig& config, int64_t batch);
// Whether the rows of this number of sequences divide equally among the tensor ranks (parallel.sequence).
bool has_equal_rows(const RunConfig& config, int64_t sequences);

}  // namespace strata::config
