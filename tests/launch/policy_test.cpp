// When a run starts again.
#include "launch/policy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace strata::launch {
namespace {

AttemptEnd ended(int code, bool progress = true) {
  return {.code = code, .made_progress = progress};
}

bool restarts(const AttemptEnd& end, LauncherKind launcher = LauncherKind::kOpenMpi) {
  RestartPolicy policy(launcher, std::nullopt);
  return policy.after(end).restart;
}

TEST(RestartPolicy, RestartsByCode) {
  for (const int code : {1, 4, 75, 134, 135, 136, 137, 138, 139, 141})
    EXPECT_TRUE(restarts(ended(code))) << code;
  for (const int code : {0, 2, 3, 5, 130, 143, 6, 9, 11, 127, 133, 140, 213, 255})
    EXPECT_FALSE(restarts(ended(code))) << code;
}

TEST(RestartPolicy, KnowsTheSignalsThatMpichReturns) {
  for (const int code : {1, 4, 6, 9, 11, 75, 137, 139})
    EXPECT_TRUE(restarts(ended(code), LauncherKind::kHydra)) << code;
  for (const int code : {0, 2, 3, 5, 10, 130, 143})
    EXPECT_FALSE(restarts(ended(code), LauncherKind::kHydra)) << code;
  EXPECT_FALSE(restarts(ended(9), LauncherKind::kSlurm));
}

TEST(RestartPolicy, RestartsABugOnce) {
  RestartPolicy policy(LauncherKind::kOpenMpi, std::nullopt);
  EXPECT_TRUE(policy.after(ended(1)).restart);
  EXPECT_TRUE(policy.after(ended(137)).restart);
  const Decision second = policy.after(ended(1));
  EXPECT_FALSE(second.restart);
  EXPECT_NE(second.reason.find("second time"), std::string::npos);
}

TEST(RestartPolicy, RestartsAtATimeLimitUnlessTheSchedulersIsNear) {
  AttemptEnd end = ended(75);
  end.seconds_left = 299;
  EXPECT_FALSE(restarts(end));
  end.seconds_left = -5;
  EXPECT_FALSE(restarts(end));
  end.seconds_left = 301;
  EXPECT_TRUE(restarts(end));
  // A failure is repaired even then: the next attempt may still save.
  end = ended(137);
  end.seconds_left = 200;
  EXPECT_TRUE(restarts(end));
}

TEST(RestartPolicy, NeverRestartsOnceAskedToStop) {
  for (const int code : {1, 4, 75, 137}) {
    AttemptEnd end = ended(code);
    end.was_asked_to_stop = true;
    EXPECT_FALSE(restarts(end)) << code;
  }
}

TEST(RestartPolicy, ALostHostExplainsCodesOfTheLauncher) {
  AttemptEnd end = ended(213);
  EXPECT_FALSE(restarts(end));
  end.lost_host = true;
  EXPECT_TRUE(restarts(end));
  end.code = 2;
  EXPECT_FALSE(restarts(end)) << "a wrong configuration stays wrong on other hosts";
}

TEST(RestartPolicy, EndsAfterThreeAttemptsWithoutProgress) {
  RestartPolicy policy(LauncherKind::kOpenMpi, std::nullopt);
  std::vector<double> delays;
  for (int i = 0; i < 2; ++i) {
    const Decision decision = policy.after(ended(137, false));
    ASSERT_TRUE(decision.restart);
    delays.push_back(decision.delay);
  }
  EXPECT_EQ(delays, (std::vector<double>{0, 5}));
  EXPECT_FALSE(policy.after(ended(137, false)).restart);
}

TEST(RestartPolicy, ProgressStartsTheCountAgainAndNeedsNoDelay) {
  RestartPolicy policy(LauncherKind::kOpenMpi, std::nullopt);
  for (int round = 0; round < 50; ++round) {
    EXPECT_EQ(policy.after(ended(137, false)).delay, 0);
    EXPECT_EQ(policy.after(ended(137, false)).delay, 5);
    const Decision after = policy.after(ended(137, true));
    EXPECT_TRUE(after.restart);
    EXPECT_EQ(after.delay, 0);
  }
}

TEST(RestartPolicy, KeepsToTheUsersLimit) {
  RestartPolicy none(LauncherKind::kOpenMpi, 0);
  EXPECT_FALSE(none.after(ended(137)).restart);
  RestartPolicy two(LauncherKind::kOpenMpi, 2);
  EXPECT_TRUE(two.after(ended(137)).restart);
  EXPECT_TRUE(two.after(ended(4)).restart);
  const Decision last = two.after(ended(137));
  EXPECT_FALSE(last.restart);
  EXPECT_NE(last.reason.find("--max-restarts"), std::string::npos);
}

}  // namespace
}  // namespace strata::launch
