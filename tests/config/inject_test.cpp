// Entries of debug.inject: reading, errors, and draws.
#include "config/inject.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace strata::config {
namespace {

std::string problem_of(const std::string& entry, int64_t steps = 100, int64_t ranks = 2) {
  std::vector<std::string> problems;
  const std::string entries[] = {entry};
  const InjectPlan plan = read_inject(entries, steps, ranks, problems);
  EXPECT_EQ(plan.faults.size() + plan.random.size() + problems.size(), 1) << entry;
  return problems.empty() ? "" : problems.front();
}

Fault fault_of(const std::string& entry) {
  std::vector<std::string> problems;
  const std::string entries[] = {entry};
  const InjectPlan plan = read_inject(entries, 0, 0, problems);
  EXPECT_TRUE(problems.empty()) << (problems.empty() ? "" : problems.front());
  return plan.faults.empty() ? Fault{} : plan.faults.front();
}

TEST(Inject, ReadsEveryKind) {
  using enum FaultKind;
  const Fault nan = fault_of("nan@rank=1,step=40");
  EXPECT_EQ(nan.entry, "nan@rank=1,step=40");
  EXPECT_TRUE(nan.kind == kNan && nan.rank == 1 && nan.step == 40 && nan.phase == FaultPhase::kBackward);
  EXPECT_TRUE(fault_of("inf@step=1,phase=fwd").phase == FaultPhase::kForward);
  EXPECT_TRUE(fault_of("inf@step=1,phase=update").phase == FaultPhase::kUpdate);
  EXPECT_EQ(fault_of("spike@step=2").factor, 10);
  EXPECT_EQ(fault_of("spike@step=2,factor=0.5").factor, 0.5);
  EXPECT_EQ(fault_of("garbage@step=9").last_step(), 9);
  EXPECT_EQ(fault_of("garbage@step=9,for_steps=3").last_step(), 12);
  EXPECT_EQ(fault_of("slow@step=9,for_steps=3,seconds=0.25").last_step(), 11);
  EXPECT_EQ(fault_of("slow@step=9,seconds=0.25").seconds, 0.25);
  EXPECT_EQ(fault_of("slow_disk@step=9,factor=20").factor, 20);
  EXPECT_EQ(fault_of("full_disk@step=9,for_steps=2").last_step(), 10);
  for (const char* kind : {"stop", "kill", "drop"}) {
    EXPECT_FALSE(fault_of(std::string(kind) + "@step=1").phase) << kind;
    for (const char* phase : {"fwd", "bwd", "update", "save", "gather"})
      EXPECT_TRUE(fault_of(std::string(kind) + "@step=1,phase=" + phase).phase) << kind << phase;
  }
  EXPECT_TRUE(fault_of("kill@step=1,phase=save").waits_for_save());
  EXPECT_TRUE(fault_of("flip@step=1,where=checkpoint").waits_for_save());
  EXPECT_TRUE(fault_of("flip@step=1,where=snapshot").waits_for_snapshot());
  EXPECT_TRUE(fault_of("flip@step=1,where=copy").waits_for_copy());
  for (const char* entry : {"nan@step=1", "inf@step=1", "spike@step=1", "garbage@step=1", "flip@step=1",
                            "flip@step=1,where=gradients"})
    EXPECT_TRUE(fault_of(entry).changes_numbers()) << entry;
  for (const char* entry :
       {"slow@step=1", "stop@step=1", "kill@step=1", "full_disk@step=1", "slow_disk@step=1", "drop@step=1",
        "flip@step=1,where=snapshot", "flip@step=1,where=copy"})
    EXPECT_FALSE(fault_of(entry).changes_numbers()) << entry;
}

TEST(Inject, RefusesWithWhatWasFoundAndExpected) {
  const std::pair<const char*, const char*> cases[] = {
      {"nan", "expected KIND@KEY=VALUE,…, such as nan@step=40,phase=bwd"},
      {"nan@", "expected KIND@KEY=VALUE,…, such as nan@step=40,phase=bwd"},
      {"spiek@step=1", "found the kind \"spiek\", did you mean \"spike\"? expected nan, inf,"},
      {"nan@rank=0", "found no step, expected step=N"},
      {"nan@step=1,step=2", "found step twice"},
      {"nan@step=1,", "found \"\", expected KEY=VALUE"},
      {"nan@step", "found \"step\", expected KEY=VALUE"},
      {"nan@step=0", "found step=0, expected a whole number from 1"},
      {"nan@step=4x", "found step=4x, expected a whole number from 1"},
      {"nan@step=101", "found step=101, expected one of the run's 100 steps"},
      {"nan@step=1,rank=2", "found rank=2, expected one of the run's 2 ranks, from 0"},
      {"nan@step=1,rank=-1", "found rank=-1, expected a whole number from 0"},
      {"nan@step=1,phase=save", "found phase=save for nan, expected fwd, bwd or update"},
      {"nan@step=1,phase=forward", "found the phase \"forward\", expected fwd, bwd, update, save or gather"},
      {"spike@step=1,phase=fwd", "found the key of spike \"phase\", expected step, rank or factor"},
      {"spike@step=1,factr=3", "did you mean \"factor\"?"},
      {"spike@step=1,factor=0", "found factor=0, expected a number from 1e-06"},
      {"spike@step=1,factor=nan", "found factor=nan, expected a number"},
      {"slow_disk@step=1,factor=0.5", "found factor=0.5, expected a number from 1 to"},
      {"slow@step=1,seconds=-1", "found seconds=-1, expected a number from 0 to 86400"},
      {"slow@step=1,for_steps=0", "found for_steps=0, expected a whole number from 1"},
      {"flip@step=1,where=weight", "found the place \"weight\", did you mean \"weights\"?"},
      {"random@steps=5", "found no kinds, expected kinds=KIND:WEIGHT+…"},
      {"random@kinds=nan:1", "found no steps, expected steps=N"},
      {"random@steps=5,kinds=nan", "found \"nan\" in kinds, expected KIND:WEIGHT"},
      {"random@steps=5,kinds=nan:1+nan:2", "found nan twice in kinds"},
      {"random@steps=5,kinds=nam:1", "found the kind \"nam\", did you mean \"nan\"?"},
      {"random@steps=5,kinds=nan:0", "found only weights of 0, expected one above 0"},
      {"random@steps=5,step=1,kinds=nan:1", "found the key of random \"step\", did you mean \"steps\"?"},
  };
  for (const auto& [entry, part] : cases) {
    const std::string found = problem_of(entry);
    EXPECT_EQ(found.find(std::string("\"") + entry + "\": "), 0) << found;
    EXPECT_NE(found.find(part), std::string::npos) << entry << "\n" << found << "\n" << part;
  }
  std::vector<std::string> problems;
  const std::string twice[] = {"nan@step=1", "nan@step=1"};
  EXPECT_EQ(read_inject(twice, 0, 0, problems).faults.size(), 1);
  ASSERT_EQ(problems.size(), 1);
  EXPECT_NE(problems[0].find("found it twice"), std::string::npos);
  EXPECT_EQ(problem_of("nan@step=1000,rank=9", 0, 0), "") << "neither is known yet";
}

TEST(Inject, DrawsAFaultEverySoManySteps) {
  std::vector<std::string> problems;
  const std::string entries[] = {
      "random@steps=20,seed=3,kinds=nan:2+garbage:1+flip:1+kill:0",
      "random@steps=20,seed=4,kinds=nan:2+garbage:1+flip:1+kill:0",
      "random@steps=1,kinds=kill:1",
  };
  const InjectPlan plan = read_inject(entries, 0, 0, problems);
  ASSERT_TRUE(problems.empty()) << problems.front();
  constexpr int64_t kSteps = 40000;
  std::map<FaultKind, int> count;
  std::set<int64_t> ranks, steps, other_steps;
  for (int64_t step = 1; step <= kSteps; ++step) {
    if (plan.random[1].draw(step, 4)) other_steps.insert(step);
    const auto fault = plan.random[0].draw(step, 4);
    if (!fault) continue;
    steps.insert(step);
    ++count[fault->kind];
    ranks.insert(fault->rank);
    EXPECT_EQ(fault->step, step);
    EXPECT_EQ(fault->entry, plan.random[0].draw(step, 4)->entry);
    // A user could have given it.
    const Fault read = fault_of(fault->entry);
    EXPECT_TRUE(read.kind == fault->kind && read.phase == fault->phase && read.where == fault->where);
  }
  EXPECT_NEAR(static_cast<double>(steps.size()), kSteps / 20.0, 150);
  EXPECT_NE(steps, other_steps);
  EXPECT_EQ(ranks.size(), 4);
  EXPECT_EQ(count.size(), 3);
  EXPECT_NEAR(count[FaultKind::kNan], kSteps / 40.0, 120);
  std::set<std::optional<FaultPhase>> phases;
  for (int64_t step = 1; step <= 100; ++step) {
    const auto fault = plan.random[2].draw(step, 1);
    ASSERT_TRUE(fault);
    phases.insert(fault->phase);
  }
  EXPECT_EQ(phases.size(), 5) << "between steps, fwd, bwd, update, save";
}

}  // namespace
}  // namespace strata::config
