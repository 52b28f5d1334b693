#include "cli/options.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace strata::cli {

CLI::App* add_verb(CLI::App& parent, const std::string& name, const std::string& help,
                   const std::string& example) {
  CLI::App* verb = parent.add_subcommand(name, help);
  verb->footer("\nExample:\n  " + example);
  return verb;
}

CLI::Option* one_each(CLI::Option* option) {
  return option->type_size(1)->expected(1)->allow_extra_args(false)->multi_option_policy(
      CLI::MultiOptionPolicy::TakeAll);
}

void add_sets(CLI::App& verb, std::vector<std::string>& sets) {
  one_each(verb.add_option("--set", sets,
                           "Override a key of the configuration, e.g. training.steps=200; may be repeated"))
      ->type_name("KEY=VALUE");
}

void add_json(CLI::App& verb, bool& json) {
  verb.add_flag("--json", json, "Print one JSON object on standard output");
}

void print_out(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    throw WorldError("[standard output] writing failed: {}", std::strerror(errno));
  }
}

void flush_out() {
  if (std::fflush(stdout) != 0)
    throw WorldError("[standard output] writing failed: {}", std::strerror(errno));
}

}  // namespace strata::cli
