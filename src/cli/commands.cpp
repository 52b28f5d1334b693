#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/suggest.h"
#include "base/version.h"
#include "cli/build_facts.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace strata::cli {
namespace {

constexpr int kUserError = 2;

using AddVerb = void (*)(Verb root);
struct VerbGroup {
  const char* heading;
  std::initializer_list<AddVerb> verbs;
};
// Names reserved for later versions.
constexpr std::string_view kLater[] = {"watch", "runs", "compare", "sweep"};

bool takes_values(const Verb& verb) {
  const std::vector<Option> options = verb.options();
  return std::any_of(options.begin(), options.end(),
                     [](const Option& option) { return !option.value_name().empty(); });
}

// Names the nearest verb for a mistyped one, which a parser would call an unexpected argument. Options before
// a verb are skipped, unless they may take the next word as a value: then only a first word is checked.
void check_verbs(Verb at, int argc, const char* const* argv) {
  std::string path;  // "", "config "
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::vector<Verb> verbs = at.verbs();
    if (verbs.empty()) return;
    if (word.starts_with("-")) {
      if (takes_values(at)) return;
      continue;
    }
    const auto found =
        std::find_if(verbs.begin(), verbs.end(), [&](const Verb& v) { return v.name() == word; });
    if (found != verbs.end()) {
      at = *found;
      path += word + " ";
      continue;
    }
    const std::string whole = path + word;
    if (std::find(std::begin(kLater), std::end(kLater), whole) != std::end(kLater)) {
      throw ConfigError("[strata {}] not yet in this version; `strata --help` lists the verbs", whole);
    }
    std::vector<std::string> names;
    for (const Verb& verb : verbs) names.push_back(verb.name());
    const auto near = nearest_name(word, names);
    throw ConfigError("[strata] found \"{}\", expected a verb{}; `strata {}--help` lists them", whole,
                      near ? fmt::format(", perhaps \"{}\"", *near) : "", path);
  }
}

int parse_and_run(CommandLine& commands, int argc, const char* const* argv) {
  check_verbs(commands.root(), argc, argv);
  const Parsed parsed = commands.parse(argc, argv);
  if (parsed.answered) {
    flush_out();
    return 0;
  }
  if (!parsed.error.empty()) {
    std::string verb;
    for (const Verb& at : parsed.verbs) verb += (verb.empty() ? "" : " ") + at.name();
    log_error("[{}] {}; `{} --help` explains", verb, parsed.error, verb);
    return kUserError;
  }
  if (!parsed.action) {
    print_out(parsed.verbs.back().help_text());
    flush_out();
    return argc <= 1 ? 0 : kUserError;
  }
  const int code = parsed.action();
  flush_out();
  return code;
}

}  // namespace

CommandLine strata_commands() {
  CommandLine commands(
      "strata", "Pretrains language models: text files in, a Hugging Face model out.",
      [](bool json) { return json ? build_facts_json() : std::string(program_version()); },
      "strata train corpus.txt");
  // In the order of help, grouped by task.
  const VerbGroup groups[] = {
      {"Train a model", {add_init, add_train, add_launch, add_explain, add_config, add_presets}},
      {"Plan a run", {add_scale, add_plan, add_simulate}},
      {"Steer a running run", {add_stop, add_save, add_set, add_branch, add_replay}},
      {"Prepare data", {add_data, add_tokenizer}},
      {"Use and measure a model", {add_eval, add_generate, add_check, add_checkpoint}},
      {"Set up this machine", {add_doctor, add_bench, add_completions, add_man}},
  };
  for (const VerbGroup& group : groups) {
    for (const AddVerb add : group.verbs) {
      add(commands.root());
      commands.root().verbs().back().group(group.heading);
    }
  }
  return commands;
}

int run_command_line(int argc, const char* const* argv) {
  try {
    CommandLine commands = strata_commands();
    return parse_and_run(commands, argc, argv);
  } catch (const Interrupted&) {
    log_info("stopped");
    return stop_exit_code();
  } catch (const Error& error) {
    log_error("{}", error.what());
    return exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    log_error("[memory] there is not enough memory; lower training.micro_batch_size");
    return exit_code(ErrorKind::kWorld);
  } catch (const std::exception& error) {
    log_error("[strata] a bug in strata: {}; please report it with the command that caused it", error.what());
    return exit_code(ErrorKind::kInternal);
  }
}

}  // namespace strata::cli
