// The command line: one function per verb, which adds the verb with its options, help and example.
#pragma once

#include "cli/options.h"

namespace strata::cli {

// verb_NAME.cpp each.
void add_bench(Verb root);
void add_data(Verb root);
void add_data_find(Verb data);
void add_branch(Verb root);
void add_replay(Verb root);
void add_check(Verb root);
void add_check_drift(Verb check);
void add_check_precision(Verb check);
void add_checkpoint(Verb root);
void add_checkpoint_conversions(Verb checkpoint);  // export and import
void add_completions(Verb root);
void add_config(Verb root);
void add_doctor(Verb root);
void add_eval(Verb root);
void add_explain(Verb root);
void add_generate(Verb root);
void add_init(Verb root);
void add_launch(Verb root);
void add_man(Verb root);
void add_plan(Verb root);
void add_presets(Verb root);
void add_save(Verb root);
void add_scale(Verb root);
void add_set(Verb root);
void add_simulate(Verb root);
void add_stop(Verb root);
void add_tokenizer(Verb root);
void add_train(Verb root);

// What completions offer: the presets; the stages of data recipes; the keys of RUN.toml, each with "=".
std::vector<std::string> preset_names();
std::vector<std::string> stage_names();
std::vector<std::string> configuration_keys();
// Those that strata set takes.
std::vector<std::string> steerable_keys();

// The whole command tree.
CommandLine strata_commands();

// The work of main: parses and runs. Returns the exit code; errors go to standard error.
int run_command_line(int argc, const char* const* argv);

}  // namespace strata::cli
