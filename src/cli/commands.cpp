#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/suggest.h"
#include "base/version.h"
#include "cli/options.h"

namespace strata::cli {
namespace {

constexpr int kUserFault = 2;

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    out.push_back(verb->get_name());
  return out;
}

// CLI11 would call a mistyped verb an unexpected argument; this names the nearest one. Options before a verb
// are skipped: none of them takes a value.
void check_verbs(const CLI::App& root, int argc, const char* const* argv) {
  const CLI::App* at = &root;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::vector<std::string> names = verb_names(*at);
    if (names.empty()) return;
    if (word.starts_with("-")) continue;
    const auto found = std::find(names.begin(), names.end(), word);
    if (found != names.end()) {
      at = at->get_subcommand(word);
      continue;
    }
    const auto& absent = absent_verbs();
    const std::string whole = at == &root ? word : at->get_name() + " " + word;
    if (std::find(absent.begin(), absent.end(), whole) != absent.end()) {
      throw ConfigError("[strata {}] not yet in this version; `strata --help` lists the verbs that are there",
                        whole);
    }
    const auto near = nearest_name(word, names);
    throw ConfigError("[strata] found \"{}\", expected a verb{}; `{} --help` lists them", whole,
                      near ? fmt::format(", perhaps \"{}\"", *near) : "",
                      at == &root ? "strata" : "strata " + at->get_name());
  }
}

int parse_and_run(CLI::App& root, Action& action, int argc, const char* const* argv) {
  try {
    check_verbs(root, argc, argv);
    root.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return root.exit(success);  // --help, --version
  } catch (const CLI::ParseError& error) {
    std::string verb = "strata";
    for (const CLI::App* at = &root; !at->get_subcommands().empty();) {
      at = at->get_subcommands().front();
      verb += " " + at->get_name();
    }
    log_error("[{}] {}; `{} --help` explains", verb, error.what(), verb);
    return kUserFault;
  }
  if (!action) {
    const CLI::App* at = &root;
    while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
    print_out(at->help("", CLI::AppFormatMode::Normal));
    return at == &root && argc <= 1 ? 0 : kUserFault;
  }
  const int code = action();
  flush_out();
  return code;
}

}  // namespace

void build_commands(CLI::App& root, Action& action) {
  root.description("Pretrains language models: text files in, a Hugging Face model out.");
  root.set_version_flag("--version", std::string(program_version()), "Print the version");
  root.set_help_flag("-h,--help", "Explain, with an example");
  root.footer("\n`strata VERB --help` explains a verb.\n\nExample:\n  strata train corpus.txt");
  for (const AddVerb add : built_verbs()) add(root, action);
}

int run_command_line(int argc, const char* const* argv) {
  CLI::App root("", "strata");
  Action action;
  try {
    build_commands(root, action);
    return parse_and_run(root, action, argc, argv);
  } catch (const Error& error) {
    log_error("{}", error.what());
    return exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    log_error("[memory] there is not enough memory; a smaller training.micro_batch_size needs less");
    return exit_code(ErrorKind::kWorld);
  } catch (const std::exception& error) {
    log_error("[strata] a bug of ours: {}; please report it with the command that led here", error.what());
    return exit_code(ErrorKind::kInternal);
  }
}

}  // namespace strata::cli
