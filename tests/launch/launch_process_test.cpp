// strata launch with real ranks under mpirun: a run whose ranks are killed has the bits of one that ran through.
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

class LaunchedRanks : public training::RankProcesses {
 protected:
  std::string launch(const std::string& name, const std::string& sets) const {
    std::string line = strata(name, sets);
    return line.replace(line.find(" train "), 7, " launch -n 2 ");
  }
  std::vector<LedgerAttempt> ledger(const std::string& name) const {
    return observe::read_ledger(tiny_.folder(name) / "ledger.jsonl");
  }
  // Processes of the run that still exist, by their command lines.
  std::vector<pid_t> processes(const std::string& name, const std::string& word) const {
    std::vector<pid_t> out;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
      const pid_t id = std::atoi(entry.path().filename().c_str());
      if (id <= 0 || id == ::getpid()) continue;
      std::ifstream in(entry.path() / "cmdline", std::ios::binary);
      const std::string line{std::istreambuf_iterator<char>(in), {}};
      if (line.find(tiny_.path(name + ".toml").string()) != std::string::npos &&
          line.find(word) != std::string::npos)
        out.push_back(id);
    }
    return out;
  }

 private:
  // Containers may not let processes read each other's memory.
  const fixtures::Environment copies_{"OMPI_MCA_btl_vader_single_copy_mechanism", "none"};
};

TEST_F(LaunchedRanks, ARankThatIsKilledCostsNoBit) {
  const std::string sets = " --set parallel.zero=3 --set training.micro_batch_size=1";
  ASSERT_EQ(run(on(2) + strata("whole", sets)), 0) << output();
  const std::string injected = " --set 'debug.inject=[\"kill@step=5,rank=1,phase=bwd\"]'";
  ASSERT_EQ(run(launch("killed", sets + injected)), 0) << output();
  expect_equal_runs("whole", "killed", 6);
  const std::vector<LedgerAttempt> attempts = ledger("killed");
  ASSERT_EQ(attempts.size(), 2u) << output();
  EXPECT_EQ(attempts[0].exit, 128 + SIGKILL);
  EXPECT_EQ(attempts[0].first_rank, 1);
  EXPECT_EQ(attempts[0].phase, "backward");
  EXPECT_EQ(attempts[0].from, observe::AttemptFrom::kStart);
  EXPECT_FALSE(attempts[0].recovery_s.has_value());
  EXPECT_GE(*attempts[1].from_step, 2);
  EXPECT_EQ(attempts[1].exit, 0);
  EXPECT_FALSE(attempts[1].first_rank.has_value());
  EXPECT_EQ(attempts[1].to_step, 6);
  EXPECT_GT(attempts[1].recovery_s.value_or(0), 0);
  EXPECT_EQ(attempts[1].lost_steps, *attempts[0].to_step - *attempts[1].from_step);
  EXPECT_TRUE(processes("killed", "").empty());
  EXPECT_FALSE(std::filesystem::exists(training::memory_folder(tiny_.folder("killed"))));
  const std::string page = read_file(tiny_.folder("killed") / "index.html");
  EXPECT_NE(page.find("goodput"), std::string::npos);
  EXPECT_NE(page.find("ETTR"), std::string::npos);
}

TEST_F(LaunchedRanks, SurviveTheLauncherAndStopWithASave) {
  const std::string line = launch("run", " --set training.steps=100000 --set training.micro_batch_size=1");
  const auto saves = [&] { return std::filesystem::exists(checkpoints("run") / "latest"); };
  {
    Job job(line, log());
    ASSERT_TRUE(job.wait_until(saves)) << output();
    // A second one on the same run.
    const Path other = tiny_.path("other");
    EXPECT_EQ(Job(line, other).wait(), 2) << read_file(other);
    EXPECT_NE(read_file(other).find("is using this folder"), std::string::npos) << read_file(other);
    // mpirun is killed: its ranks must be gone before the next ones start, or the folder would be in use.
    const std::vector<pid_t> ranks = processes("run", std::string("train") + '\0');
    for (const pid_t id : processes("run", "-x")) ::kill(id, SIGKILL);
    ASSERT_TRUE(job.wait_until([&] { return ledger("run").size() == 1; })) << output();
    for (const pid_t id : ranks) EXPECT_NE(::kill(id, 0), 0) << id;
    std::filesystem::remove(checkpoints("run") / "latest");
    ASSERT_TRUE(job.wait_until(saves)) << output();
    job.signal(SIGINT);
    EXPECT_EQ(job.wait(), 130) << output();
  }
  const std::vector<LedgerAttempt> attempts = ledger("run");
  ASSERT_EQ(attempts.size(), 2u) << output();
  EXPECT_EQ(attempts[0].exit, 128 + SIGKILL);
  EXPECT_EQ(attempts[1].exit, 130);
  const auto metrics = training::metrics_of(tiny_.folder("run"));
  EXPECT_EQ(metrics.events.back().at("event"), "interrupt");
  EXPECT_TRUE(processes("run", "").empty());
  // strata launch itself is killed: it cannot record that, but no process remains, and the run can be resumed.
  {
    Job job(line, log());
    std::filesystem::remove(checkpoints("run") / "latest");
    ASSERT_TRUE(job.wait_until(saves)) << output();
    job.signal(SIGKILL);
    EXPECT_EQ(job.wait(), -SIGKILL);
    for (int i = 0; i < 2000 && !processes("run", "").empty(); ++i) training::pause_for(0.01);
    EXPECT_TRUE(processes("run", "").empty());
  }
}

// Two hosts are namespaces of this machine, which an agent in place of ssh enters.
TEST_F(LaunchedRanks, ALostHostLeavesFewerRanksInALayoutThatFits) {
  if (std::system("unshare --uts true 2>/dev/null") != 0) GTEST_SKIP() << "namespaces need root";
  const Path agent = tiny_.path("agent"), gone = tiny_.path("gone-");
  put_file(agent, "#!/bin/sh\nhost=$1; shift\n[ -e " + gone.string() +
                      "$host ] && exit 255\nexec unshare --uts sh -c \"hostname $host; exec sh -c '$*'\"\n");
  std::filesystem::permissions(agent, std::filesystem::perms::owner_all);
  put_file(tiny_.path("hosts"), "a\nb\n");
  const fixtures::Environment by("OMPI_MCA_plm_rsh_agent", agent.string());
  std::string line =
      launch("run", " --set training.steps=100000 --set parallel.replicate=2 --set parallel.shard=1");
  line.replace(line.find(" -n 2 "), 6, " --hosts " + tiny_.path("hosts").string() + " ");
  const auto saves = [&] { return std::filesystem::exists(checkpoints("run") / "latest"); };
  Job job(line, log());
  ASSERT_TRUE(job.wait_until(saves)) << output();
  put_file(gone.string() + "b", "");
  int killed = 0;
  for (const pid_t id : processes("run", std::string("train") + '\0')) {
    std::ifstream in("/proc/" + std::to_string(id) + "/environ", std::ios::binary);
    const std::string environment{std::istreambuf_iterator<char>(in), {}};
    if (environment.find("OMPI_COMM_WORLD_RANK=1") == std::string::npos) continue;
    ::kill(id, SIGKILL);
    ++killed;
  }
  EXPECT_EQ(killed, 1);
  ASSERT_TRUE(job.wait_until([&] { return ledger("run").size() == 1; })) << output();
  std::filesystem::remove(checkpoints("run") / "latest");
  ASSERT_TRUE(job.wait_until(saves)) << output();
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 143) << output();
  const std::vector<LedgerAttempt> attempts = ledger("run");
  ASSERT_EQ(attempts.size(), 2u) << output();
  EXPECT_EQ(attempts[0].ranks, 2);
  EXPECT_EQ(attempts[0].first_rank, 1);
  EXPECT_EQ(attempts[1].ranks, 1);
  EXPECT_EQ(attempts[1].settings, (std::vector<std::string>{"parallel.replicate=1"}));
  EXPECT_EQ(attempts[1].from, observe::AttemptFrom::kDisk);
  EXPECT_GT(*attempts[1].to_step, *attempts[1].from_step);
  EXPECT_TRUE(processes("run", "").empty());
}

}  // namespace
}  // namespace strata::launch
