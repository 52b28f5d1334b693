// The choices of a plan with their origins and reasons, and those that a resumed run keeps.
#include "config/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "fixtures/scratch_folder.h"

namespace strata::config {
namespace {

constexpr const char* kRun = R"([model]
family = "llama3"
vocab_size = 300
hidden_size = 32
intermediate_size = 48
num_hidden_layers = 2
num_attention_heads = 4
max_position_embeddings = 64
[data]
train = ["a.bin"]
[training]
sequence_length = 64
global_batch_size = 32
[precision]
compute = "fp32"
)";
constexpr const char* kExperts = R"([model]
family = "qwen3-moe"
vocab_size = 300
hidden_size = 32
num_hidden_layers = 1
num_attention_heads = 4
override = { num_experts = 4, num_experts_per_tok = 2, moe_intermediate_size = 16 }
[data]
train = ["a.bin"]
[training]
sequence_length = 64
global_batch_size = 32
[precision]
compute = "fp32"
[moe]
balance = "micro_batch"
)";

RunConfig asked(const char* text = kRun, const std::vector<std::string>& sets = {}) {
  return parse_run_config(text, "RUN.toml", sets);
}

std::shared_ptr<const RunPlan> plan_of(const RunConfig& asked, const MachineShare& share,
                                       const std::optional<RunConfig>& stored = {}) {
  return make_plan(
      asked,
      {.files = posix_file_system(), .share = share, .stored = stored, .data = PlanOptions::Data::kNone});
}

// As stored in the run's folder.
RunConfig stored_of(const RunPlan& plan) {
  return parse_run_config(resolved_toml(plan.config, "a machine"), "run.toml");
}

std::vector<std::string> keys_of(const std::vector<Change>& changes) {
  std::vector<std::string> keys;
  for (const Change& change : changes) keys.push_back(change.key);
  return keys;
}

const Choice& choice_of(const RunPlan& plan, const std::string& key) {
  const auto found = std::find_if(plan.choices.begin(), plan.choices.end(),
                                  [&](const Choice& one) { return one.key == key; });
  EXPECT_NE(found, plan.choices.end()) << key;
  return *found;
}

const MachineShare kLarge{.processors = 8, .memory = int64_t{8} << 30};
// The bytes that the run needs with this micro-batch if it recomputes everything.
int64_t least_bytes(const char* text, int64_t micro_batch) {
  const std::vector<std::string> sets{fmt::format("training.micro_batch_size={}", micro_batch),
                                      "memory.recompute=full"};
  return plan_of(asked(text, sets), kLarge)->set()->arena_bytes;
}

TEST(RunPlanTest, ListsAllDifferencesFromTheRequest) {
  const RunConfig wanted = asked();
  const auto plan = plan_of(wanted, kLarge);
  EXPECT_TRUE(compare(plan->asked, wanted).empty());
  std::vector<std::string> chosen, differ = keys_of(compare(wanted, plan->config));
  for (const Choice& one : plan->choices) {
    chosen.push_back(one.key);
    EXPECT_FALSE(one.from.empty() || one.why.empty()) << one.key;
    EXPECT_NE(one.from, one.value) << one.key;
  }
  std::sort(chosen.begin(), chosen.end());
  std::sort(differ.begin(), differ.end());
  std::erase(differ, "run.chosen");  // the list of choices
  EXPECT_EQ(chosen, differ);
  EXPECT_EQ(choice_of(*plan, "training.micro_batch_size").value, "32");
  EXPECT_EQ(choice_of(*plan, "schedule.steps").from, "\"training\"");
  EXPECT_EQ(choice_of(*plan, "parallel.shard").from, "-1");
  EXPECT_EQ(choice_of(*plan, "memory.budget").value, "\"8GiB\"");
  EXPECT_EQ(choice_of(*plan, "memory.recompute").value, "\"none\"");
  // The resolved configuration is sufficient to make the plan again.
  EXPECT_TRUE(plan_of(plan->config, {})->choices.empty());
}

TEST(RunPlanTest, AMachinesShareEndsWithItsControlGroup) {
  const ScratchFolder root;
  const auto put = [&](const std::string& path, const std::string& content) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << content;
  };
  put("proc/meminfo", "MemAvailable: 4000000 kB\n");
  EXPECT_EQ(share_of_machine({}, root.path()).memory, 4096000000 / 10 * 9);
  put("proc/self/cgroup", "0::/\n");
  put("sys/fs/cgroup/memory.max", "1000000000\n");
  EXPECT_EQ(share_of_machine({}, root.path()).memory, 900000000);
  EXPECT_EQ(share_of_machine({.ranks = 3, .local_ranks = 3}, root.path()).memory, 300000000);
}

// Choices for the machine are made again; those that affect results stay as long as they fit.
TEST(RunPlanTest, ARunResumedElsewhereDoesNotKeepTheMemoryBudget) {
  const auto first = plan_of(asked(), kLarge);
  const RunConfig stored = stored_of(*first);
  const MachineShare tight{.processors = 2, .memory = least_bytes(kRun, 32)};
  ASSERT_LT(tight.memory, first->set()->arena_bytes);
  const auto second = plan_of(asked(), tight, stored);
  EXPECT_EQ(second->config.memory.budget.value->count, tight.memory);
  EXPECT_EQ(second->config.device.threads.value, 2);
  EXPECT_EQ(second->config.training.micro_batch_size.value, 32)
      << "recompute saves memory and does not change any bit";
  EXPECT_EQ(choice_of(*second, "training.micro_batch_size").why, "as the run was started");
  EXPECT_EQ(choice_of(*second, "memory.recompute").value, "\"full\"");
  EXPECT_LE(second->set()->arena_bytes, tight.memory);
  EXPECT_EQ(keys_of(changes_of(stored, *second)),
            (std::vector<std::string>{"memory.budget", "memory.recompute", "device.threads"}));
  // In the other direction no new choice is needed.
  const auto third = plan_of(asked(), kLarge, stored_of(*second));
  EXPECT_EQ(third->config.training.micro_batch_size.value, 32);
  EXPECT_EQ(third->config.memory.budget.value->count, kLarge.memory);
  // A small difference is not a change.
  MachineShare about = kLarge;
  about.memory -= 12345;
  EXPECT_TRUE(changes_of(stored, *plan_of(asked(), about, stored)).empty());
  // The program does not change values that the user set.
  const auto given =
      plan_of(asked(kRun, {"memory.budget=1GiB", "device.threads=3"}), tight,
              stored_of(*plan_of(asked(kRun, {"memory.budget=1GiB", "device.threads=3"}), kLarge)));
  EXPECT_EQ(given->config.memory.budget.value->count, int64_t{1} << 30);
  EXPECT_EQ(given->config.device.threads.value, 3);
}

TEST(RunPlanTest, LowersAndReportsChoicesThatNoLongerFit) {
  const RunConfig stored = stored_of(*plan_of(asked(), kLarge));
  const MachineShare tight{.processors = 8, .memory = least_bytes(kRun, 32) - 1};
  const auto plan = plan_of(asked(), tight, stored);
  EXPECT_LT(*plan->config.training.micro_batch_size, 32);
  EXPECT_EQ(choice_of(*plan, "training.micro_batch_size").from, "\"auto\"");
  const auto changes = keys_of(changes_of(stored, *plan));
  EXPECT_EQ(std::count(changes.begin(), changes.end(), "training.micro_batch_size"), 1);
  EXPECT_EQ(std::count(changes.begin(), changes.end(), "memory.budget"), 1);
  // Only the user may lower a value that was set.
  const RunConfig fixed = asked(kRun, {"training.micro_batch_size=32"});
  EXPECT_THROW(plan_of(fixed, tight, stored), program::DoesNotFit);
}

// If a loss is computed per micro-batch, another micro-batch size would be another run.
TEST(RunPlanTest, ResultsDoNotChangeUnasked) {
  const auto first = plan_of(asked(kExperts), kLarge);
  const MachineShare tight{.processors = 8, .memory = least_bytes(kExperts, 32) - 1};
  try {
    plan_of(asked(kExperts), tight, stored_of(*first));
    FAIL();
  } catch (const program::DoesNotFit& error) {
    for (const char* key : {"memory.budget", "training.micro_batch_size"})
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
  }
  EXPECT_LT(*plan_of(asked(kExperts), tight)->config.training.micro_batch_size, 32);
}

}  // namespace
}  // namespace strata::config
