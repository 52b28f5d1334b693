// strata launch with a fake mpirun on PATH: exit codes, hosts, ledgers and signals.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fixtures/environment.h"
#include "observe/ledger.h"
#include "train/memory_folder.h"
#include "train/rank_processes.h"

namespace strata::launch {
namespace {

using observe::LedgerAttempt;
using training::Job;

// "mpirun" writes its arguments to `calls` and then runs the shell lines of a scenario, which see the number of the call
// in $n, the run's folder in $run and may `save STEP`. "agent" answers for hosts that have no file gone-HOST.
class FakeLauncher : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(tiny_.path("bin"));
    script("mpirun", R"(if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit 0; fi
here=)" + tiny_.path("").string() +
                         R"(
run=)" + run().string() + R"(
printf "%s\\n" "$*" >> "$here/calls"
n=$(wc -l < "$here/calls")
save() { mkdir -p "$run/checkpoints/step-0000000$1" && echo "{}" > "$run/checkpoints/step-0000000$1/manifest.json"; }
step() { echo "{\"step\":$1,\"time\":$(date +%s.%N),\"step_ms\":1}" >> "$run/metrics.jsonl"; }
event() { echo "{\"event\":\"$1\",\"at_step\":$2,\"time\":$(date +%s.%N)}" >> "$run/metrics.jsonl"; }
mkdir -p "$run"
. "$here/scenario"
)");
    script("agent", "[ ! -e " + tiny_.path("gone-").string() + "$1 ]");
    put_file(tiny_.path("run.toml"), tiny_.toml());
  }

  void script(const std::string& name, const std::string& lines) const {
    const Path path = tiny_.path("bin") / name;
    put_file(path, "#!/bin/sh\n" + lines + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  Path run() const { return tiny_.folder(); }
  std::string command(const std::string& scenario, const std::string& options = "-n 2") const {
    put_file(tiny_.path("scenario"), scenario + "\n");
    return std::string(STRATA_PROGRAM) + " launch " + options + " " + tiny_.path("run.toml").string();
  }
  int launch(const std::string& scenario, const std::string& options = "-n 2") const {
    return Job(command(scenario, options), log()).wait();
  }
  Path log() const { return tiny_.path("output"); }
  std::string output() const { return read_file(log()); }
  std::vector<LedgerAttempt> ledger() const { return observe::read_ledger(run() / "ledger.jsonl"); }
  std::vector<std::string> calls() const {
    std::istringstream in(read_file(tiny_.path("calls")));
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }
  bool has(const std::string& part) const {
    return std::filesystem::exists(log()) && output().find(part) != std::string::npos;
  }

  training::TinyRun tiny_;

 private:
  const fixtures::Environment path_{"PATH", tiny_.path("bin").string() + ":/usr/bin:/bin"};
  const fixtures::Environment agent_{"OMPI_MCA_plm_rsh_agent", tiny_.path("bin/agent").string()};
};

TEST_F(FakeLauncher, ReturnsCodesThatARestartWouldNotChange) {
  for (const int code : {2, 3, 5, 130, 143, 213}) {
    std::filesystem::remove_all(run());
    EXPECT_EQ(launch("exit " + std::to_string(code)), code) << output();
    ASSERT_EQ(ledger().size(), 1u) << code;
    EXPECT_EQ(ledger()[0].exit, code);
  }
  EXPECT_EQ(calls().size(), 6u) << "none was restarted";
}

TEST_F(FakeLauncher, RestartsWhatMayHelpAndPassesTheAttempt) {
  // The failures of a bad night, each after a save; the last attempt finishes.
  EXPECT_EQ(launch(R"(echo "attempt $STRATA_LAUNCH_ATTEMPT of $n" >&2
event $([ $n = 1 ] && echo start || echo resume) $((n - 1)); step $n; save $n
case $n in 1) kill -9 $$;; 2) exit 4;; 3) exit 1;; 4) exit 75;; 5) exit 139;; esac)"),
            0)
      << output();
  const std::vector<LedgerAttempt> attempts = ledger();
  ASSERT_EQ(attempts.size(), 6u);
  const std::vector<int> codes = {137, 4, 1, 75, 139, 0};
  for (int i = 0; i < 6; ++i) {
    const LedgerAttempt& one = attempts[static_cast<size_t>(i)];
    EXPECT_EQ(one.exit, codes[static_cast<size_t>(i)]);
    EXPECT_EQ(one.attempt, i + 1);
    EXPECT_EQ(one.from_step, i);
    EXPECT_EQ(one.to_step, i + 1);
    EXPECT_EQ(one.from, i == 0 ? observe::AttemptFrom::kStart : observe::AttemptFrom::kDisk);
    // No failure came before the first attempt and before the one that follows a stop.
    EXPECT_EQ(one.recovery_s.has_value(), i != 0 && i != 4) << i;
    EXPECT_TRUE(has("attempt " + std::to_string(i + 1) + " of " + std::to_string(i + 1))) << output();
  }
  EXPECT_NE(calls()[0].find("-n 2 "), std::string::npos);
  EXPECT_NE(calls()[0].find(" train " + tiny_.path("run.toml").string()), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(training::memory_folder(run())));
}

TEST_F(FakeLauncher, EndsWithTheLastCodeAtTheUsersLimit) {
  EXPECT_EQ(launch("save $n; exit $((136 + n))", "-n 2 --max-restarts 2"), 139) << output();
  EXPECT_EQ(calls().size(), 3u);
  EXPECT_TRUE(has("--max-restarts")) << output();
  // The next call goes on counting.
  EXPECT_EQ(launch("exit 0", "-n 2"), 0);
  EXPECT_EQ(ledger().back().attempt, 4);
}

TEST_F(FakeLauncher, ASignalBetweenAttemptsEndsTheRun) {
  // The second failure without progress is followed by a pause.
  Job job(command("exit 137"), log());
  ASSERT_TRUE(job.wait_until([&] { return has("restarting in 5 s"); })) << output();
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 143) << output();
  EXPECT_EQ(calls().size(), 2u);
}

TEST_F(FakeLauncher, ASignalReachesTheRanksAsARequestToSave) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    std::filesystem::remove(log());
    Job job(command("trap 'save 1; exit 75' USR1; echo ready >&2; while :; do sleep 0.02; done"), log());
    ASSERT_TRUE(job.wait_until([&] { return has("ready"); })) << output();
    job.signal(signal);
    EXPECT_EQ(job.wait(), signal == SIGUSR1 ? 75 : 128 + signal) << output();
    EXPECT_EQ(ledger().back().exit, signal == SIGUSR1 ? 75 : 128 + signal);
  }
  EXPECT_EQ(ledger().size(), 3u) << "none was restarted";
}

TEST_F(FakeLauncher, LeavesNoProcessBehind) {
  // Each attempt leaves a process that ignores signals, in a separate session.
  const std::string mark = tiny_.path("left").string();
  put_file(mark, "");
  EXPECT_EQ(launch("setsid sh -c 'trap \"\" TERM INT HUP; echo $$ >> " + mark +
                   "; while :; do sleep 1; done' & while [ $(wc -l < " + mark +
                   ") -lt $n ]; do sleep 0.01; done; save $n; [ $n = 2 ] || exit 137"),
            0)
      << output();
  std::istringstream left(read_file(mark));
  int count = 0;
  for (pid_t id; left >> id; ++count) EXPECT_NE(::kill(id, 0), 0) << id;
  EXPECT_EQ(count, 2);
}

TEST_F(FakeLauncher, NeedsALauncher) {
  std::filesystem::remove(tiny_.path("bin/mpirun"));
  const fixtures::Environment path("PATH", tiny_.path("bin").string());
  EXPECT_EQ(launch("exit 0"), 2);
  EXPECT_TRUE(has("found neither mpirun nor mpiexec")) << output();
  EXPECT_FALSE(std::filesystem::exists(run()));
}

TEST_F(FakeLauncher, RefusesARunThatIsRunning) {
  std::filesystem::create_directories(run());
  {
    const FileLock lock(run() / ".lock");
    EXPECT_EQ(launch("exit 0"), 2);
    EXPECT_TRUE(has("(process " + std::to_string(::getpid()) + ") is using this folder")) << output();
  }
  Job job(command("echo ready >&2; while :; do sleep 0.02; done"), log());
  ASSERT_TRUE(job.wait_until([&] { return has("ready"); })) << output();
  const Path second = tiny_.path("second");
  EXPECT_EQ(Job(command("exit 0"), second).wait(), 2);
  EXPECT_NE(read_file(second).find("another strata launch supervises this run"), std::string::npos)
      << read_file(second);
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 143) << output();
}

TEST_F(FakeLauncher, SetsTheLedgerOfAnotherRunAside) {
  EXPECT_EQ(launch("event start 0; save 1"), 0) << output();
  EXPECT_EQ(launch("event resume 1"), 0) << output();
  EXPECT_EQ(ledger().size(), 2u) << "it is this run's";
  std::filesystem::remove(run() / "metrics.jsonl");
  EXPECT_EQ(launch("event start 0"), 0) << output();
  EXPECT_TRUE(has("is the ledger of another run")) << output();
  ASSERT_EQ(ledger().size(), 1u);
  EXPECT_EQ(ledger()[0].attempt, 1);
  EXPECT_EQ(observe::read_ledger(run() / "ledger.other.jsonl").size(), 2u);
}

TEST_F(FakeLauncher, ReplacesLostHostsBySparesAndThenUsesFewerRanks) {
  put_file(tiny_.path("hosts"), "a slots=2\nb slots=2\nspare slots=2\n");
  const std::string options = "--hosts " + tiny_.path("hosts").string() +
                              " --spares 1 --set parallel.replicate=4 --set parallel.shard=1";
  const std::string gone = "> " + tiny_.path("gone-").string();
  EXPECT_EQ(launch("save $n; case $n in 1) " + gone + "b; exit 213;; 2) " + gone +
                       "spare; exit 137;; 3) rm " + tiny_.path("gone-").string() + "b; exit 4;; esac",
                   options),
            0)
      << output();
  const std::vector<std::string> all = calls();
  ASSERT_EQ(all.size(), 4u) << output();
  const auto starts = [&](size_t i, const char* with) { return all[i].find(with) != std::string::npos; };
  EXPECT_TRUE(starts(0, "-n 4 ") && starts(0, "--host a:2,b:2 ")) << all[0];
  EXPECT_TRUE(starts(1, "-n 4 ") && starts(1, "--host a:2,spare:2 ")) << all[1];
  EXPECT_TRUE(starts(2, "-n 2 ") && starts(2, "--host a:2 ") && starts(2, "--set parallel.replicate=2"))
      << all[2];
  EXPECT_TRUE(starts(3, "-n 4 ") && starts(3, "--host a:2,b:2 ")) << "b is back: " << all[3];
  EXPECT_EQ(ledger()[2].ranks, 2);
  EXPECT_EQ(ledger()[2].settings, (std::vector<std::string>{"parallel.replicate=2"}));
}

TEST_F(FakeLauncher, AHostThatIsNotThereIsAnErrorOfTheFirstStart) {
  put_file(tiny_.path("hosts"), "a\nb\n");
  put_file(tiny_.path("gone-b"), "");
  const std::string options = "--hosts " + tiny_.path("hosts").string();
  EXPECT_EQ(launch("exit 0", options), 2);
  EXPECT_TRUE(has("b did not answer")) << output();
  EXPECT_FALSE(std::filesystem::exists(tiny_.path("calls")));
  EXPECT_EQ(launch("exit 0", options + " -n 3"), 2);
  EXPECT_TRUE(has("[-n] found 3, expected at most 2")) << output();
  EXPECT_EQ(launch("exit 0", options + " --spares 2"), 2);
  EXPECT_TRUE(has("[--spares] found 2, expected fewer than the 2 hosts")) << output();
  EXPECT_EQ(launch("exit 0", "--spares 1"), 2);
  EXPECT_TRUE(has("--hosts FILE")) << output();
  EXPECT_EQ(launch("exit 0", "--hosts " + tiny_.path("none").string()), 2);
  // A spare takes its place.
  put_file(tiny_.path("hosts"), "a\nb\nc\n");
  EXPECT_EQ(launch("exit 0", options + " --spares 1"), 0) << output();
  EXPECT_NE(calls()[0].find("--host a:1,c:1 "), std::string::npos);
}

}  // namespace
}  // namespace strata::launch
