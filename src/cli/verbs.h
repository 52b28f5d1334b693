// The command line: one function a verb, each adding itself with its options, help and example.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace strata::cli {

// What the chosen verb does once the command line is parsed; gives the exit code.
using Action = std::function<int()>;

// verb_NAME.cpp each. The action refers to options that live as long as itself.
void add_bench(CLI::App& root, Action& action);
void add_checkpoint(CLI::App& root, Action& action);
void add_checkpoint_conversions(CLI::App& checkpoint, Action& action);  // export and import, where built
void add_completions(CLI::App& root, Action& action);
void add_config(CLI::App& root, Action& action);
void add_doctor(CLI::App& root, Action& action);
void add_eval(CLI::App& root, Action& action);
void add_explain(CLI::App& root, Action& action);
void add_generate(CLI::App& root, Action& action);
void add_init(CLI::App& root, Action& action);
void add_man(CLI::App& root, Action& action);
void add_presets(CLI::App& root, Action& action);
void add_tokenizer(CLI::App& root, Action& action);
void add_train(CLI::App& root, Action& action);

// The verbs that this build holds, and the names that are known but not there yet. Written by CMake, from
// what the rooms offer.
using AddVerb = void (*)(CLI::App&, Action&);
const std::vector<AddVerb>& built_verbs();
const std::vector<std::string>& absent_verbs();

// The whole command tree. `action` is set by parsing it.
void build_commands(CLI::App& root, Action& action);

// Parses and runs: what main does. Returns the exit code; errors go to standard error.
int run_command_line(int argc, const char* const* argv);

}  // namespace strata::cli
