// Goodput and ETTR of runs whose times are known, and the states of runs.
#include "diagnosis/time_account.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "diagnosis/run_files.h"
#include "library/diagnosis.h"

namespace strata::diagnosis {
namespace {

// `count` steps of a second after `first`, from `time`.
void add_steps(RunFiles& run, int64_t first, int64_t count, double time) {
  for (int64_t i = 1; i <= count; ++i)
    run.lines.push_back(
        {{"step", first + i}, {"time", time + static_cast<double>(i)}, {"step_ms", 1000}, {"loss", 3}});
}

RunFiles& empty(RunFiles& run) {
  run.lines.clear();
  run.checkpoints.clear();
  return run;
}

TEST(TimeAccount, OfARunWithoutInterruption) {
  RunFiles run;
  empty(run).lines.push_back({{"event", "start"}, {"at_step", 0}, {"time", 1000}});
  add_steps(run, 0, 90, 1010);
  run.lines.push_back({{"event", "save"}, {"at_step", 90}, {"held_up", 10}, {"time", 1110}});
  run.lines.push_back({{"event", "finish"}, {"at_step", 90}, {"time", 1120}});
  const TimeAccount time = run.diagnose().time;
  EXPECT_NEAR(time.elapsed, 120, 1e-6);
  EXPECT_NEAR(*time.goodput(), 90.0 / 120, 1e-9);
  EXPECT_EQ(time.goodput(), time.ettr());
  EXPECT_EQ(time.failures, 0);
  // A save of 10 s after 100 s: 1 / (1 + 10 / 100).
  EXPECT_NEAR(*time.ettr_predicted(), 1 / 1.1, 1e-9);
}

TEST(TimeAccount, SeparatesFailuresFromPauses) {
  RunFiles run;
  empty(run).lines.push_back({{"event", "start"}, {"at_step", 0}, {"time", 1000}});
  add_steps(run, 0, 100, 1000);
  run.lines.push_back({{"event", "save"}, {"at_step", 100}, {"held_up", 1}, {"time", 1101}});
  // Twenty steps were lost; the restart took 40 s until its first step began.
  for (int64_t i = 1; i <= 20; ++i)
    run.discarded.push_back({{"step", 100 + i}, {"time", 1101 + i}, {"step_ms", 1000}, {"loss", 3}});
  run.lines.push_back({{"event", "resume"}, {"at_step", 100}, {"time", 1150}, {"process_seconds", 2}});
  add_steps(run, 100, 50, 1161);
  run.lines.push_back({{"event", "interrupt"}, {"at_step", 150}, {"time", 1211}});
  // A night; the settings that it changed are logged before its start.
  run.lines.push_back({{"event", "changed"}, {"at_step", 150}, {"key", "optimizer.lr"}, {"time", 31210}});
  run.lines.push_back({{"event", "resume"}, {"at_step", 150}, {"time", 31211}, {"process_seconds", 5}});
  add_steps(run, 150, 50, 31214);
  const TimeAccount time = run.diagnose().time;
  EXPECT_NEAR(time.productive, 200, 1e-6);
  EXPECT_NEAR(time.undone, 20, 1e-6);
  EXPECT_EQ(time.failures, 1);
  EXPECT_NEAR(time.restarting, 40, 1e-6);
  EXPECT_NEAR(time.paused, 31206 - 1211, 1e-6);
  EXPECT_NEAR(time.elapsed, 30264, 1e-6);
  EXPECT_NEAR(*time.goodput(), 200.0 / 30264, 1e-9);
  const double running = 30264 - 29995;
  EXPECT_NEAR(*time.ettr(), 200 / running, 1e-9);
  // reliability.md 2.1 with the measured values: w = 1, an interval of 100, u0 = 40, one failure in the time.
  EXPECT_NEAR(*time.ettr_predicted(), (1 - (40 + 50) / running) / (1 + 1 / 100.0), 1e-9);
}

TEST(TimeAccount, TakesStartsAndEndsFromTheLedger) {
  RunFiles run;
  empty(run).lines.push_back({{"event", "start"}, {"at_step", 0}, {"time", 1010}, {"process_seconds", 2}});
  add_steps(run, 0, 100, 1010);
  run.lines.push_back({{"event", "save"}, {"at_step", 100}, {"held_up", 1}, {"time", 1111}});
  for (int64_t i = 1; i <= 20; ++i)
    run.discarded.push_back({{"step", 100 + i}, {"time", 1111 + i}, {"step_ms", 1000}, {"loss", 3}});
  // Two attempts died before their first line; the fourth was stopped, and the fifth began after a night.
  run.lines.push_back({{"event", "resume"}, {"at_step", 100}, {"time", 1180}, {"process_seconds", 1}});
  add_steps(run, 100, 50, 1181);
  run.lines.push_back({{"event", "interrupt"}, {"at_step", 150}, {"time", 1231}});
  run.lines.push_back({{"event", "resume"}, {"at_step", 150}, {"time", 31010}, {"process_seconds", 1}});
  add_steps(run, 150, 50, 31011);
  const auto attempt = [&](double began, double ended, int exit, const Line& more = Line::object()) {
    Line line{{"attempt", run.ledger.size() + 1}, {"began", began}, {"ended", ended}, {"exit", exit}};
    line.update(more);
    run.ledger.push_back(line);
  };
  attempt(1000, 1133, 137, {{"from", "start"}});
  attempt(1134, 1140, 137);
  attempt(1141, 1150, 4);
  attempt(1160, 1232, 130, {{"from", "disk"}, {"recovery_s", 36.0}, {"lost_steps", 20}, {"lost_s", 20.0}});
  attempt(31000, 31062, 0, {{"from", "disk"}});
  const TimeAccount time = run.diagnose().time;
  EXPECT_EQ(time.failures, 3);
  EXPECT_NEAR(time.elapsed, 31062 - 1000, 1e-6);
  EXPECT_NEAR(time.paused, 31000 - 1232, 1e-6);
  EXPECT_NEAR(time.productive, 200, 1e-6);
  EXPECT_NEAR(time.undone, 20, 1e-6);
  EXPECT_NEAR(time.restarting, 1181 - 1131, 1e-6) << "from the last step before to the first step after";
  EXPECT_NEAR(*time.ettr(), 200.0 / 294, 1e-9);
  EXPECT_NEAR(*time.recovery, 36, 1e-9);
  EXPECT_FALSE(time.lost_from_copies.has_value());
  // w = 1, 101 s from the beginning of training to the save, u0 = 36, three failures in 294 s.
  EXPECT_NEAR(*time.ettr_predicted(), (1 - 3 * (36 + 50) / 294.0) / (1 + 1 / 100.0), 1e-9);
  // From copies, the measured loss of a restart counts.
  run.ledger[3]["from"] = "copies";
  run.ledger[3]["lost_s"] = 2.0;
  EXPECT_NEAR(*run.diagnose().time.ettr_predicted(), (1 - 3 * (36 + 2) / 294.0) / (1 + 1 / 100.0), 1e-9);
}

TEST(TimeAccount, IsUnknownWithoutTimes) {
  RunFiles run;
  empty(run).lines.push_back({{"step", 1}, {"loss", 3}});
  run.write();
  const TimeAccount time = time_account_of(read_evidence(run.path(), 0));
  EXPECT_FALSE(time.goodput() || time.ettr() || time.ettr_predicted());
}

TEST(RunStates, FollowTheLastEventAndTheLock) {
  const auto state = [](const std::function<void(RunFiles&)>& change) {
    RunFiles run;
    change(run);
    return std::string(name_of(run.diagnose().state));
  };
  EXPECT_EQ(state([](RunFiles&) {}), "finished");
  EXPECT_EQ(state([](RunFiles& run) { run.locked = true; }), "waiting") << "it goes on, and has not begun";
  EXPECT_EQ(state([](RunFiles& run) { run.cut(1500); }), "failed");
  EXPECT_EQ(state([](RunFiles& run) {
              run.cut(1500);
              run.locked = true;
            }),
            "running");
  EXPECT_EQ(state([](RunFiles& run) {
              run.cut(1500);
              run.event("time_limit", 1500);
            }),
            "interrupted");
  EXPECT_EQ(state([](RunFiles& run) { empty(run); }), "failed");
  EXPECT_EQ(state([](RunFiles& run) { empty(run).locked = true; }), "waiting");
}

TEST(DoctorOutput, HasTheFieldsOfTheInterface) {
  RunFiles run;
  run.cut(1500);
  run.write();
  const Diagnosis diagnosis = library::diagnose_run(run.path().string());
  const auto json = parse_json<nlohmann::json>(library::json_of(diagnosis));
  EXPECT_EQ(json["state"], "failed");
  EXPECT_EQ(json["step"], 1500);
  ASSERT_FALSE(json["findings"].empty());
  for (const auto& one : json["findings"]) {
    EXPECT_TRUE(one["name"].is_string() && one["sentence"].is_string() && one["evidence"].is_object());
    ASSERT_TRUE(one["try"].is_array());
  }
  for (const char* name : {"goodput", "ettr", "ettr_predicted"}) {
    ASSERT_TRUE(json[name].is_number()) << name;
    EXPECT_GT(json[name].get<double>(), 0.9) << name;
    EXPECT_LE(json[name].get<double>(), 1) << name;
  }
  const std::string text = library::text_of(diagnosis);
  EXPECT_NE(text.find("failed, step 1500 of 2000"), std::string::npos) << text;
  EXPECT_NE(text.find("strata train " + run.path().string()), std::string::npos) << text;
}

TEST(DoctorOutput, RefusesFoldersWithoutARun) {
  const ScratchFolder folder;
  EXPECT_THROW(library::diagnose_run(folder.path().string()), ConfigError);
  EXPECT_THROW(library::diagnose_run((folder / "none").string()), ConfigError);
}

}  // namespace
}  // namespace strata::diagnosis
