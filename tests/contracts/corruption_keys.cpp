// Contracts of the keys that look for wrong bits: recovery.compare_replicas and recompute_check. debug.inject flips them.
#include "contracts/contract.h"
#include "contracts/lab.h"

namespace strata::contracts {
namespace {

// The steps of a kind of event, with the rank that it names (−1: none).
using Found = std::vector<std::pair<int64_t, int>>;
Found found_in(const Seen& run) {
  Found found;
  for (const json& event : run.events) {
    if (event.at("event") == "corruption")
      found.emplace_back(event.at("at_step").get<int64_t>(), event.value("rank", -1));
  }
  return found;
}

// Ten steps on three replicas.
const Sets kThree = Sets{"parallel.replicate=3", "training.steps=10", "training.global_batch_size=6",
                         "checkpoint.interval=\"100 steps\"", "recovery.snapshot=\"100 steps\""} +
                    kFlat;

// Weights are compared in the steps of the interval, and in all by default; wrong steps are undone.
void compare_replicas(const std::string&) {
  Lab lab;
  const Sets flip{"debug.inject=[\"flip@step=5,rank=2\"]"};
  const Seen clean = lab.run_on(3, kThree);
  EXPECT_EQ(found_in(clean), Found());
  const auto run = [&](const std::string& interval) {
    return lab.run_on(3, kThree + flip + Sets{"recovery.compare_replicas=\"" + interval + "\""});
  };
  for (const auto& [interval, step] :
       std::vector<std::pair<std::string, int64_t>>{{"auto", 5}, {"3 steps", 6}}) {
    const Seen seen = run(interval);
    EXPECT_EQ(found_in(seen), (Found{{step, 2}})) << interval;
    EXPECT_TRUE(same(seen.weights(10), clean.weights(10))) << interval;
  }
  const Seen never = run("never");
  EXPECT_EQ(found_in(never), Found());
  EXPECT_FALSE(same(never.weights(10), clean.weights(10)));
  for (const char* wrong : {"1 min", "0 steps", "100 tokens"})
    EXPECT_TRUE(has(lab.refusal({std::string("recovery.compare_replicas=\"") + wrong + "\""}),
                    "recovery.compare_replicas"));
}

// A wrong gradient is found in the steps of the interval only.
void recompute_check(const std::string&) {
  Lab lab;
  const Seen clean = lab.run_on(3, kThree);
  const auto run = [&](const std::string& interval, int step) {
    return lab.run_on(
        3, kThree + Sets{"recovery.recompute_check=\"" + interval + "\"",
                         "debug.inject=[\"flip@step=" + std::to_string(step) + ",rank=1,where=gradients\"]"});
  };
  const Seen seen = run("3 steps", 6);
  EXPECT_EQ(found_in(seen), (Found{{6, 1}}));
  EXPECT_TRUE(same(seen.weights(10), clean.weights(10)));
  EXPECT_EQ(found_in(run("3 steps", 7)), Found());
  EXPECT_EQ(found_in(run("never", 6)), Found());
  for (const char* wrong : {"auto", "1 min", "0 steps"})
    EXPECT_TRUE(has(lab.refusal({std::string("recovery.recompute_check=\"") + wrong + "\""}),
                    "recovery.recompute_check"));
}

}  // namespace

Contracts corruption_keys() {
  return {{"recovery.compare_replicas", compare_replicas}, {"recovery.recompute_check", recompute_check}};
}

}  // namespace strata::contracts
