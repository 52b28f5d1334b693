// The ranks of a run: how [parallel] lays them out, and what one of them has of the machine and of a batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/world.h"
#include "config/choice.h"
#include "graph/placement.h"
#include "layers/layers.h"

namespace strata::config {

// What a start knows of its ranks. One rank alone: the defaults.
struct RankPlace {
  int64_t ranks = 1;
  int local_ranks = 1;  // on this host, which share its processors and its memory
};

// For degrees of [parallel] that are -1, what is left of `ranks`. ConfigError where they do not make as many,
// with the nearest that do.
std::vector<Choice> choose_degrees(const RunConfig& config, int64_t ranks);
// The configuration with these.
RunConfig with_degrees(const RunConfig& config, int64_t ranks);
// The mesh of a configuration whose degrees are resolved; of open ones as on one rank.
graph::Mesh mesh_of(const RunConfig& config);

// Of resolved degrees: "replicate 1 x shard 4 x tensor 2, ZeRO stage 1".
std::string layout_in_words(const RunConfig& config);

// Keys of [parallel] that were set and do nothing with the degrees, the stage of ZeRO and the other keys that
// stand beside them. An open degree (-1) or "auto" may become what they need: of a configuration as it was
// written these are faults; of a resolved one they may follow from the number of ranks.
std::vector<Fault> idle_keys(const RunConfig& config);
// Adds them where the configuration is one that was written, not one that a run has stored: a FaultHook.
void check_idle_keys(const RunConfig& config, std::vector<Fault>& faults);

// How ranks share experts, where the model has any. `host_ranks`: those of this host.
layers::ExpertLayout expert_layout(const RunConfig& config, int64_t host_ranks);

// How the ranks' world watches and makes progress; progress that is still "auto" is inline.
comm::WorldOptions world_options(const RunConfig& config);

// A part of a batch: consecutive rows.
struct BatchPart {
  int64_t first = 0, rows = 0;
};
// Rows of part `index` of `parts`, one more or fewer where they do not divide.
BatchPart batch_part(int64_t rows, int64_t index, int64_t parts);
// Sequences of a step that the largest part has, and the micro-batches that it takes them in.
int64_t sequences_of_part(const RunConfig& config);
int64_t micro_batches_of_part(const RunConfig& config);
// Whether the rows of so many sequences have equal parts for the ranks of `tensor` that hold one each
// (parallel.sequence).
bool has_equal_rows(const RunConfig& config, int64_t sequences);

}  // namespace strata::config
