// Settings of a running run.
#include "config/steerable.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace strata::config {
namespace {

constexpr const char* kSteeredRun = R"([model]
preset = "llama3-29m"
[data]
train = ["a.txt"]
[optimizer]
lr = 1e-3
[eval]
interval = "7 steps"
sample_prompts = ["One", "Two"]
[[eval.set]]
name = "other"
path = ["b.txt"]
[checkpoint]
keep_every = "50 steps"
[[recovery.rule]]
when = "loss_spike"
threshold = 6.0
action = "skip_update"
)";

RunConfig steered_run() {
  return parse_run_config(kSteeredRun, "run.toml");
}
RunConfig set_in(const RunConfig& config, const std::vector<std::string>& assignments) {
  return with_settings(config, parse_new_settings(assignments));
}
std::string steering_refusal(const std::vector<std::string>& assignments) {
  try {
    set_in(steered_run(), assignments);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Steerable, OnlyTheGivenKeysChange) {
  const RunConfig before = steered_run();
  const RunConfig after =
      set_in(before, {"optimizer.lr=5e-4", "training.clip_grad_norm = 0.5", "data.skip=[[3, 9]]",
                      "eval.interval=20 steps", "log.interval_steps=3", "checkpoint.keep_last=9",
                      "recovery.rule.0.threshold=9", "recovery.max_interventions=2"});
  std::vector<std::string> changed;
  for (const Change& change : compare(before, after))
    changed.push_back(change.key + " " + change.before + " " + change.after);
  const std::vector<std::string> wanted{"data.skip [] [[3, 9]]",
                                        "training.clip_grad_norm 1.0 0.5",
                                        "optimizer.lr 0.001 0.0005",
                                        "checkpoint.keep_last 3 9",
                                        "eval.interval \"7 steps\" \"20 steps\"",
                                        "log.interval_steps 10 3",
                                        "recovery.max_interventions 10 2",
                                        "recovery.rule.0.threshold 6.0 9.0"};
  EXPECT_EQ(changed, wanted);
  EXPECT_FALSE(after.was_set("eval.sample_tokens"));
  EXPECT_TRUE(after.was_set("eval.set.0.name"));
  EXPECT_TRUE(compare(before, with_settings(before, {})).empty());
  const RunConfig none = set_in(before, {"recovery.rule=[]", "eval.sample_prompts=[]"});
  EXPECT_TRUE(none.recovery.rule.empty());
  EXPECT_TRUE(none.eval.sample_prompts.empty());
  EXPECT_EQ(none.eval.set.size(), 1u);
}

TEST(Steerable, OtherKeysAndInvalidValuesAreRefused) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"training.steps=5"}, "strata set takes the keys of [log]"},
      {{"optimizer.lrr=5"}, "did you mean optimizer.lr?"},
      {{"model.preset=gpt2-124m"}, "cannot change while a run is running"},
      {{"optimizer={lr=1}"}, "cannot change"},
      {{"log={interval_steps=1}"}, "cannot change"},
      {{"eval.max_tokens=100"}, "is read when a run starts"},
      {{"recovery.in_memory=true"}, "is read when a run starts"},
      {{"recovery.copies=never"}, "is read when a run starts"},
      {{"recovery.peer_copies=never"}, "is read when a run starts"},
      {{"eval.set.0.limit=1"}, "is read when a run starts"},
      {{"optimizer.lr"}, "expected KEY=VALUE"},
      {{"optimizer.lr=fast"}, "optimizer.lr: found \"fast\", expected"},
      {{"optimizer.lr=-1"}, "optimizer.lr: found"},
      {{"data.skip=[[9, 3]]"}, "data.skip"},
      {{"log.interval=5"}, "log.interval: unknown key"},
      {{"log.interval_steps=0"}, "log.interval_steps: found 0"},
      {{"log.prometheus=:9000"}, "not yet in this version"},
      {{"recovery.detection_delay=auto"}, "the run made its choice when it started"},
      {{"recovery.rule.3.threshold=1"}, "expected a number below 1"},
      {{"optimizer.lr=1e-4", "checkpoint.keep_last=0"}, "checkpoint.keep_last: found 0"},
  };
  for (const auto& [sets, why] : cases) {
    const std::string found = steering_refusal(sets);
    EXPECT_NE(found.find(why), std::string::npos) << sets[0] << ": " << found;
  }
  EXPECT_EQ(steering_refusal({"checkpoint.interval=auto"}), "");
}

TEST(Steerable, AResumeComparesWithoutThem) {
  const RunConfig stored = steered_run();
  RunConfig asked = set_in(stored, {"optimizer.lr=5e-4", "eval.interval=9", "recovery.rule=[]"});
  asked.training.steps = 77;
  const std::vector<std::string> keys{"optimizer.lr", "recovery.rule"};
  std::vector<std::string> changed;
  for (const Change& change : compare(stored, keep_steered(asked, stored, keys)))
    changed.push_back(change.key);
  EXPECT_EQ(changed, (std::vector<std::string>{"training.steps", "eval.interval"}));
}

TEST(Steerable, TheListOfKeysIsWhatIsTaken) {
  const auto keys = steerable_keys();
  for (const std::string& key : keys) EXPECT_NO_THROW(require_steerable(key)) << key;
  for (const char* key : {"log.interval_steps", "eval.interval", "checkpoint.interval", "recovery.snapshot",
                          "optimizer.lr", "training.clip_grad_norm", "data.skip"})
    EXPECT_EQ(std::count(keys.begin(), keys.end(), key), 1) << key;
}

}  // namespace
}  // namespace strata::config
