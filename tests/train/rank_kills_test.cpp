// Jobs whose ranks are killed repeatedly, and that resume with fewer ranks.
#include <cmath>

#include "train/rank_processes.h"

namespace strata::training {
namespace {

// Fifty times SIGKILL to a random rank after a random time of at most a whole run.
TEST_F(RankProcesses, FiftyKillsOfARandomRank) {
  constexpr int kKills = 50, kRanks = 2;
  constexpr int64_t kSteps = 200;
  const auto command = [&](const std::string& name) {
    return on(kRanks) + strata(name, " --set parallel.zero=3 --set training.steps=" + std::to_string(kSteps) +
                                         " --set checkpoint.interval=10");
  };
  const double begin = monotonic_seconds();
  ASSERT_EQ(run(command("whole")), 0) << output();
  const double whole = monotonic_seconds() - begin;
  int kills = 0, finished = 0;
  double slowest = 0;
  std::string name = "killed-0";
  for (uint64_t draw = 0; kills < kKills; ++draw) {
    const auto random = philox({17, 4}, draw);
    Job job(command(name), log());
    pause_for(random[0] * 0x1p-32 * whole);
    const double sent = monotonic_seconds();
    const bool hit = job.send(static_cast<int>(random[1] % kRanks), SIGKILL);
    const int code = job.wait();
    if (hit && code != 0) {
      ++kills;
      slowest = std::max(slowest, monotonic_seconds() - sent);
      EXPECT_EQ(code, 128 + SIGKILL) << output();
      expect_whole(name, "kill " + std::to_string(kills));
      continue;
    }
    ASSERT_EQ(code, 0) << output();
    expect_equal_runs("whole", name, kSteps);
    std::filesystem::remove_all(tiny_.folder(name));
    name = "killed-" + std::to_string(++finished);
  }
  ASSERT_EQ(run(command(name)), 0) << output();
  expect_equal_runs("whole", name, kSteps);
  std::printf("%d kills, %d runs finished between them; a job ended %.1f s after a kill at most\n", kills,
              finished, slowest);
}

// Four ranks (two replicas of two shards); after a kill three, after another kill one.
TEST_F(RankProcesses, KilledOnFourResumesOnThreeAndOnOne) {
  constexpr int64_t kSteps = 300;
  const std::string sets =
      " --set training.global_batch_size=12 --set training.micro_batch_size=1"
      " --set optimizer.lr=3e-3 --set checkpoint.interval=20 --set training.steps=" +
      std::to_string(kSteps);
  const auto layout = [&](const std::string& name, int replicate, int shard) {
    return on(replicate * shard) +
           strata(name, sets + " --set parallel.replicate=" + std::to_string(replicate) +
                            " --set parallel.shard=" + std::to_string(shard) + " --set parallel.zero=3");
  };
  ASSERT_EQ(run(layout("whole", 2, 2)), 0) << output();
  const auto kill_after_step = [&](const std::string& line, int victim, int64_t step) {
    char folder[32];
    std::snprintf(folder, sizeof folder, "step-%08lld", static_cast<long long>(step));
    Job job(line, log());
    ASSERT_TRUE(job.wait_until([&] {
      return std::filesystem::exists(checkpoints("cut") / folder / "manifest.json");
    })) << output();
    ASSERT_TRUE(job.send(victim, SIGKILL));
    EXPECT_EQ(job.wait(), 128 + SIGKILL) << output();
    expect_whole("cut", line);
  };
  kill_after_step(layout("cut", 2, 2), 3, 80);
  kill_after_step(layout("cut", 1, 3), 0, 160);
  ASSERT_EQ(run(strata("cut", sets)), 0) << output();
  const MetricsLog whole = metrics_of(tiny_.folder("whole")), cut = metrics_of(tiny_.folder("cut"));
  ASSERT_EQ(cut.loss.size(), whole.loss.size());
  double worst = 0;
  for (size_t i = 0; i < whole.loss.size(); ++i)
    worst = std::max(worst, std::abs(cut.loss[i] - whole.loss[i]) / whole.loss[i]);
  EXPECT_LT(worst, 1e-3);
  std::printf("300 steps on 2 x 2, 3 and 1 ranks: losses differ by at most %.1e from those on 2 x 2 only\n",
              worst);
}

// Eight ranks (two shards x two tensor ranks x two stages), killed during a save; then two stages; then one
// rank.
TEST_F(RankProcesses, KilledInASaveOnEightResumesOnTwoStagesAndOnOne) {
  constexpr int64_t kSteps = 60;
  const std::string sets =
      " --set training.global_batch_size=8 --set training.micro_batch_size=1 --set checkpoint.interval=10"
      " --set optimizer.lr=3e-3 --set model.vocab_size=8192 --set training.steps=" +
      std::to_string(kSteps);
  const std::string eight =
      " --set parallel.shard=2 --set parallel.zero=3 --set parallel.tensor=2 --set parallel.pipeline=2";
  ASSERT_EQ(run(strata("whole", sets)), 0) << output();
  {
    Job job(on(8) + strata("cut", sets + eight), log());
    ASSERT_TRUE(job.wait_until([&] { return std::filesystem::exists(checkpoints("cut") / "latest"); }))
        << output();
    ASSERT_TRUE(job.wait_until([&] { return in_save("cut", "optimizer.safetensors"); })) << output();
    ASSERT_TRUE(job.send(5, SIGKILL));
    EXPECT_EQ(job.wait(), 128 + SIGKILL) << output();
  }
  expect_whole("cut", "killed in a save");
  ASSERT_EQ(run(on(2) + strata("cut", sets + " --set parallel.pipeline=2 --set training.steps=40"
                                             " --set schedule.steps=60 --accept-changes")),
            0)
      << output();
  ASSERT_EQ(run(strata("cut", sets + " --accept-changes")), 0) << output();
  const MetricsLog whole = metrics_of(tiny_.folder("whole")), cut = metrics_of(tiny_.folder("cut"));
  ASSERT_EQ(cut.loss.size(), whole.loss.size());
  double worst = 0;
  for (size_t i = 0; i < whole.loss.size(); ++i)
    worst = std::max(worst, std::abs(cut.loss[i] - whole.loss[i]) / whole.loss[i]);
  EXPECT_LT(worst, 1e-3);
  std::printf("60 steps on 2 x 2 x 2, 2 and 1 ranks: losses differ by at most %.1e from those of one rank\n",
              worst);
}

}  // namespace
}  // namespace strata::training
