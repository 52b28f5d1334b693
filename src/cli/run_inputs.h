// What the verbs that take a RUN.toml, or texts in its place, share.
#pragma once

#include <string>
#include <vector>

#include "config/plan.h"

namespace strata::cli {

// One .toml file; or, without one, texts to train on or folders of data builds: then a small model, sized to
// the text, in runs/NAME.
config::RunConfig read_command_config(const std::vector<std::string>& inputs,
                                      const std::vector<std::string>& sets);

// As strata train would plan it in its folder now, on these ranks: a run that is there goes on with what it
// chose. Nothing is written.
config::PlanOptions options_as_trained(const config::RunConfig& config, const config::RankPlace& place);

// ConfigError where a launcher such as mpirun started several processes of a verb that works as one.
// `instead`: a further sentence of advice.
void require_one_process(const std::string& verb, const std::string& instead = {});

// About two passes over this much text, within bounds that keep a first run short.
int64_t first_run_steps(int64_t bytes, int64_t step_tokens);
// Of the files that the patterns name.
int64_t corpus_bytes(const std::vector<std::string>& patterns);

}  // namespace strata::cli
