// Jobs under mpirun whose ranks are killed, and that continue from copies of their state in memory: on the same
// host, or from another host after one was lost with its memory.
#include "train/memory_folder.h"
#include "train/rank_processes.h"

namespace strata::training {
namespace {

constexpr int64_t kSteps = 50;

class CopiesOfRanks : public RankProcesses {
 protected:
  ~CopiesOfRanks() override { remove_memory_folder(tiny_.folder("run")); }

  static std::string sets() {
    return " --set training.steps=" + std::to_string(kSteps) +
           " --set recovery.copies=3 --set checkpoint.interval=20";
  }
  std::vector<std::string> resumes() const {
    std::vector<std::string> found;
    for (const auto& event : metrics_of(tiny_.folder("run")).events)
      if (event.at("event") == "resume") found.push_back(event.at("from"));
    return found;
  }
};

TEST_F(CopiesOfRanks, KilledRanksContinueFromThem) {
  const std::string whole = strata("whole", sets());
  ASSERT_EQ(run(on(3) + whole), 0) << output();
  // Each kill comes once, between two steps and within one.
  const std::string line =
      on(3) + strata("run", sets() +
                                " --set 'debug.inject=[\"kill@step=8,rank=0\", "
                                "\"kill@step=13,rank=2,phase=update\", \"kill@step=45,rank=1,phase=fwd\"]'");
  for (int kill = 0; kill < 3; ++kill) EXPECT_EQ(run(line), 128 + SIGKILL) << output();
  ASSERT_EQ(run(line), 0) << output();
  EXPECT_EQ(resumes(), (std::vector<std::string>{"copies", "copies", "copies"}));
  expect_equal_runs("whole", "run", kSteps);
  EXPECT_FALSE(std::filesystem::exists(memory_folder(tiny_.folder("run"))));
}

// Hosts are namespaces with their own name and /dev/shm, which last as long as a process is in them.
class CopiesOnHosts : public CopiesOfRanks {
 protected:
  void SetUp() override {
    CopiesOfRanks::SetUp();
    if (IsSkipped()) return;
    if (std::system(
            "unshare --mount --uts sh -c 'hostname other && mount -t tmpfs none /dev/shm' 2>/dev/null") != 0)
      GTEST_SKIP() << "this machine lets the tests make no hosts: namespaces need root";
  }

  std::unique_ptr<Job> host(const std::string& name) const {
    const Path ready = tiny_.path(name);
    std::filesystem::remove(ready);
    put_file(tiny_.path(name + ".sh"), "hostname " + name + "\nmount -t tmpfs none /dev/shm\necho $$ > " +
                                           ready.string() + ".new\nmv " + ready.string() + ".new " +
                                           ready.string() + "\nexec sleep 600\n");
    auto job = std::make_unique<Job>("unshare --mount --uts sh " + tiny_.path(name + ".sh").string(),
                                     tiny_.path(name + ".log"));
    EXPECT_TRUE(job->wait_until([&] { return std::filesystem::exists(ready); }));
    return job;
  }
  std::string within(const std::string& host, const std::string& command) const {
    std::string process = read_file(tiny_.path(host));
    process.pop_back();
    return "nsenter --target " + process + " --mount --uts " + command;
  }
  // Two ranks on one host, one on the other.
  std::string job(const std::string& name, const std::string& sets) const {
    // Processes of different hosts share no memory.
    return on(2) + "--mca btl tcp,self " + within("first", strata(name, sets)) + " : " + of(1) +
           within("second", strata(name, sets));
  }
};

TEST_F(CopiesOnHosts, ALostHostsCopiesAreOnTheOther) {
  std::unique_ptr<Job> first = host("first"), second = host("second");
  ASSERT_EQ(run(job("whole", sets())), 0) << output();
  const std::string kills = sets() +
                            " --set 'debug.inject=[\"kill@step=8,rank=0\", \"kill@step=13,rank=2\", "
                            "\"kill@step=45,rank=1\"]'";
  EXPECT_EQ(run(job("run", kills)), 128 + SIGKILL) << output();
  first.reset();  // its memory is gone
  first = host("first");
  EXPECT_EQ(run(job("run", kills)), 128 + SIGKILL) << output();
  second.reset();
  second = host("second");
  // Without copies on other hosts a lost host takes the run back to a checkpoint: that of step 20 is complete when
  // the next save begins.
  const std::string alone = kills + " --set recovery.peer_copies=never";
  EXPECT_EQ(run(job("run", alone)), 128 + SIGKILL) << output();
  first.reset();
  first = host("first");
  ASSERT_EQ(run(job("run", alone)), 0) << output();
  EXPECT_EQ(resumes(), (std::vector<std::string>{"copies", "copies", "disk"}));
  expect_equal_runs("whole", "run", kSteps);
}

}  // namespace
}  // namespace strata::training
