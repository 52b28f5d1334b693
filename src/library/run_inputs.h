// Inputs shared by the verbs that take a RUN.toml, or texts in its place.
#pragma once

#include <string>
#include <vector>

#include "config/plan.h"

namespace strata::library {

// For texts, or for folders of data builds: a run in runs/NAME with a small model, sized to the text.
config::RunConfig config_for_texts(const std::vector<std::string>& texts,
                                   const std::vector<std::string>& sets);
// Reads one .toml file or a run's folder; otherwise as config_for_texts().
config::RunConfig read_command_config(const std::vector<std::string>& inputs,
                                      const std::vector<std::string>& sets);

// The options with which strata train would now plan the run in its folder on these ranks: an existing run
// keeps its choices. Writes nothing.
config::PlanOptions options_as_trained(const config::RunConfig& config, const config::RankPlace& place);

// About two passes over this much text, within bounds that keep a first run short.
int64_t first_run_steps(int64_t bytes, int64_t step_tokens);
// For the files that match the patterns.
int64_t corpus_bytes(const std::vector<std::string>& patterns);

}  // namespace strata::library
