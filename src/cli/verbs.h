// The command line: one function a verb, each adding itself with its options, help and example.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"

namespace strata::cli {

// verb_NAME.cpp each.
void add_bench(Verb root);
void add_data(Verb root);
void add_checkpoint(Verb root);
void add_checkpoint_conversions(Verb checkpoint);  // export and import, where built
void add_completions(Verb root);
void add_config(Verb root);
void add_doctor(Verb root);
void add_eval(Verb root);
void add_explain(Verb root);
void add_generate(Verb root);
void add_init(Verb root);
void add_man(Verb root);
void add_presets(Verb root);
void add_tokenizer(Verb root);
void add_train(Verb root);

// The verbs that this build holds, and the names that are known but not there yet. Written by CMake, from
// what the rooms offer.
using AddVerb = void (*)(Verb root);
const std::vector<AddVerb>& built_verbs();
const std::vector<std::string>& absent_verbs();

// The whole command tree.
CommandLine strata_commands();

// Parses and runs: what main does. Returns the exit code; errors go to standard error.
int run_command_line(int argc, const char* const* argv);

}  // namespace strata::cli
