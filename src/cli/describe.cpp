#include "cli/describe.h"

#include "cli/options.h"

namespace strata::cli {
namespace {

OptionText option_text(const CLI::Option& option) {
  OptionText out{.names = {}, .value = {}, .help = option.get_description(), .positional = false};
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  if (out.names.empty()) {
    out.names.push_back(option.get_name(true));
    out.positional = true;
  }
  if (option.get_items_expected_max() > 0)
    out.value = option.get_type_name().empty() ? "VALUE" : option.get_type_name();
  return out;
}

void describe(const CLI::App& app, const std::string& path, std::vector<VerbText>& out) {
  VerbText text{.path = path, .help = app.get_description(), .example = {}, .options = {}, .verbs = {}};
  const std::string footer = app.get_footer();
  const size_t at = footer.find("Example:\n  ");
  if (at != std::string::npos) text.example = footer.substr(at + 11);
  for (const CLI::Option* option : app.get_options()) text.options.push_back(option_text(*option));
  const auto below = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* verb : below) {
    if (!verb->get_group().empty()) text.verbs.push_back(verb->get_name());
  }
  out.push_back(std::move(text));
  for (const CLI::App* verb : below) {
    if (!verb->get_group().empty())
      describe(*verb, path.empty() ? verb->get_name() : path + " " + verb->get_name(), out);
  }
}

}  // namespace

std::vector<VerbText> describe_commands() {
  CLI::App root("", "strata");
  Action action;
  build_commands(root, action);
  std::vector<VerbText> out;
  describe(root, "", out);
  return out;
}

}  // namespace strata::cli
