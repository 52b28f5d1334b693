#include "cli/describe.h"

#include "cli/verbs.h"

namespace strata::cli {
namespace {

void describe(const Verb& verb, const std::string& path, std::vector<VerbText>& out) {
  VerbText text{.path = path, .help = verb.help(), .example = verb.example(), .options = {}, .verbs = {}};
  for (const Option& option : verb.options()) {
    text.options.push_back({.names = option.names(),
                            .value = option.value_name(),
                            .help = option.help(),
                            .positional = option.positional(),
                            .choices = option.suggestions()});
  }
  const std::vector<Verb> below = verb.verbs();
  for (const Verb& each : below) text.verbs.push_back(each.name());
  out.push_back(std::move(text));
  for (const Verb& each : below) describe(each, path.empty() ? each.name() : path + " " + each.name(), out);
}

}  // namespace

std::vector<VerbText> describe_commands() {
  CommandLine commands = strata_commands();
  std::vector<VerbText> out;
  describe(commands.root(), "", out);
  return out;
}

}  // namespace strata::cli
