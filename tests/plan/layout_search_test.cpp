#include "library/layout_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "config/resolve.h"
#include "library/explanation.h"
#include "library/plan_shape.h"
#include "library/run_inputs.h"
#include "library/simulation.h"
#include "plan/program_model.h"

namespace strata::library {
namespace {

std::string message_of(const LayoutRequest& request) {
  try {
    LayoutSearch search(request);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

#ifdef STRATA_ALL_LAYOUTS
constexpr bool kAll = true;
#else
constexpr bool kAll = false;
#endif

// The formulas against programs compiled for the same layouts: a third of the cases, in the long tests all.
TEST(LayoutSearch, FormulasAgreeWithCompiledPrograms) {
  struct Case {
    const char* model;
    int64_t gpus;
    std::vector<std::string> sets;
    bool is_quick = false;
  };
  const std::vector<std::string> long_rows = {"training.sequence_length=8192",
                                              "training.global_batch_size=512"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), long_rows.begin(), long_rows.end());
    return more;
  };
  const Case cases[] = {
      {"llama3-8b", 64, {}},
      {"llama3-8b", 64, {"parallel.zero=1"}},
      {"llama3-8b", 64, {"parallel.pipeline=4", "parallel.zero=1"}, true},
      {"llama3.1-70b", 256, with({})},
      {"llama3.1-70b", 256, with({"parallel.tensor=8", "parallel.pipeline=4"})},
      {"llama3.1-405b", 1024, with({"parallel.pipeline=16", "parallel.schedule=\"1f1b\""})},
      {"deepseek-v3", 1024, {}},
      {"llama3-8b", 64, {"parallel.zero=0"}},
      {"llama3-8b", 64, {"parallel.zero=3"}, true},
      {"llama3-8b", 64, {"parallel.schedule=\"zb_h1\""}},
      {"llama3-8b", 64, {"parallel.schedule=\"v_half\""}},
      {"llama3.1-70b", 256, with({"parallel.schedule=\"zb_h1\""})},
      {"llama3.1-70b", 256, with({"parallel.pipeline=1"})},
      {"deepseek-v3", 1024, {"parallel.schedule=\"zb_h1\""}},
      {"llama3-8b", 64, {"parallel.schedule=\"interleaved_zb\""}, true},
      {"llama3.1-70b", 256, with({"parallel.schedule=\"dualpipev\""}), true},
      {"deepseek-v3", 1024, {"parallel.schedule=\"dualpipev\""}},
      {"llama3.1-70b", 256, with({"parallel.overlap_chunks=2", "parallel.tensor=4"})},
      {"mixtral-8x7b", 64, {"parallel.tensor=4", "parallel.overlap_chunks=2"}, true},
      {"mixtral-8x7b", 64, {"parallel.tensor=2", "parallel.expert_tensor=2"}, true},
      {"mixtral-8x7b", 64, {"parallel.context=2"}, true},
      // Layers that the formulas take from programs of their kinds.
      {"gdn-30m", 8, {}},
      {"gdn-30m", 8, {"parallel.pipeline=2", "parallel.tensor=1", "parallel.context=1"}, true},
      {"gdn-30m", 8, {"parallel.tensor=2"}},
      {"gdn-30m", 8, {"parallel.context=2"}},
      {"kda-30m", 8, {"parallel.pipeline=4"}},
      {"kda-30m", 8, {"parallel.tensor=2"}},
      {"mamba2-30m", 8, {"parallel.context=2", "parallel.tensor=1", "parallel.pipeline=1"}, true},
      {"mamba2-30m", 8, {"parallel.pipeline=2", "parallel.schedule=\"zb_h1\""}},
      {"nemotron-h-30m", 8, {"parallel.pipeline=4"}},
      {"nemotron-h-30m", 8, {"parallel.tensor=2"}},
      {"dsa-30m", 8, {}},
      {"dsa-30m", 8, {"parallel.pipeline=2", "parallel.tensor=1", "parallel.context=1"}, true},
      {"dsa-30m", 8, {"parallel.context=2"}},
  };
  using planning::ProgramTraffic;
  const std::pair<const char*, double ProgramTraffic::*> axes[] = {{"data", &ProgramTraffic::data},
                                                                   {"tensor", &ProgramTraffic::tensor},
                                                                   {"context", &ProgramTraffic::context},
                                                                   {"pipeline", &ProgramTraffic::pipeline},
                                                                   {"expert", &ProgramTraffic::expert}};
  const planning::ClusterSpec cluster = planning::resolve_cluster("h100-sxm");
  std::vector<double> memory, time, traffic;
  std::set<std::string> kinds;
  for (const Case& one : cases) {
    if (!one.is_quick && !kAll) continue;
    const LayoutSearch search(
        {.model = one.model, .sets = one.sets, .gpus = one.gpus, .cluster = "h100-sxm"});
    for (const PlannedLayout& layout : search.layouts()) {
      if (!layout.compiled) continue;
      const double bytes = layout.formula.memory.total() / static_cast<double>(layout.compiled->bytes) - 1;
      const double seconds = layout.formula.seconds / layout.compiled->seconds - 1;
      const config::ParallelTable& keys = layout.config.parallel;
      kinds.insert(keys.schedule);
      if (keys.expert_tensor > 1) kinds.insert("expert_tensor");
      if (keys.overlap_chunks > 1) kinds.insert("overlap_chunks");
      memory.push_back(std::abs(bytes));
      time.push_back(std::abs(seconds));
      std::printf("%-14s step %7.3f s, formula %+5.1f %%; memory %5.1f GB, formula %+5.1f %%: %s\n",
                  one.model, layout.compiled->seconds, 100 * seconds,
                  static_cast<double>(layout.compiled->bytes) / 1e9, 100 * bytes,
                  planning::layout_in_words(layout.formula.layout).c_str());
      const ProgramTraffic sent =
          planning::program_traffic({.shape = shape_of(config::resolve_model(layout.config)),
                                     .layout = layout.formula.layout,
                                     .sequence = layout.config.training.sequence_length},
                                    cluster);
      for (const auto& [name, axis] : axes) {
        const double compiled = layout.compiled->sent.*axis;
        EXPECT_EQ(compiled > 0, sent.*axis > 0) << name;
        if (compiled <= 0) continue;
        traffic.push_back(std::abs(sent.*axis / compiled - 1));
        EXPECT_LE(traffic.back(), 0.01) << name << " of " << planning::layout_in_words(layout.formula.layout);
      }
    }
  }
  ASSERT_GE(time.size(), kAll ? 50u : 15u);
  for (const char* kind : {"interleaved_zb", "dualpipev", "expert_tensor", "overlap_chunks"})
    EXPECT_TRUE(kinds.contains(kind)) << kind;
  const auto report = [](const char* what, std::vector<double>& errors) {
    std::sort(errors.begin(), errors.end());
    const double median = errors[errors.size() / 2];
    std::printf("%s of %zu layouts: median %.1f %%, worst %.1f %%\n", what, errors.size(), 100 * median,
                100 * errors.back());
    return std::pair(median, errors.back());
  };
  const auto bytes = report("memory", memory), seconds = report("time", time);
  report("bytes sent", traffic);
  EXPECT_LE(bytes.first, 0.005);
  EXPECT_LE(bytes.second, kAll ? 0.03 : 0.025);
  EXPECT_LE(seconds.first, 0.015);
  EXPECT_LE(seconds.second, 0.05);
}

TEST(LayoutSearch, TheBestLayoutIsARunThatFits) {
  const LayoutSearch search({.model = "llama3-8b", .tokens = 1e12, .gpus = 16, .cluster = "h100-sxm"});
  const nlohmann::ordered_json json = search.json();
  const auto& layouts = json.at("layouts");
  ASSERT_FALSE(layouts.empty());
  const auto& best = layouts[0];
  EXPECT_FALSE(best.at("compiled").is_null());
  const double steps = std::ceil(1e12 / (1024 * 4096.0));
  EXPECT_NEAR(best.at("run_s").get<double>() / (steps * best.at("step_time_s").get<double>()), 1, 1e-3);
  EXPECT_NEAR(best.at("cost").get<double>(),
              best.at("run_s").get<double>() / 3600 * 16 * json.at("price").at("usd_per_hour").get<double>(),
              1);
  const auto& parallel = best.at("parallel");
  int64_t ranks = 1;
  for (const char* degree : {"replicate", "shard", "context", "tensor", "pipeline"})
    ranks *= parallel.at(degree).get<int64_t>();
  EXPECT_EQ(ranks, 16);
  // The written configuration compiles to the same program.
  const config::RunConfig written =
      config::parse_run_config(json.at("run_toml").get<std::string>(), "run.toml");
  const config::IssueHook hooks[] = {config::check_model, config::check_idle_keys};
  config::require_valid(written, hooks);
  const Simulation simulation(plan_on(written, 16, places_from(written, 16, 0), "h100-sxm", {}));
  EXPECT_EQ(simulation.seconds(), best.at("step_time_s").get<double>());
  EXPECT_EQ(simulation.fullest_bytes(), best.at("memory_bytes").get<double>());
  for (const char* part : {"MFU", "Cannot run", "What more would give", "[parallel]", "The best: "})
    EXPECT_TRUE(has(search.text(), part)) << search.text();
}

TEST(LayoutSearch, MoneyAndTimeChooseTheDevices) {
  const LayoutRequest request{.model = "llama3-8b", .tokens = 1e12, .cluster = "h100-sxm"};
  const auto with = [&](std::optional<double> budget, std::optional<double> deadline) {
    LayoutRequest changed = request;
    changed.budget = budget;
    changed.deadline = deadline;
    return LayoutSearch(changed).json();
  };
  const auto slow = with(std::nullopt, 60 * 86400.0), fast = with(std::nullopt, 10 * 86400.0);
  EXPECT_LT(slow.at("devices").get<int64_t>(), fast.at("devices").get<int64_t>());
  EXPECT_LE(fast.at("layouts")[0].at("run_s").get<double>(), 10 * 86400.0);
  const auto rich = with(1e6, std::nullopt);
  EXPECT_LE(rich.at("layouts")[0].at("cost").get<double>(), 1e6);
  EXPECT_TRUE(has(message_of({.model = "llama3-8b", .tokens = 1e12, .budget = 100, .cluster = "h100-sxm"}),
                  "--budget"));
  EXPECT_TRUE(has(message_of({.model = "llama3-8b", .tokens = 1e12, .deadline = 60, .cluster = "h100-sxm"}),
                  "--deadline"));
}

TEST(LayoutSearch, BadInput) {
  EXPECT_TRUE(has(message_of({.model = "lama3-8b", .cluster = "h100-sxm"}), "did you mean llama3-8b?"));
  EXPECT_TRUE(
      has(message_of({.model = "llama3-8b", .gpus = 8, .cluster = "h100-smx"}), "did you mean \"h100-sxm\""));
  EXPECT_TRUE(
      has(message_of({.model = "llama3-8b", .gpus = 8, .budget = 1e6, .cluster = "h100-sxm"}), "--budget"));
  EXPECT_TRUE(has(message_of({.model = "llama3-8b", .budget = 1e6}), "--cluster"));
  const std::string none = message_of({.model = "llama3.1-405b", .gpus = 8, .cluster = "h100-sxm"});
  EXPECT_TRUE(has(none, "in no layout: the least takes") && has(none, "; it fits on ")) << none;
  EXPECT_TRUE(has(message_of({.model = "llama3-8b", .gpus = 1'000'000, .cluster = "h100-sxm"}), "--gpus"));
  EXPECT_TRUE(has(
      message_of({.model = "llama3-8b", .sets = {"parallel.tensor=16"}, .gpus = 8, .cluster = "h100-sxm"}),
      "--gpus 8"));
}

}  // namespace
}  // namespace strata::library
