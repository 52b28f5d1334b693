// What is chosen for the user where a key is left open, each by a function of the configuration and of what
// it is chosen by.
#pragma once

#include <vector>

#include "config/choice.h"
#include "config/layout.h"

namespace strata::config {

// A rank's share of its host.
struct MachineShare {
  int64_t processors = 1;
  int64_t memory = 1;  // bytes that are free now, less room for the rest of the program and for others
};
// Of this host. `root`: the folder in place of "/", for tests.
MachineShare share_of_machine(const RankPlace& place, const Path& root = "/");

// Threads, memory budget, who drives communication. `share`: the least of all ranks, so that all of them run
// the same program.
std::vector<Choice> choose_machine(const RunConfig& config, const RankPlace& place,
                                   const MachineShare& share);
// Number formats, by the processor. Call it with threads.
std::vector<Choice> choose_precision(const RunConfig& config);
// The horizon of the learning rate and its warm-up, before the data are known.
std::vector<Choice> choose_horizon(const RunConfig& config);
std::vector<Choice> choose_warmup(int64_t horizon);
// Where memory is no matter.
std::vector<Choice> choose_micro_batch(const RunConfig& config);

// What memory.budget decides where it is left open.
struct Fit {
  int64_t zero = 0;
  int64_t micro_batch = 1;
  bool keeps_recompute = false;  // memory.recompute is what the run had chosen before
};
struct OpenToFit {
  bool zero = false, micro_batch = false;
};
// What to try where `tried` does not fit; nothing where there is nothing smaller. `by_weights`: weights,
// gradients and states alone are too much.
std::optional<Fit> smaller_fit(const RunConfig& config, const OpenToFit& open, const Fit& tried,
                               bool by_weights);

}  // namespace strata::config
