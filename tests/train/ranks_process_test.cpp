// Ranks as processes under mpirun: they train the same bits as threads. A failure of one rank ends all ranks
// with its error, and the same command resumes.
#include "base/version.h"
#include "train/rank_processes.h"

namespace strata::training {
namespace {

int occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(RankProcesses, TrainLikeThreadsBitForBit) {
  const std::string sets = " --set parallel.zero=2 --set training.micro_batch_size=1";
  ASSERT_EQ(run(strata("threads", sets + " --ranks 3")), 0) << output();
  ASSERT_EQ(run(on(3) + strata("processes", sets)), 0) << output();
  expect_equal_runs("threads", "processes", 6);
  for (const char* log : {"rank-00000.log", "rank-00002.log"})
    EXPECT_TRUE(std::filesystem::exists(tiny_.folder("processes") / "logs" / log)) << log;
  // Besides the arena, which is the same, processes allocate message buffers; threads do not.
  const auto start = [&](const char* name) { return *find_event(metrics_of(tiny_.folder(name)), "start"); };
  EXPECT_EQ(start("processes")["arena_bytes"], start("threads")["arena_bytes"]);
  EXPECT_EQ(start("threads")["staging_bytes"], 0);
  EXPECT_GT(start("processes")["staging_bytes"], 0);
  EXPECT_LE(start("processes")["staging_bytes"], 3 * 8 * (1 << 20)) << "at most eight messages per group";
}

TEST_F(RankProcesses, ThePageShowsTheLayoutAndExtendsTheRunOnItsRanks) {
  const std::string sets = " --set parallel.zero=2 --set training.micro_batch_size=1";
  ASSERT_EQ(run(strata("threads", sets + " --ranks 3")), 0) << output();
  ASSERT_EQ(run(on(3) + strata("processes", sets)), 0) << output();
  for (const bool processes : {false, true}) {
    const Path folder = tiny_.folder(processes ? "processes" : "threads");
    const std::string page = read_file(folder / "index.html");
    EXPECT_NE(page.find(std::string("3 ") + (processes ? "processes" : "threads") +
                        ": replicate 1 x shard 3, ZeRO stage 2"),
              std::string::npos);
    const std::string command = "train " + folder.string() + (processes ? "" : " --ranks 3") +
                                " --set training.steps=12 --accept-changes";
    EXPECT_NE(page.find((processes ? ">mpirun -n 3 strata " : ">strata ") + command + "<"), std::string::npos)
        << page.substr(page.find("How to extend"));
    EXPECT_EQ(run((processes ? on(3) : "") + std::string(STRATA_PROGRAM) + " " + command), 0) << output();
  }
  expect_equal_runs("threads", "processes", 12);
}

// Rows are packed and sent in several passes.
TEST_F(RankProcesses, ShareExpertsLikeThreadsBitForBit) {
  const std::string sets =
      " --set model.family=qwen3-moe --set model.override.num_experts=9 --set "
      "model.override.num_experts_per_tok=2 --set model.override.moe_intermediate_size=16 --set "
      "parallel.expert=3 --set parallel.expert_capacity=0.6";
  ASSERT_EQ(run(strata("threads", sets + " --ranks 3")), 0) << output();
  ASSERT_EQ(run(on(3) + strata("processes", sets)), 0) << output();
  expect_equal_runs("threads", "processes", 6);
}

TEST_F(RankProcesses, ARefusalOfOneEndsAll) {
  EXPECT_EQ(run(on(2) + strata("refused", " --set parallel.shard=3")), 2) << output();
  EXPECT_NE(output().find("replicate = 1, shard = 2"), std::string::npos) << output();
  EXPECT_EQ(occurrences(output(), "replicate = 1, shard = 2"), 1) << output();
  // Repeating the command would not help, so no rank suggests it.
  EXPECT_EQ(occurrences(output(), "same command"), 0) << output();
  EXPECT_EQ(run(on(2) + strata("twice", " --ranks 2")), 2) << output();
}

// A run on two ranks with checkpoints that are slow enough to observe their phases.
class KilledRanks : public RankProcesses {
 protected:
  static constexpr int64_t kSteps = 30;
  std::string command(const std::string& name) const {
    return on(2) + strata(name, " --set parallel.zero=3 --set training.steps=" + std::to_string(kSteps) +
                                    " --set checkpoint.interval=10 --set checkpoint.keep_last=2"
                                    " --set model.vocab_size=8192");
  }
  // Kills a rank when `seen` returns true, which is called from the first checkpoint on; then resumes to the
  // end.
  void kill_when(const std::string& name, int victim, const std::function<bool(const Job&)>& seen) {
    {
      Job job(command(name), log());
      ASSERT_TRUE(job.wait_until([&] { return std::filesystem::exists(checkpoints(name) / "latest"); }))
          << output();
      ASSERT_TRUE(job.wait_until([&] { return seen(job); })) << name << ": " << output();
      const double begin = monotonic_seconds();
      ASSERT_TRUE(job.send(victim, SIGKILL)) << name;
      EXPECT_EQ(job.wait(), 128 + SIGKILL) << name << ": " << output();
      // The launcher names the rank; one of the others prints how to resume.
      EXPECT_EQ(occurrences(output(), "the same command"), 1) << name << ": " << output();
      EXPECT_EQ(occurrences(output(), "is saved in " + checkpoints(name).string()), 1)
          << name << ": " << output();
      std::printf("%s, rank %d: the job ended %.1f s after the kill\n", name.c_str(), victim,
                  monotonic_seconds() - begin);
    }
    expect_whole(name, name);
    EXPECT_FALSE(std::filesystem::exists(tiny_.folder(name) / "final")) << name << ": killed too late";
    ASSERT_EQ(run(command(name)), 0) << name << ": " << output();
    expect_equal_runs("whole", name, kSteps);
    std::filesystem::remove_all(tiny_.folder(name));
  }
  bool holds(const std::string& name, int64_t step) const {
    char folder[32];
    std::snprintf(folder, sizeof folder, "step-%08lld", static_cast<long long>(step));
    return std::filesystem::exists(checkpoints(name) / folder / "manifest.json");
  }
};

TEST_F(KilledRanks, InEachPhaseOfASaveInAStepAndInACollective) {
  ASSERT_EQ(run(command("whole")), 0) << output();
  kill_when("folder", 1, [&](const Job&) { return in_save("folder", ""); });
  kill_when("tensors", 0, [&](const Job&) { return in_save("tensors", "optimizer.safetensors"); });
  kill_when("manifest", 0, [&](const Job&) { return in_save("manifest", "manifest.json"); });
  kill_when("renamed", 1, [&](const Job&) { return holds("renamed", 20); });
  // The other rank is stopped, so this one waits in a collective.
  kill_when("step", 1, [](const Job&) {
    pause_for(0.05);  // until the reporting rank knows of the save
    return true;
  });
  kill_when("collective", 0, [](const Job& job) {
    EXPECT_TRUE(job.send(1, SIGSTOP));
    pause_for(1);
    return true;
  });
}

// Ranks with other arguments or files than rank 0, as on differently configured hosts.
class UnlikeRanks : public RankProcesses {
 protected:
  // Rank 0 runs `mine`, rank 1 runs `other`.
  int run_unlike(const std::string& mine, const std::string& other) const {
    return run(on(1) + mine + " : " + of(1) + other);
  }
  // A command in separate namespaces, run after `preparation`.
  std::string apart(const std::string& name, const std::string& preparation) const {
    const Path script = tiny_.path(name + ".sh");
    put_file(script, preparation + "\nexec " + strata(name) + "\n");
    return "unshare --mount --uts sh " + script.string();
  }
  static bool may_unshare() { return std::system("unshare --mount --uts true 2>/dev/null") == 0; }
};

// Any difference, including keys that determine the first exchanges of ranks and how they wait.
TEST_F(UnlikeRanks, AnotherConfigurationIsRefusedByItsKey) {
  struct Unlike {
    const char *options, *key;
  };
  const Unlike all[] = {{" --set optimizer.lr=2e-2", "[optimizer.lr] of rank 1"},
                        {" --set 'memory.budget=\"1GB\"'", "[memory.budget] of rank 1"},
                        {" --set parallel.progress=thread", "[parallel.progress] of rank 1"},
                        {" --set parallel.zero=1", "[parallel.zero] of rank 1"},
                        {" --set parallel.pipeline=2 --set parallel.shard=1", "[parallel.shard] of rank 1"},
                        {" --set device.threads=2", "[device.threads] of rank 1"},
                        {" --set 'parallel.wait_limit=\"1h\"'", "[parallel.wait_limit] of rank 1"},
                        {" --set run.folder=elsewhere", "[run.folder] of rank 1"},
                        {" --set training.stepps=3", "[training.stepps] of rank 1"},
                        {" --set model.hidden_size=0", "[model.hidden_size] of rank 1"},
                        {" --dry-run", "--dry-run of rank 1"},
                        {" --resume never", "--resume of rank 1"}};
  const std::string mine = strata("run");
  for (const Unlike& one : all) {
    EXPECT_EQ(run_unlike(mine, mine + one.options), 2) << one.options << ": " << output();
    EXPECT_EQ(occurrences(output(), one.key), 1) << one.options << ": " << output();
    EXPECT_EQ(occurrences(output(), "bug"), 0) << one.options << ": " << output();
    EXPECT_EQ(occurrences(output(), "same command"), 0) << one.options << ": " << output();
  }
  EXPECT_EQ(run_unlike(mine, std::string(STRATA_PROGRAM) + " train none.toml"), 2) << output();
  EXPECT_EQ(occurrences(output(), "rank 1: "), 1) << output();
  EXPECT_FALSE(std::filesystem::exists(tiny_.folder("run") / "metrics.jsonl"));
}

TEST_F(UnlikeRanks, TheRankThatDiffersFromAllOthersIsNamed) {
  const std::string mine = strata("run"), other = mine + " --set optimizer.lr=2e-2";
  EXPECT_EQ(run(on(1) + other + " : " + of(2) + mine), 2) << output();
  EXPECT_NE(output().find("[optimizer.lr] of rank 0"), std::string::npos) << output();
}

// A copy of the program with another version.
TEST_F(UnlikeRanks, AnotherVersionIsRefused) {
  const Path program = STRATA_PROGRAM, copy = tiny_.path("bin") / "strata";
  std::filesystem::create_directories(copy.parent_path());
  std::string bytes = read_file(program);
  const std::string version(program_version());
  size_t found = 0;
  for (size_t at = bytes.find(version + '\0'); at != std::string::npos;
       at = bytes.find(version + '\0', at + 1), ++found)
    bytes[at + version.size() - 1] = bytes[at + version.size() - 1] == '9' ? '8' : '9';
  ASSERT_GT(found, 0u);
  put_file(copy, bytes);
  std::filesystem::permissions(copy, std::filesystem::perms::owner_all);
  // The program loads its MPI module from ../lib.
  std::filesystem::create_directory_symlink(program.parent_path().parent_path() / "lib", tiny_.path("lib"));
  EXPECT_EQ(run_unlike(strata("run"), strata("run", "", copy.string())), 2) << output();
  EXPECT_NE(output().find("[parallel] the program's version of rank 1"), std::string::npos) << output();
}

// The same path refers to another file on this host.
TEST_F(UnlikeRanks, OtherDataAreRefused) {
  if (!may_unshare()) GTEST_SKIP() << "namespaces need root";
  put_tokens(tiny_.path("other.bin"), tiny_tokens(6000, 8));
  const std::string other = apart(
      "run", "mount --bind " + tiny_.path("other.bin").string() + " " + tiny_.path("train.bin").string());
  EXPECT_EQ(run_unlike(strata("run"), other), 2) << output();
  EXPECT_NE(output().find("[data.train] the training tokens of rank 1"), std::string::npos) << output();
}

TEST_F(UnlikeRanks, ASeparateRunFolderIsFoundBeforeTheFirstStep) {
  if (!may_unshare()) GTEST_SKIP() << "namespaces need root";
  std::filesystem::create_directories(tiny_.folder("run"));
  std::filesystem::create_directories(tiny_.path("own"));
  const std::string other = apart("run", "hostname elsewhere\nmount --bind " + tiny_.path("own").string() +
                                             " " + tiny_.folder("run").string());
  EXPECT_EQ(run_unlike(strata("run"), other), 2) << output();
  EXPECT_NE(output().find("is not one folder for all ranks: rank 1 on elsewhere cannot see"),
            std::string::npos)
      << output();
  EXPECT_FALSE(std::filesystem::exists(tiny_.folder("run") / "metrics.jsonl"));
}

// When the job ends, MPI is using the memory of the stopped rank and of the others; tested with and without
// copies between processes.
TEST_F(RankProcesses, AStoppedRankEndsAll) {
  const std::string copies = "--mca btl_vader_single_copy_mechanism none ", start = on(3);
  ASSERT_NE(start.find(copies), std::string::npos);
  for (const std::string& launch : {start, std::string(start).erase(start.find(copies), copies.size())}) {
    std::filesystem::remove_all(tiny_.folder("run"));
    Job job(launch + strata("run",
                            " --set parallel.zero=2 --set training.steps=100000 --set "
                            "training.micro_batch_size=1 --set 'parallel.silence_limit=\"2s\"'"),
            log());
    ASSERT_TRUE(job.wait_until([&] { return std::filesystem::exists(checkpoints("run") / "latest"); }))
        << output();
    ASSERT_TRUE(job.send(1, SIGSTOP));
    EXPECT_EQ(job.wait(), 4) << output();
    EXPECT_EQ(occurrences(output(), "rank 1 is stopped or gone"), 1) << output();
    for (const char* crash : {"Segmentation", "Process received signal"})
      EXPECT_EQ(occurrences(output(), crash), 0) << output();
    expect_whole("run", "stopped");
  }
}

}  // namespace
}  // namespace strata::training
