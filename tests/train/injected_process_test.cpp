// Processes that debug.inject kills, stops or cuts off: each once, after it was reported; the same command then
// finishes the run as if nothing had happened.
#include "train/rank_processes.h"

namespace strata::training {
namespace {

class InjectedProcesses : public RankProcesses {
 protected:
  static std::string inject(const std::string& entry) {
    return " --set 'debug.inject=[\"" + entry + "\"]'" + kSets;
  }
  static constexpr const char* kSets =
      " --set parallel.zero=3 --set training.micro_batch_size=1 --set parallel.silence_limit=2s"
      " --set parallel.wait_limit=1s";
  std::vector<nlohmann::json> injected(const std::string& name) const {
    std::vector<nlohmann::json> found;
    for (const auto& event : metrics_of(tiny_.folder(name)).events)
      if (event.at("event") == "injected") found.push_back(event);
    return found;
  }
  // Runs until the fault, which ends the job with `code`, and again to the end.
  void expect_one_fault(const std::string& start, const std::string& name, const std::string& entry,
                        int code) const {
    const std::string line = start + strata(name, inject(entry));
    ASSERT_EQ(run(line), code) << entry << "\n" << output();
    EXPECT_NE(output().find(entry), std::string::npos) << output();
    EXPECT_TRUE(std::filesystem::exists(tiny_.folder(name) / "injected" / "001.json")) << entry;
    expect_whole(name, entry);
    ASSERT_EQ(run(line), 0) << entry << "\n" << output();
    EXPECT_EQ(output().find("injected at"), std::string::npos) << entry << "\n" << output();
    const auto events = injected(name);
    ASSERT_EQ(events.size(), 1) << entry;
    EXPECT_EQ(events[0].at("fault"), entry);
    expect_equal_runs("whole", name, 6);
  }
};

TEST_F(InjectedProcesses, OneProcessIsKilledInEachPhase) {
  ASSERT_EQ(run(strata("whole")), 0) << output();
  for (const char* phase : {"", ",phase=fwd", ",phase=bwd", ",phase=update", ",phase=save"}) {
    const std::string entry = std::string("kill@step=4") + phase;
    const std::string name = std::string("killed") + (*phase != 0 ? phase + 7 : "");
    const std::string line = strata(name, " --set 'debug.inject=[\"" + entry + "\"]'");
    ASSERT_EQ(run(line), -SIGKILL) << entry << "\n" << output();
    EXPECT_NE(output().find("injected at step 4: " + entry), std::string::npos) << output();
    expect_whole(name, entry);
    ASSERT_EQ(run(line), 0) << entry << "\n" << output();
    EXPECT_EQ(injected(name).size(), 1) << entry;
    expect_equal_runs("whole", name, 6);
  }
}

TEST_F(InjectedProcesses, ARankIsKilledStoppedOrCutOff) {
  ASSERT_EQ(run(on(2) + strata("whole", kSets)), 0) << output();
  expect_one_fault(on(2), "killed", "kill@step=3,rank=1,phase=gather", 128 + SIGKILL);
  expect_one_fault(on(2), "first", "kill@step=3,rank=0,phase=bwd", 128 + SIGKILL);
  expect_one_fault(on(2), "stopped", "stop@step=3,rank=1", 4);
  expect_one_fault(on(2), "dropped", "drop@step=3,rank=1,phase=fwd", 4);
}

}  // namespace
}  // namespace strata::training
