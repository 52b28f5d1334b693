#include "cli/options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>

#include <sstream>

#include "cli/output.h"

namespace strata::cli {
namespace {

constexpr double kMostWhole = std::numeric_limits<int32_t>::max();

// A number between the two, which excludes nan; shortened in messages.
CLI::Validator number_between(double least, double most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (end != text.c_str() && *end == '\0' && value >= least && value <= most) return {};
        const std::string found = text.size() > 24 ? text.substr(0, 24) + "…" : text;
        const auto shown = [](double bound) {
          return bound == std::floor(bound) ? fmt::format("{:.0f}", bound) : fmt::format("{:g}", bound);
        };
        return fmt::format("found {}, expected a number from {} to {}", found, shown(least), shown(most));
      },
      "");
}

}  // namespace

Option Option::required() {
  option_->required();
  return *this;
}

Option Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option Option::one_each() {
  option_->type_size(1)->expected(1)->allow_extra_args(false)->multi_option_policy(
      CLI::MultiOptionPolicy::TakeAll);
  return *this;
}

Option Option::positive() {
  option_->check(number_between(1, kMostWhole));
  return *this;
}

Option Option::non_negative() {
  option_->check(number_between(0, kMostWhole));
  return *this;
}

Option Option::range(double lowest, double highest) {
  option_->check(number_between(lowest, highest));
  return *this;
}

Option Option::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return suggest(values);
}

Option Option::suggest(const std::vector<std::string>& values) {
  (*suggestions_)[option_] = values;
  return *this;
}

std::vector<std::string> Option::suggestions() const {
  const auto found = suggestions_->find(option_);
  return found == suggestions_->end() ? std::vector<std::string>{} : found->second;
}

Option Option::needs(const Option& other) {
  option_->needs(other.option_);
  return *this;
}

Option Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

bool Option::given() const {
  return option_->count() > 0;
}

std::vector<std::string> Option::names() const {
  std::vector<std::string> out;
  for (const std::string& name : option_->get_snames()) out.push_back("-" + name);
  for (const std::string& name : option_->get_lnames()) out.push_back("--" + name);
  if (out.empty()) out.push_back(option_->get_name(true));
  return out;
}

bool Option::positional() const {
  return option_->get_snames().empty() && option_->get_lnames().empty();
}

std::string Option::value_name() const {
  if (option_->get_items_expected_max() == 0) return "";
  return option_->get_type_name().empty() ? "VALUE" : option_->get_type_name();
}

std::string Option::help() const {
  return option_->get_description();
}

Verb Verb::verb(const std::string& name, const std::string& help, const std::string& example) {
  CLI::App* below = app_->add_subcommand(name, help);
  below->footer("\nExample:\n  " + example);
  return {below, chosen_, suggestions_};
}

Option Verb::option(const std::string& names, std::string& value, const std::string& help) {
  return {app_->add_option(names, value, help), suggestions_};
}

Option Verb::option(const std::string& names, int64_t& value, const std::string& help) {
  return {app_->add_option(names, value, help), suggestions_};
}

Option Verb::option(const std::string& names, uint64_t& value, const std::string& help) {
  return {app_->add_option(names, value, help), suggestions_};
}

Option Verb::option(const std::string& names, double& value, const std::string& help) {
  return {app_->add_option(names, value, help), suggestions_};
}

Option Verb::option(const std::string& names, std::vector<std::string>& value, const std::string& help) {
  return {app_->add_option(names, value, help), suggestions_};
}

Option Verb::option(const std::string& names, std::optional<std::string>& value, const std::string& help) {
  return {app_->add_option(names, value, help), suggestions_};
}

Option Verb::option(const std::string& names, std::optional<int64_t>& value, const std::string& help) {
  return {app_->add_option(names, value, help), suggestions_};
}

Option Verb::flag(const std::string& names, bool& value, const std::string& help) {
  return {app_->add_flag(names, value, help), suggestions_};
}

Option Verb::sets(std::vector<std::string>& value) {
  return option("--set", value,
                "Override a key of the configuration, e.g. training.steps=200; may be repeated")
      .one_each()
      .type_name("KEY=VALUE");
}

Option Verb::json(bool& value) {
  return flag("--json", value, "Print one JSON object on standard output");
}

void Verb::action(Action run) {
  // The parser calls this for the verbs below too, in their order, and then for this one.
  app_->callback([app = app_, chosen = chosen_, run = std::move(run)] {
    if (app->get_subcommands().empty()) *chosen = run;
  });
}

std::string Verb::name() const {
  return app_->get_name();
}

void Verb::group(const std::string& heading) {
  app_->group(heading);
}

std::string Verb::help() const {
  return app_->get_description();
}

std::string Verb::help_text() const {
  return app_->help("", CLI::AppFormatMode::Normal);
}

std::string Verb::example() const {
  const std::string footer = app_->get_footer();
  const std::string heading = "Example:\n  ";
  return footer.substr(footer.find(heading) + heading.size());
}

std::vector<Option> Verb::options() const {
  std::vector<Option> out;
  for (CLI::Option* option : app_->get_options()) out.push_back(Option(option, suggestions_));
  return out;
}

std::vector<Verb> Verb::verbs() const {
  std::vector<Verb> out;
  for (CLI::App* below : app_->get_subcommands([](CLI::App*) { return true; }))
    out.push_back(Verb(below, chosen_, suggestions_));
  return out;
}

struct CommandLine::State {
  CLI::App app;
  Action chosen;
  Suggestions suggestions;
};

CommandLine::CommandLine(const std::string& name, const std::string& help,
                         std::function<std::string(bool json)> version, const std::string& example)
    : state_(new State{.app = CLI::App(help, name), .chosen = {}, .suggestions = {}}) {
  CLI::App& app = state_->app;
  // One verb only: later words that happen to be verbs are its arguments (`strata bench eval`).
  app.require_subcommand(0, 1);
  CLI::Option* const json = app.add_flag("--json")->description(
      "With --version: print one JSON object on how the program was built");
  json->needs(app.set_version_flag(
      "--version", [json, version = std::move(version)] { return version(json->count() > 0); },
      "Print the version"));
  app.set_help_flag("-h,--help", "Explain, with an example");
  app.footer("\n`" + name + " VERB --help` explains a verb.\n\nExample:\n  " + example);
}

CommandLine::CommandLine(CommandLine&&) noexcept = default;
CommandLine::~CommandLine() = default;

Verb CommandLine::root() {
  return {&state_->app, &state_->chosen, &state_->suggestions};
}

Parsed CommandLine::parse(int argc, const char* const* argv) {
  Parsed out;
  CLI::App& app = state_->app;
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    std::ostringstream answer;
    app.exit(success, answer, answer);
    print_out(answer.str());
    out.answered = true;
  } catch (const CLI::ParseError& error) {
    out.error = error.what();
  }
  for (CLI::App* at = &app;; at = at->get_subcommands().front()) {
    out.verbs.push_back(Verb(at, &state_->chosen, &state_->suggestions));
    if (at->get_subcommands().empty()) break;
  }
  out.action = state_->chosen;
  return out;
}

}  // namespace strata::cli
