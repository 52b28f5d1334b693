// Inputs shared by the verbs that take a RUN.toml, or texts in its place.
#pragma once

#include <string>
#include <vector>

#include "config/plan.h"

namespace strata::cli {

// One .toml file; or texts to train on, or folders of data builds: then a small model, sized to the text, in
// runs/NAME.
config::RunConfig read_command_config(const std::vector<std::string>& inputs,
                                      const std::vector<std::string>& sets);

// The options with which strata train would plan it now in its folder on these ranks: an existing run keeps
// its choices. Nothing is written.
config::PlanOptions options_as_trained(const config::RunConfig& config, const config::RankPlace& place);

// Throws ConfigError if a launcher such as mpirun started several processes of a verb that uses one.
// `instead`: additional advice.
void require_one_process(const std::string& verb, const std::string& instead = {});

// About two passes over this much text, within bounds that keep a first run short.
int64_t first_run_steps(int64_t bytes, int64_t step_tokens);
// For the files that match the patterns.
int64_t corpus_bytes(const std::vector<std::string>& patterns);

}  // namespace strata::cli
