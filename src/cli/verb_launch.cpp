// strata launch
#include <fmt/core.h>

#include "base/kernel_files.h"
#include "cli/actions.h"
#include "cli/one_process.h"
#include "cli/verbs.h"
#include "launch/supervisor.h"
#include "library/run_inputs.h"

namespace strata::cli {

int run_launch(const LaunchCommand& command) {
  require_one_process("launch", "; it starts the ranks itself");
  // First of all: threads that libraries start later leave these signals to this one too.
  launch::StopSignals signals;
  launch::LaunchOptions options{.config = library::read_command_config(command.inputs, command.sets),
                                .of_rank = {program_path().string(), "train"},
                                .ranks = command.ranks,
                                .hosts = {},
                                .spares = command.spares,
                                .max_restarts = command.max_restarts};
  if (!command.hosts.empty()) options.hosts = command.hosts;
  options.of_rank.insert(options.of_rank.end(), command.inputs.begin(), command.inputs.end());
  for (const std::string& set : command.sets) options.of_rank.insert(options.of_rank.end(), {"--set", set});
  if (command.accept_changes) options.of_rank.emplace_back("--accept-changes");
  return launch::launch_run(options, signals);
}

void add_launch(Verb root) {
  auto command = std::make_shared<LaunchCommand>();
  Verb verb = root.verb("launch", "Train on the ranks of mpirun or srun, and restart them when they fail",
                        "strata launch -n 4 RUN.toml");
  verb.option("RUN.toml", command->inputs,
              "A configuration, or the folder of a run to resume; or texts, as for strata train")
      .required();
  verb.option("-n", command->ranks,
              "Ranks, one process each; default: the slots of the hosts, or as many as the layout has")
      .positive()
      .type_name("N");
  verb.option("--hosts", command->hosts,
              "A list of hosts, one a line: NAME slots=N; default: this host, or those of the Slurm job")
      .type_name("FILE");
  verb.option("--spares", command->spares,
              "Hosts at the end of the list that replace those that do not answer")
      .non_negative()
      .type_name("N");
  verb.option(
          "--max-restarts", command->max_restarts,
          "Restarts after which a failure ends the run; default: until three attempts in a row save nothing")
      .non_negative()
      .type_name("N");
  verb.sets(command->sets).suggest(configuration_keys());
  verb.flag("--accept-changes", command->accept_changes,
            "Resume although keys have changed that affect training");
  verb.action([command] { return run_launch(*command); });
}

}  // namespace strata::cli
