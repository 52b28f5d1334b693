// Every kind of finding on a run that shows it, and on a similar one that does not.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "config/run_config.h"
#include "diagnosis/run_files.h"

namespace strata::diagnosis {
namespace {

struct Kind {
  std::string name;
  std::function<void(RunFiles&)> shows, similar;
  friend std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }
};

void set_all(RunFiles& run, const std::string& name, const std::function<double(double step)>& value) {
  run.each([&](int64_t step, Line& line) { line[name] = value(static_cast<double>(step)); });
}

void multiply(RunFiles& run, const std::string& name, int64_t first, int64_t last, double factor) {
  run.each_between(first, last, [&](int64_t, Line& line) { line[name] = line[name].get<double>() * factor; });
}

void skip(RunFiles& run, int64_t first, int64_t last, int64_t every) {
  run.each_between(first, last, [&](int64_t step, Line& line) {
    if (step % every == 0) line["skipped"] = true;
  });
}

void set_tensors(RunFiles& run, const std::string& name, double value) {
  for (Line& sample : run.layers) sample["layers"][1][name] = value;
}

void set_load(RunFiles& run, size_t from_last, size_t to_last, const std::vector<int64_t>& tokens) {
  for (size_t i = run.experts.size() - from_last; i < run.experts.size() - to_last; ++i)
    run.experts[i]["tokens"][1] = tokens;
}

// Fails after a step and starts again `seconds` later from an earlier one.
void fail_at(RunFiles& run, int64_t from, int64_t undone, double seconds) {
  double time = 0;
  run.each_between(from, from, [&](int64_t, Line& line) { time = line["time"]; });
  for (int64_t i = 1; i <= undone; ++i)
    run.discarded.push_back(
        {{"step", from + i}, {"time", time + 0.5 * static_cast<double>(i)}, {"step_ms", 500}, {"loss", 3}});
  const double gap = seconds + 0.5 * static_cast<double>(undone);
  run.delay(from, gap);
  run.event("resume", from, {{"time", time + gap}});
}

// Constant learning rate.
void hold_rate(RunFiles& run) {
  run.settings["schedule.name"] = "\"constant\"";
  set_all(run, "lr", [](double step) { return 1e-3 * std::min(1.0, step / 100); });
}

std::vector<Kind> all_kinds() {
  const std::vector<int64_t> kThree{700, 900, 1300};
  return {
      {"failed", [](RunFiles& run) { run.cut(1500); }, [](RunFiles&) {}},
      {"interrupted",
       [](RunFiles& run) {
         run.cut(1500);
         run.event("interrupt", 1500);
       },
       [](RunFiles& run) {
         run.event("interrupt", 1500);
         run.event("resume", 1500);
       }},
      {"stalled",
       [](RunFiles& run) {
         run.cut(1500);
         run.locked = true;
         run.seconds_since_last_line = 3600;
       },
       [](RunFiles& run) {
         run.cut(1500);
         run.locked = true;
         run.seconds_since_last_line = 60;
       }},
      {"no_progress",
       [](RunFiles& run) {
         run.cut(1250);
         for (int i = 0; i < 3; ++i) run.event("resume", 1200);
       },
       [](RunFiles& run) {
         run.cut(1250);
         for (const int64_t step : {200, 400, 600, 800}) run.event("resume", step);
       }},
      {"gave_up",
       [](RunFiles& run) {
         run.cut(1500);
         run.event("gave_up", 1500,
                   {{"why", "10 interventions in 1,000 steps"}, {"interventions", 10}, {"lost_steps", 300}});
       },
       [](RunFiles& run) {
         run.event("gave_up", 1000, {{"why", "10 interventions in 1,000 steps"}});
         run.event("resume", 1000);
       }},
      {"nonfinite_values",
       [](RunFiles& run) {
         run.each_between(700, 700, [](int64_t, Line& line) {
           line["loss"] = nullptr;
           line["grad_norm"] = nullptr;
           line["skipped"] = true;
         });
       },
       [](RunFiles& run) {
         run.each_between(700, 700, [](int64_t, Line& line) {
           line.erase("loss");
           line["skipped"] = true;
         });
       }},
      {"corruption",
       [](RunFiles& run) {
         run.event(
             "corruption", 900,
             {{"where", "weights"}, {"tensor", "lm_head.weight"}, {"rank", 3}, {"found_by", "digests"}});
       },
       [](RunFiles& run) {
         run.event("injected", 900, {{"rank", 3}});
       }},
      {"rollbacks",
       [](RunFiles& run) {
         run.event("intervention", 900,
                   {{"rule", "loss_high"}, {"action", "rollback_skip"}, {"to_step", 850}});
       },
       [](RunFiles& run) {
         run.event("intervention", 900, {{"rule", "loss_spike"}, {"action", "skip_update"}});
       }},
      {"skipped_updates", [](RunFiles& run) { skip(run, 1200, 2000, 30); },
       [](RunFiles& run) { skip(run, 1200, 2000, 200); }},
      {"divergence", [](RunFiles& run) { multiply(run, "loss", 1500, 2000, 2.2); },
       [](RunFiles& run) { multiply(run, "loss", 1500, 1505, 2.2); }},
      {"loss_high", [](RunFiles& run) { multiply(run, "loss", 1500, 2000, 1.12); },
       [](RunFiles& run) { multiply(run, "loss", 1500, 1560, 1.12); }},
      {"loss_spikes", [kThree](RunFiles& run) { run.scale("loss", 1.3, kThree); },
       [kThree](RunFiles& run) { run.scale("loss", 1.05, kThree); }},
      {"gradient_spikes", [kThree](RunFiles& run) { run.scale("grad_norm", 6, kThree); },
       [kThree](RunFiles& run) { run.scale("grad_norm", 1.4, kThree); }},
      {"plateau",
       [](RunFiles& run) {
         hold_rate(run);
         run.each_between(900, 2000, [&](int64_t step, Line& line) {
           line["loss"] = 3.0 * (1 + 0.005 * run.noise(step, 9));
         });
       },
       hold_rate},
      {"overfitting",
       [](RunFiles& run) {
         run.each_between(900, 2000, [](int64_t step, Line& line) {
           if (line.contains("eval/valid/loss"))
             line["eval/valid/loss"] = 3.1 + 3e-4 * static_cast<double>(step - 900);
         });
       },
       [](RunFiles& run) {
         run.each_between(900, 2000, [](int64_t, Line& line) {
           if (line.contains("eval/valid/loss")) line["eval/valid/loss"] = 3.1;
         });
       }},
      {"learning_rate_too_high",
       [](RunFiles& run) {
         run.scale("grad_norm", 10, {60, 100, 150});
       },
       [](RunFiles& run) {
         run.scale("grad_norm", 10, {1060, 1100, 1150});
       }},
      {"warmup_too_short",
       [](RunFiles& run) {
         run.settings["schedule.warmup_steps"] = "5";
         multiply(run, "loss", 6, 30, 2);
       },
       [](RunFiles& run) { multiply(run, "loss", 6, 30, 2); }},
      {"clipping_always", [](RunFiles& run) { multiply(run, "grad_norm", 1, 2000, 10); },
       [](RunFiles& run) {
         run.settings["training.clip_grad_norm"] = "8.0";
         multiply(run, "grad_norm", 1, 2000, 10);
       }},
      {"clipping_never", [](RunFiles& run) { run.settings["training.clip_grad_norm"] = "30.0"; },
       [](RunFiles& run) { run.settings["training.clip_grad_norm"] = "3.0"; }},
      {"update_ratio_large", [](RunFiles& run) { set_all(run, "update_ratio", [](double) { return 0.2; }); },
       [](RunFiles& run) { set_all(run, "update_ratio", [](double) { return 0.01; }); }},
      {"update_ratio_small",
       [](RunFiles& run) {
         hold_rate(run);
         set_all(run, "update_ratio", [](double) { return 1e-6; });
       },
       [](RunFiles& run) { set_all(run, "update_ratio", [](double) { return 1e-6; }); }},
      {"gradient_below_eps", [](RunFiles& run) { set_tensors(run, "grad_rms", 1e-10); },
       [](RunFiles& run) { set_tensors(run, "grad_rms", 1e-7); }},
      {"batch_below_noise",
       [](RunFiles& run) { set_all(run, "noise_scale", [](double) { return 512 * 1000; }); },
       [](RunFiles& run) { set_all(run, "noise_scale", [](double) { return 512 * 300; }); }},
      {"batch_above_noise",
       [](RunFiles& run) { set_all(run, "noise_scale", [](double) { return 512 * 3; }); },
       [](RunFiles& run) { set_all(run, "noise_scale", [](double) { return 512 * 20; }); }},
      {"attention_growth",
       [](RunFiles& run) { set_all(run, "attention_max", [](double step) { return 12 + step / 5; }); },
       [](RunFiles& run) { set_all(run, "attention_max", [](double step) { return 12 + step / 50; }); }},
      {"logit_growth",
       [](RunFiles& run) { set_all(run, "logit_max", [](double step) { return 90 + step; }); },
       [](RunFiles& run) { set_all(run, "logit_max", [](double step) { return 90 + step / 10; }); }},
      {"router_logit_growth",
       [](RunFiles& run) { set_all(run, "router_z", [](double step) { return 2 + step / 50; }); },
       [](RunFiles& run) { set_all(run, "router_z", [](double step) { return 2 + step / 500; }); }},
      {"routing_collapse",
       [](RunFiles& run) {
         set_load(run, 10, 0, {7990, 10, 0, 0, 0, 0, 0, 0});
       },
       [](RunFiles& run) {
         set_load(run, 20, 10, {7990, 10, 0, 0, 0, 0, 0, 0});
       }},
      {"dead_experts",
       [](RunFiles& run) {
         set_load(run, 10, 0, {1000, 1000, 1000, 1000, 1000, 1000, 2000, 0});
       },
       [](RunFiles& run) {
         set_load(run, 10, 0, {1000, 1000, 1000, 1000, 1000, 1000, 1990, 10});
       }},
      {"dead_units", [](RunFiles& run) { set_tensors(run, "zero_share", 0.99); },
       [](RunFiles& run) { set_tensors(run, "zero_share", 0.8); }},
      {"restarts",
       [](RunFiles& run) {
         fail_at(run, 600, 100, 60);
         fail_at(run, 1200, 100, 60);
       },
       [](RunFiles& run) {
         fail_at(run, 600, 10, 5);
         fail_at(run, 1200, 10, 5);
       }},
      {"slow_rank",
       [](RunFiles& run) {
         for (Line& sample : run.ranks) sample["step_ms"][2] = 650;
       },
       [](RunFiles& run) {
         for (size_t i = 0; i < run.ranks.size(); ++i) run.ranks[i]["step_ms"][i % 4] = 650;
       }},
      {"data_wait", [](RunFiles& run) { set_all(run, "data_wait_ms", [](double) { return 60; }); },
       [](RunFiles& run) { set_all(run, "data_wait_ms", [](double) { return 10; }); }},
      {"speed_drop", [](RunFiles& run) { multiply(run, "tokens_per_s", 1500, 2000, 0.7); },
       [](RunFiles& run) { multiply(run, "tokens_per_s", 1500, 2000, 0.93); }},
      {"saves_cost",
       [](RunFiles& run) {
         for (Line& line : run.lines)
           if (line.contains("held_up")) line["held_up"] = 20;
       },
       [](RunFiles& run) {
         for (Line& line : run.lines)
           if (line.contains("held_up")) line["held_up"] = 1;
       }},
      {"few_checkpoints",
       [](RunFiles& run) {
         run.cut(1900);
         run.locked = true;
         std::erase_if(run.lines,
                       [](const Line& line) { return line.contains("held_up") && line["at_step"] > 200; });
         for (size_t i = 0; i < run.lines.size(); ++i)
           run.lines[i]["time"] = 1.7e9 + 5.0 * static_cast<double>(i);
       },
       [](RunFiles& run) {
         run.cut(1900);
         run.locked = true;
         for (size_t i = 0; i < run.lines.size(); ++i)
           run.lines[i]["time"] = 1.7e9 + 5.0 * static_cast<double>(i);
       }},
      {"memory_growth",
       [](RunFiles& run) { set_all(run, "memory_bytes", [](double step) { return 1e9 + 5e5 * step; }); },
       [](RunFiles& run) {
         set_all(run, "memory_bytes", [](double step) { return 1e9 + (step > 1000 ? 5e8 : 0); });
       }},
      {"disk_full_soon",
       [](RunFiles& run) {
         run.cut(1500);
         run.settings["checkpoint.keep_every"] = "\"500 steps\"";
         run.change = [](Evidence& evidence) { evidence.free_bytes = evidence.checkpoints.front().bytes; };
       },
       [](RunFiles& run) {
         run.cut(1500);
         run.change = [](Evidence& evidence) {
           evidence.free_bytes = 3 * evidence.checkpoints.front().bytes;
         };
       }},
      {"unhealthy_checkpoint", [](RunFiles& run) { run.checkpoints.back().healthy = false; },
       [](RunFiles& run) { run.checkpoints.front().healthy = false; }},
      {"damaged_checkpoint", [](RunFiles& run) { run.checkpoints.back().manifest = "{\"step\": 20"; },
       [](RunFiles&) {}},
      {"repeated_data", [](RunFiles& run) { run.checkpoints.back().passes = 12; },
       [](RunFiles& run) { run.checkpoints.back().passes = 4; }},
      {"evaluation_missing",
       [](RunFiles& run) {
         run.settings["eval.interval"] = "\"never\"";
         run.each([](int64_t, Line& line) { line.erase("eval/valid/loss"); });
       },
       [](RunFiles& run) {
         run.cut(400);
         run.each([](int64_t, Line& line) { line.erase("eval/valid/loss"); });
       }},
      {"no_targets",
       [](RunFiles& run) {
         skip(run, 1, 2000, 50);
         run.each([](int64_t, Line& line) {
           if (line.contains("skipped")) line.erase("loss");
         });
       },
       [](RunFiles& run) { skip(run, 1, 2000, 50); }},
      {"damaged_files", [](RunFiles& run) { run.settings["training.steps"] = "="; }, [](RunFiles&) {}},
  };
}

// Keys that exist, and values that they accept.
void check_setting(const std::string& setting) {
  const std::vector<std::string> sets{setting};
  const config::RunConfig config = config::parse_run_config("", "test", sets);
  for (const config::Issue& issue : config.reading_issues)
    ADD_FAILURE() << setting << ": " << issue.to_string();
  EXPECT_TRUE(config.was_set(setting.substr(0, setting.find('=')))) << setting;
}

void check(const Diagnosis& diagnosis) {
  for (const Finding& one : diagnosis.findings) {
    EXPECT_GT(one.sentence.size(), 20U) << one.name;
    EXPECT_EQ(one.sentence.find("nan"), std::string::npos) << one.sentence;
    EXPECT_TRUE(one.evidence.is_object() && !one.evidence.empty()) << one.name;
    for (const std::string& setting : one.settings) check_setting(setting);
  }
}

class Findings : public testing::TestWithParam<Kind> {};

TEST_P(Findings, AreReportedByRunsThatShowThem) {
  RunFiles run;
  GetParam().shows(run);
  const Diagnosis diagnosis = run.diagnose();
  EXPECT_NE(find(diagnosis, GetParam().name), nullptr) << names_of(diagnosis);
  check(diagnosis);
  if (std::getenv("STRATA_PRINT_FINDINGS") != nullptr) fmt::print("{}", names_of(diagnosis));
}

TEST_P(Findings, AreAbsentFromSimilarRuns) {
  RunFiles run;
  GetParam().similar(run);
  const Diagnosis diagnosis = run.diagnose();
  EXPECT_EQ(find(diagnosis, GetParam().name), nullptr) << names_of(diagnosis);
  check(diagnosis);
}

INSTANTIATE_TEST_SUITE_P(All, Findings, testing::ValuesIn(all_kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST(FindingKinds, AllHaveATest) {
  std::set<std::string> tested, known;
  for (const Kind& kind : all_kinds()) tested.insert(kind.name);
  for (const FindingKind& kind : finding_kinds()) known.emplace(kind.name);
  EXPECT_EQ(tested, known);
  EXPECT_EQ(known.size(), finding_kinds().size()) << "names are unique";
}

TEST(HealthyRun, HasNoFindings) {
  for (const int64_t steps : {30, 300, 2000, 5000}) {
    for (const uint64_t seed : {1, 2, 3}) {
      RunFiles run(steps, seed);
      run.checkpoints.resize(steps >= 300 ? 2 : 0);
      const Diagnosis diagnosis = run.diagnose();
      EXPECT_EQ(names_of(diagnosis), "") << steps << " steps, seed " << seed;
      EXPECT_EQ(diagnosis.state, RunState::kFinished);
      EXPECT_EQ(diagnosis.step, steps);
    }
  }
}

TEST(HealthyRun, HasNoFindingsWhileItRuns) {
  for (int64_t step = 25; step < 2000; step += 165) {
    RunFiles run;
    run.cut(step);
    run.locked = true;
    const Diagnosis diagnosis = run.diagnose();
    EXPECT_EQ(names_of(diagnosis), "") << "at step " << step;
    EXPECT_EQ(diagnosis.state, RunState::kRunning);
  }
}

}  // namespace
}  // namespace strata::diagnosis
