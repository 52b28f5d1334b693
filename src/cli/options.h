// Small helpers that the verbs share.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "cli/verbs.h"

namespace strata::cli {

// A verb below `parent`, with an example at the end of its help.
CLI::App* add_verb(CLI::App& parent, const std::string& name, const std::string& help,
                   const std::string& example);
// --set KEY=VALUE, as often as wanted.
void add_sets(CLI::App& verb, std::vector<std::string>& sets);
void add_json(CLI::App& verb, bool& json);
// One value each time the option stands: later words are not swallowed.
CLI::Option* one_each(CLI::Option* option);

// Standard output, checked: a full disk behind a redirection is an error, a closed pipe is not ours.
void print_out(const std::string& text);
void flush_out();

}  // namespace strata::cli
