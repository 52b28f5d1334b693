// Values that are finite and yet wrong: a machine has changed their bits.
#pragma once

#include <optional>
#include <string>

#include "train/reporter.h"

namespace strata::training {

struct Corruption {
  std::string where;     // "weights", "gradients", "computation", "snapshot", "copy"
  std::string found_by;  // "compare_replicas", "recompute_check", "digest"
  std::optional<std::string> tensor = {};
  std::optional<int> rank = {};  // nullopt: two disagree, and no third one decides
  std::string ranks = {};        // all that were compared: "0 and 2"
  bool splits_ranks = false;     // ranks judge the step in different ways
};

// "weights of rank 2 differ from those of ranks 0, 1 and 3"
std::string text_of(const Corruption& corruption);
// The event, at a step.
void report_corruption(const Corruption& corruption, int64_t step, Reporter& reporter);

}  // namespace strata::training
