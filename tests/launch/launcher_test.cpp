// Which launcher is used, its command lines, hosts files and texts of failures.
#include "launch/launcher.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/failure.h"
#include "launch/hosts.h"

namespace strata::launch {
namespace {

using Words = std::vector<std::string>;

// A machine with some programs and variables.
struct FakeMachine {
  std::map<std::string, std::string> programs;  // name → what --version prints
  std::map<std::string, std::string> variables;

  LauncherSearch search() const {
    return {.variable =
                [this](const char* name) {
                  const auto it = variables.find(name);
                  return it == variables.end() ? nullptr : it->second.c_str();
                },
            .find_program = [this](const std::string& name) -> std::optional<Path> {
              if (!programs.contains(name)) return std::nullopt;
              return Path("/usr/bin") / name;
            },
            .version = [this](const Path& program) { return programs.at(program.filename().string()); }};
  }
};

template <typename Work>
std::string message_of(const Work& work) {
  try {
    work();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Launchers, AreFoundByTheirVersion) {
  const std::map<std::string, LauncherKind> versions = {
      {"mpirun (Open MPI) 4.1.4\n", LauncherKind::kOpenMpi},
      {"mpirun (PRRTE) 3.0.1", LauncherKind::kOpenMpi},
      {"HYDRA build details:\n    Version: 4.0.2\n", LauncherKind::kHydra},
      {"Intel(R) MPI Library for Linux* OS, Version 2021.9", LauncherKind::kHydra}};
  for (const auto& [text, kind] : versions) {
    const FakeMachine machine{.programs = {{"mpirun", text}}, .variables = {}};
    EXPECT_EQ(find_launcher(machine.search()).kind, kind) << text;
  }
  const FakeMachine other{.programs = {{"mpiexec", "LAM 7.1"}}, .variables = {}};
  EXPECT_NE(message_of([&] { find_launcher(other.search()); }).find("LAM 7.1"), std::string::npos);
}

TEST(Launchers, SrunIsUsedInASlurmJobOnly) {
  FakeMachine machine{.programs = {{"srun", ""}, {"mpirun", "Open MPI"}}, .variables = {}};
  EXPECT_EQ(find_launcher(machine.search()).kind, LauncherKind::kOpenMpi);
  machine.variables["SLURM_JOB_ID"] = "17";
  EXPECT_EQ(find_launcher(machine.search()).program, "/usr/bin/srun");
}

TEST(Launchers, NoneIsAnErrorWithWhatToDo) {
  const std::string message = message_of([] { find_launcher(FakeMachine().search()); });
  EXPECT_NE(message.find("openmpi-bin"), std::string::npos) << message;
  EXPECT_NE(message.find("--ranks N"), std::string::npos) << message;
}

Words command(LauncherKind kind, std::vector<HostSlots> hosts, bool is_root = false) {
  return start_command({.kind = kind, .program = "/bin/run"}, {.ranks = 6,
                                                               .hosts = std::move(hosts),
                                                               .attempt = 2,
                                                               .is_root = is_root,
                                                               .ends_at_once = true,
                                                               .of_rank = {"strata", "train", "a b.toml"}});
}

TEST(Launchers, HaveTheirOwnCommandLines) {
  const std::vector<HostSlots> hosts = {{.name = "a", .slots = 4}, {.name = "b", .slots = 2}};
  EXPECT_EQ(command(LauncherKind::kOpenMpi, {}),
            (Words{"/bin/run", "-n", "6", "--oversubscribe", "--mca", "odls_base_sigkill_timeout", "0", "-x",
                   "STRATA_LAUNCH_ATTEMPT", "strata", "train", "a b.toml"}));
  EXPECT_EQ(command(LauncherKind::kOpenMpi, hosts, true),
            (Words{"/bin/run", "-n", "6", "--allow-run-as-root", "--host", "a:4,b:2", "--mca",
                   "odls_base_sigkill_timeout", "0", "-x", "STRATA_LAUNCH_ATTEMPT", "strata", "train",
                   "a b.toml"}));
  EXPECT_EQ(command(LauncherKind::kHydra, hosts),
            (Words{"/bin/run", "-n", "6", "-hosts", "a:4,b:2", "-genv", "STRATA_LAUNCH_ATTEMPT", "2",
                   "strata", "train", "a b.toml"}));
  EXPECT_EQ(command(LauncherKind::kSlurm, hosts),
            (Words{"/bin/run", "--ntasks=6", "--kill-on-bad-exit=1", "--nodes=2", "--nodelist=a,b",
                   "--export=ALL,STRATA_LAUNCH_ATTEMPT=2", "strata", "train", "a b.toml"}));
}

TEST(Launchers, ReachHostsByTheirAgents) {
  FakeMachine machine{.programs = {{"ssh", ""}, {"rsh", ""}, {"agent", ""}}, .variables = {}};
  const Launcher open_mpi{.kind = LauncherKind::kOpenMpi, .program = "/usr/bin/mpirun"};
  const Launcher hydra{.kind = LauncherKind::kHydra, .program = "/usr/bin/mpiexec"};
  EXPECT_EQ(remote_agent(open_mpi, machine.search(), 9.5),
            (Words{"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"}));
  machine.variables = {{"OMPI_MCA_plm_rsh_agent", "none : agent : ssh"},
                       {"OMPI_MCA_plm_rsh_args", "-p  22"},
                       {"HYDRA_LAUNCHER_EXEC", "/usr/bin/none"}};
  EXPECT_EQ(remote_agent(open_mpi, machine.search(), 1), (Words{"agent", "-p", "22"}));
  EXPECT_NE(message_of([&] { remote_agent(hydra, machine.search(), 1); }).find("HYDRA_LAUNCHER_EXEC"),
            std::string::npos);
}

TEST(Hosts, AreReadInBothNotations) {
  const std::string text =
      "# two racks\nnode-1 slots=8\n\n node-2:4  \nnode-3\t# one\nnode-4 slots=2 max_slots=3\r\n";
  const std::vector<HostSlots> expected = {{.name = "node-1", .slots = 8},
                                           {.name = "node-2", .slots = 4},
                                           {.name = "node-3", .slots = 1},
                                           {.name = "node-4", .slots = 2}};
  EXPECT_EQ(parse_hosts(text, "hosts"), expected);
  EXPECT_EQ(slots_of(expected), 15);
}

TEST(Hosts, OddLinesAreRefusedByNumber) {
  for (const char* line : {"a slots=0", "a slots=", "a:x", "a slot=4", "a 4", "-oProxyCommand=x", "a,b", ":4",
                           "a:70000", "a slots=4 more"}) {
    const std::string message = message_of([&] { parse_hosts("first\n" + std::string(line), "hosts"); });
    EXPECT_NE(message.find("hosts:2"), std::string::npos) << line << ": " << message;
  }
  EXPECT_NE(message_of([] { parse_hosts("a\nb\na:3", "hosts"); }).find("found a again"), std::string::npos);
  EXPECT_NE(message_of([] { parse_hosts("# none\n", "hosts"); }).find("no hosts"), std::string::npos);
}

TEST(Hosts, OfASlurmJob) {
  const std::vector<HostSlots> expected = {
      {.name = "n1", .slots = 4}, {.name = "n2", .slots = 4}, {.name = "n3", .slots = 3}};
  EXPECT_EQ(slurm_hosts("n1\nn2\nn3\n", "4(x2),3"), expected);
  EXPECT_EQ(slurm_hosts("n1\nn2", "2(x2)").size(), 2u);
  EXPECT_THROW(slurm_hosts("n1", "four"), ConfigError);
}

TEST(Hosts, TakeRanksInOrderAndSparesReplaceThoseThatDoNotAnswer) {
  const std::vector<HostSlots> hosts = {{"a", 2}, {"b", 2}, {"spare", 2}};
  using Placed = std::vector<HostSlots>;
  EXPECT_EQ(place_ranks(hosts, {true, true, true}, 4), (Placed{{"a", 2}, {"b", 2}}));
  EXPECT_EQ(place_ranks(hosts, {true, false, true}, 4), (Placed{{"a", 2}, {"spare", 2}}));
  EXPECT_EQ(place_ranks(hosts, {true, false, true}, 3), (Placed{{"a", 2}, {"spare", 1}}));
  EXPECT_EQ(slots_of(place_ranks(hosts, {false, false, true}, 4)), 2);
  EXPECT_TRUE(place_ranks(hosts, {false, false, false}, 4).empty());
}

TEST(Hosts, AreProbedTogetherWithATimeLimit) {
  const std::vector<HostSlots> hosts = {{"localhost", 1}, {"yes", 1}, {"no", 1}, {"never", 1}};
  const Words agent = {"/bin/sh", "-c", "case $0 in yes) exit 0;; no) exit 255;; esac; exec sleep 60"};
  EXPECT_EQ(probe_hosts(hosts, agent, 0.3), (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(probe_hosts({{"yes", 1}}, {"/none/agent"}, 0.3), (std::vector<bool>{false}));
}

TEST(Failures, OfAWatchdogNameTheMissingRankAndTheCollective) {
  const FailureText silent = failure_in(
      "step 4\nerror: rank 0: [comm] rank 2 is stopped or gone: ranks 0 and 1 have waited 8.1 s for rank 2. Rank 2: doing "
      "step 17, B1; last collective: gather of layer 2 (16.8 MB, number 51 of group 'shard'), started 3.2 s ago. Rank 0: "
      "doing step 17, F0; no collective yet.\n");
  EXPECT_EQ(silent.first_rank(), 2);
  EXPECT_EQ(silent.doing, "step 17, B1");
  EXPECT_EQ(silent.collective, "gather of layer 2");
  EXPECT_EQ(phase_of_action(silent.doing), "backward");
  const FailureText late = failure_in(
      "error: rank 1: [comm] sum of gradients, number 7 of group 'replicate': rank 1 has waited 1800.0 s for ranks 0 and 3. "
      "Rank 0: doing step 3, update; no collective yet.\n");
  EXPECT_EQ(late.first_rank(), 0);
  EXPECT_EQ(late.collective, "sum of gradients");
  EXPECT_EQ(phase_of_action(late.doing), "update");
  const FailureText left =
      failure_in("error: rank 0: [comm] barrier, number 9 of group 'world': rank 3 has ended without it\n");
  EXPECT_EQ(left.first_rank(), 3);
}

TEST(Failures, OfARankAreReportedByIt) {
  const FailureText own = failure_in("error: rank 3: [data.train] tokens.bin: cannot be read\n");
  EXPECT_EQ(own.first_rank(), 3);
  EXPECT_EQ(own.collective, "");
}

TEST(Failures, AreNamedByTheLauncher) {
  EXPECT_EQ(
      failure_in("mpirun noticed that process rank 5 with PID 0 on node vm exited on signal 9 (Killed).")
          .first_rank(),
      5);
  EXPECT_EQ(
      failure_in("The first process to do so was:\n\n  Process name: [[23706,1],12]\n  Exit code:    4\n")
          .first_rank(),
      12);
  EXPECT_EQ(failure_in("srun: error: node2: task 3: Killed\n").first_rank(), 3);
  EXPECT_EQ(failure_in("nothing to see").first_rank(), std::nullopt);
  EXPECT_EQ(failure_in("").first_rank(), std::nullopt);
}

}  // namespace
}  // namespace strata::launch
