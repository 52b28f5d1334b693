// Contracts of [recovery] and [[recovery.rule]], and of log.alert_command. Faults come from debug.inject. The spikes that a
// rule must find are computed from the values in metrics.jsonl; its action is compared with a run without the
// fault.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include "contracts/contract.h"
#include "contracts/lab.h"
#include "fixtures/environment.h"
#include "train/copy_files.h"
#include "train/launched.h"
#include "train/memory_folder.h"

namespace strata::contracts {
namespace {

// Steps of samples 2 (step − 1) and the next one, at a constant learning rate.
const Sets kTwenty =
    Sets{"training.steps=20", "optimizer.lr=0.01", "checkpoint.interval=\"5 steps\""} + kFlat;
// A gradient of step 13 is not a number.
const Sets kNan13{"debug.inject=[\"nan@step=13,phase=bwd\"]"};

std::string rule_of(const std::string& keys) {
  return "[[recovery.rule]]\n" + keys + "\n";
}
const std::string kNonfinite = "when = \"nonfinite\"\n";

// Events of this name; the steps to which they belong.
std::vector<json> events_named(const Seen& run, const std::string& name) {
  std::vector<json> out;
  for (const json& event : run.events)
    if (event.at("event") == name) out.push_back(event);
  return out;
}
std::vector<int64_t> steps_of(const std::vector<json>& events) {
  std::vector<int64_t> steps;
  for (const json& event : events) steps.push_back(event.at("at_step"));
  return steps;
}
// "nonfinite skip_update 13", for each intervention.
std::vector<std::string> interventions_in(const Seen& run) {
  std::vector<std::string> out;
  for (const json& event : events_named(run, "intervention")) {
    out.push_back(event.at("rule").get<std::string>() + " " + event.at("action").get<std::string>() + " " +
                  dump_json(event.at("at_step")));
    if (event.contains("to_step")) out.back() += " to " + dump_json(event.at("to_step"));
  }
  return out;
}
using Lines = std::vector<std::string>;

bool is_finished(const Seen& run) {
  return run.result.end == training::RunEnd::kFinished && std::filesystem::exists(run.folder / "final");
}

// The update that is left out is that of a run which never sees its samples.
void expect_skipped_13(Lab& lab, const Seen& run) {
  EXPECT_TRUE(is_finished(run));
  for (const json& step : run.steps)
    EXPECT_EQ(step.value("skipped", false), step.at("step") == 13) << step.at("step");
  const Seen without = lab.run(kTwenty + Sets{"training.steps=19", "data.skip=[[24, 25]]"});
  EXPECT_TRUE(same(run.weights(20), without.weights(19)));
  EXPECT_TRUE(same(run.states(20), without.states(19)));
}

void rules(const std::string&) {
  Lab lab;
  const Seen usual = lab.run(kTwenty + kNan13 + Sets{"recovery.rules=\"auto\""});
  EXPECT_EQ(interventions_in(usual), Lines{"nonfinite skip_update 13"});
  expect_skipped_13(lab, usual);
  std::string why;
  const Seen none = lab.run_to_end(kTwenty + kNan13 + Sets{"recovery.rules=\"none\""}, why);
  EXPECT_TRUE(has(why, "step 13") && has(why, "not finite")) << why;
  EXPECT_EQ(interventions_in(none), Lines{});
  EXPECT_EQ(steps_of(events_named(none, "gave_up")), std::vector<int64_t>{13});
  EXPECT_FALSE(std::filesystem::exists(none.folder / "final"));
  // A spike is reported, and nothing else is done.
  const Sets spike{"training.steps=60", "debug.inject=[\"spike@step=50,factor=100\"]"};
  const Seen seen = lab.run(kTwenty + spike + Sets{"recovery.rules=\"none\""});
  EXPECT_EQ(interventions_in(seen), Lines{});
  const auto alerts = steps_of(events_named(seen, "alert"));
  EXPECT_TRUE(std::find(alerts.begin(), alerts.end(), 50) != alerts.end());
  EXPECT_NE(interventions_in(lab.run(kTwenty + spike)), Lines{});
  EXPECT_TRUE(has(lab.refusal({"recovery.rules=\"none\""}, rule_of(kNonfinite + "action = \"stop\"")),
                  "recovery.rules"));
}

// To which step a rollback from step 13 goes.
int64_t target_of(const Seen& run) {
  const auto found = events_named(run, "intervention");
  EXPECT_EQ(found.size(), 1u);
  return found.empty() || !found[0].contains("to_step") ? -1 : found[0].at("to_step").get<int64_t>();
}
const std::string kBack = rule_of(kNonfinite + "action = \"rollback\"");

void snapshot(const std::string&) {
  Lab lab;
  for (const auto& [interval, step] :
       std::vector<std::pair<std::string, int64_t>>{{"5 steps", 10}, {"4 steps", 12}, {"100 steps", 0}}) {
    const Seen run = lab.run(
        kTwenty + kNan13 + Sets{"recovery.snapshot=\"" + interval + "\"", "recovery.in_memory=true"}, kBack);
    EXPECT_EQ(target_of(run), step) << interval;
  }
  // Without snapshots the newest checkpoint serves, and without one the run ends.
  const Sets never{"recovery.snapshot=\"never\""};
  EXPECT_EQ(target_of(lab.run(kTwenty + kNan13 + never + Sets{"checkpoint.interval=\"3 steps\""}, kBack)),
            12);
  std::string why;
  lab.run_to_end(kTwenty + kNan13 + never + Sets{"checkpoint.interval=\"never\""}, why, kBack);
  EXPECT_TRUE(has(why, "recovery.snapshot")) << why;
  for (const char* wrong : {"5min", "auto"})
    EXPECT_TRUE(has(lab.refusal({std::string("recovery.snapshot=\"") + wrong + "\""}), "recovery.snapshot"));
}

void in_memory(const std::string&) {
  Lab lab;
  const Sets sets = kTwenty + kNan13 + Sets{"recovery.snapshot=\"4 steps\""};
  const auto target = [&](const Sets& more) { return target_of(lab.run(sets + more, kBack)); };
  EXPECT_EQ(target({"recovery.in_memory=true"}), 12);   // a snapshot
  EXPECT_EQ(target({"recovery.in_memory=false"}), 10);  // a checkpoint
  EXPECT_EQ(target({"recovery.in_memory=\"auto\""}), 12);
  const auto arena = lab.run(kTwenty).event("start").at("arena_bytes").get<int64_t>();
  const std::string exact = "memory.budget=" + std::to_string(arena);
  EXPECT_EQ(target({"recovery.in_memory=\"auto\"", exact}), 10);
  // More snapshots than memory holds.
  const std::string refused = lab.refusal(
      {"recovery.snapshot=\"1 steps\"", "recovery.detection_delay=1000000000", "recovery.in_memory=true"});
  EXPECT_TRUE(has(refused, "recovery.in_memory") && has(refused, "1000000001 snapshots take")) << refused;
}

// The steps of which copies are made: the newest two at each step.
std::vector<std::set<int64_t>> copies_at_steps(Lab& lab, const Sets& sets) {
  std::vector<std::set<int64_t>> seen;
  training::RunOptions options{.config = lab.config(kTwenty + sets)};
  const Path folder = training::memory_folder(options.config.run.folder);
  options.observer.step = [&](const training::StepRecord&) {
    std::set<int64_t>& steps = seen.emplace_back();
    for (const training::FoundCopy& copy : training::list_copies(folder))
      if (copy.content) steps.insert(copy.content->step);
  };
  options.observer.log = [](LogLevel, std::string_view) {};
  training::train_on_threads(options, 1, [] { return false; });
  EXPECT_FALSE(std::filesystem::exists(folder));
  return seen;
}

void copies(const std::string&) {
  Lab lab;
  using Steps = std::set<int64_t>;
  const auto seen = copies_at_steps(lab, {"recovery.copies=\"4 steps\""});
  ASSERT_EQ(seen.size(), 20u);
  EXPECT_EQ(seen[3], Steps{});  // as step 4 is reported
  EXPECT_EQ(seen[4], Steps{4});
  EXPECT_EQ(seen[8], (Steps{4, 8}));
  EXPECT_EQ(seen[19], (Steps{12, 16}));
  EXPECT_EQ(copies_at_steps(lab, {"recovery.copies=7"}).back(), (Steps{7, 14}));
  // "auto": under strata launch.
  for (const char* none : {"\"never\"", "\"auto\""})
    EXPECT_EQ(copies_at_steps(lab, {std::string("recovery.copies=") + none}).back(), Steps{}) << none;
  {
    const fixtures::Environment launched(training::kLaunchAttempt, "1");
    EXPECT_EQ(copies_at_steps(lab, {"recovery.copies=\"auto\""})[1], Steps{1});
    EXPECT_EQ(copies_at_steps(lab, {"recovery.copies=\"never\""}).back(), Steps{});
  }
  const Seen plain = lab.run(kTwenty), copied = lab.run(kTwenty + Sets{"recovery.copies=1"});
  EXPECT_TRUE(same(plain.weights(20), copied.weights(20)) && same(plain.states(20), copied.states(20)));
  EXPECT_EQ(plain.values("copy_ms").size(), 0u);
  EXPECT_GT(copied.values("copy_ms").size(), 10u);
  for (const char* wrong : {"5min", "10M tokens"})
    EXPECT_TRUE(has(lab.refusal({std::string("recovery.copies=\"") + wrong + "\""}), "recovery.copies"));
}

// tests/train/copies_process_test.cpp has several hosts. On one host it changes nothing.
void peer_copies(const std::string&) {
  Lab lab;
  const Sets sets = kTwenty + Sets{"recovery.copies=5"};
  const Seen usual = lab.run_on(2, sets + Sets{"recovery.peer_copies=\"auto\""});
  const Seen never = lab.run_on(2, sets + Sets{"recovery.peer_copies=\"never\""});
  EXPECT_TRUE(same(usual.weights(20), never.weights(20)));
  EXPECT_TRUE(has(lab.refusal({"recovery.peer_copies=\"5 steps\""}), "recovery.peer_copies"));
}

// Weights that are not a number, twice: the second time the newest snapshot is not trusted if the first time is
// less than the delay ago.
void detection_delay(const std::string&) {
  Lab lab;
  const Sets sets =
      kTwenty + Sets{"training.steps=40", "recovery.snapshot=\"3 steps\"", "recovery.in_memory=true",
                     "debug.inject=[\"nan@step=13,phase=update\", \"nan@step=20,phase=update\"]"};
  const Lines first{"nonfinite skip_update 14", "nonfinite skip_update 15", "nonfinite skip_update 16",
                    "nonfinite rollback_skip 16 to 12"};
  const Lines second{"nonfinite skip_update 21", "nonfinite skip_update 22", "nonfinite skip_update 23"};
  const auto expect = [&](int64_t delay, const Lines& end) {
    const Seen run = lab.run(sets + Sets{"recovery.detection_delay=" + std::to_string(delay)});
    Lines all = first;
    all.insert(all.end(), second.begin(), second.end());
    all.insert(all.end(), end.begin(), end.end());
    EXPECT_EQ(interventions_in(run), all) << delay;
    EXPECT_TRUE(is_finished(run));
  };
  expect(6, {"nonfinite rollback_skip 23 to 18"});
  expect(7, {"nonfinite ease_lr 23", "nonfinite rollback_skip 23 to 9"});
  const std::string refused = lab.refusal({"recovery.snapshot=\"5 steps\"", "recovery.detection_delay=4"});
  EXPECT_TRUE(has(refused, "recovery.detection_delay")) << refused;
}

void max_interventions(const std::string&) {
  Lab lab;
  const Sets faults{
      "debug.inject=[\"nan@step=5,phase=bwd\", \"nan@step=9,phase=bwd\", \"nan@step=13,phase=bwd\"]"};
  for (const int64_t most : {0, 1, 2, 3}) {
    std::string why;
    const Seen run =
        lab.run_to_end(kTwenty + faults + Sets{"recovery.max_interventions=" + std::to_string(most)}, why);
    EXPECT_EQ(std::ssize(interventions_in(run)), most);
    EXPECT_EQ(is_finished(run), most == 3) << why;
    if (most == 3) continue;
    EXPECT_TRUE(has(why, "recovery.max_interventions = " + std::to_string(most))) << why;
    EXPECT_EQ(steps_of(events_named(run, "gave_up")), std::vector<int64_t>{5 + 4 * most});
  }
}

void max_lost_steps(const std::string&) {
  Lab lab;
  // From step 13 back to 10, and from 18 back to 15.
  const Sets sets = kTwenty + Sets{"debug.inject=[\"nan@step=13,phase=bwd\", \"nan@step=18,phase=bwd\"]",
                                   "recovery.snapshot=\"5 steps\"", "recovery.in_memory=true"};
  for (const auto& [most, rollbacks] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 0}, {3, 1}, {5, 1}, {6, 2}}) {
    std::string why;
    const Seen run =
        lab.run_to_end(sets + Sets{"recovery.max_lost_steps=" + std::to_string(most)}, why, kBack);
    EXPECT_EQ(std::ssize(interventions_in(run)), rollbacks) << most;
    EXPECT_EQ(is_finished(run), rollbacks == 2) << why;
    EXPECT_EQ(has(why, "recovery.max_lost_steps = " + std::to_string(most)), rollbacks < 2) << why;
  }
}

// The steps, counted from 1, in which a rule finds a spike if every update is made, with their limits.
std::map<int64_t, double> spikes_in(const std::vector<double>& values, const std::string& preset,
                                    bool is_loss, size_t window, double threshold) {
  const auto mean = [](const std::vector<double>& of) {
    return std::accumulate(of.begin(), of.end(), 0.0) / static_cast<double>(of.size());
  };
  const auto median = [](std::vector<double> of) {
    std::sort(of.begin(), of.end());
    return (of[of.size() / 2] + of[(of.size() - 1) / 2]) / 2;
  };
  const auto deviation = [&](const std::vector<double>& of, double freedom) {
    double squares = 0;
    for (const double one : of) squares += (one - mean(of)) * (one - mean(of));
    return std::sqrt(squares / freedom);
  };
  std::map<int64_t, double> found;
  for (size_t now = 0; now < values.size(); ++now) {
    const auto end = values.begin() + static_cast<std::ptrdiff_t>(now);
    const std::vector<double> last(end - static_cast<std::ptrdiff_t>(std::min(now, window)), end);
    double limit = INFINITY;
    if (preset == "megatron") {
      if (now >= window)
        limit = threshold *
                *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(window));
    } else if (preset == "zclip") {
      if (now < 25) continue;
      const std::vector<double> first(values.begin(), values.begin() + 25);
      double center = mean(first), variance = std::pow(deviation(first, 25), 2);
      for (size_t i = 25; i < now; ++i) {
        center = 0.97 * center + 0.03 * values[i];
        variance = 0.97 * variance + 0.03 * std::pow(values[i] - center, 2);
      }
      limit = center + threshold * std::sqrt(variance);
    } else if (preset == "olmo") {
      if (now >= std::max<size_t>(20, window / 2))
        limit = mean(last) + threshold * deviation(last, static_cast<double>(last.size() - 1));
    } else if (now >= std::min(window, std::max<size_t>(20, window / 4))) {
      if (preset == "ratio") {
        limit = threshold * mean(last);
      } else {
        std::vector<double> apart;
        for (const double one : last) apart.push_back(std::abs(one - median(last)));
        const double least = (is_loss ? 0.01 : 0.1) * median(last);
        limit = median(last) + threshold * std::max(least, 1.4826 * median(apart));
      }
    }
    if (values[now] > limit) found[static_cast<int64_t>(now) + 1] = limit;
  }
  return found;
}

struct SpikeRule {
  std::string when = "loss_spike", preset = "ratio";
  int64_t window = 20;
  double threshold = 0.95;
};
// Alerts of a rule in a run of 60 steps are those computed from its values; returns their steps.
std::vector<int64_t> expect_spikes(Lab& lab, const SpikeRule& rule) {
  const bool is_loss = rule.when == "loss_spike";
  const Seen run = lab.run(kTwenty + Sets{"training.steps=60", "checkpoint.interval=\"never\""},
                           rule_of("when = \"" + rule.when + "\"\npreset = \"" + rule.preset +
                                   "\"\nwindow = " + std::to_string(rule.window) + "\nthreshold = " +
                                   std::to_string(rule.threshold) + "\naction = \"alert\"\nfor_steps = 1"));
  const std::vector<double> values = run.values(is_loss ? "loss" : "grad_norm");
  const auto expected =
      spikes_in(values, rule.preset, is_loss, static_cast<size_t>(rule.window), rule.threshold);
  const auto alerts = events_named(run, "alert");
  EXPECT_EQ(alerts.size(), expected.size()) << rule.when << " " << rule.preset;
  for (const json& alert : alerts) {
    const int64_t step = alert.at("at_step");
    EXPECT_EQ(expected.count(step), 1u) << rule.preset << " " << step;
    if (expected.count(step) == 0) continue;
    EXPECT_EQ(alert.at("rule"), rule.when);
    EXPECT_NEAR(alert.at("measured").get<double>(), values[static_cast<size_t>(step) - 1], 1e-5);
    EXPECT_NEAR(alert.at("limit").get<double>(), expected.at(step), 1e-5 * expected.at(step));
  }
  EXPECT_EQ(interventions_in(run), Lines{});
  EXPECT_FALSE(alerts.empty()) << rule.when << " " << rule.preset << ": choose a lower threshold";
  EXPECT_LT(alerts.size(), 40u) << rule.when << " " << rule.preset << ": choose a higher threshold";
  return steps_of(alerts);
}

void preset(const std::string&) {
  Lab lab;
  for (const bool is_loss : {true, false}) {
    std::set<std::vector<int64_t>> all;
    for (const SpikeRule& rule :
         {SpikeRule{.preset = "robust_z", .threshold = 1}, SpikeRule{.preset = "olmo", .threshold = 1},
          SpikeRule{.preset = "megatron", .threshold = 0.9}, SpikeRule{.preset = "zclip", .threshold = 1},
          SpikeRule{.preset = "ratio", .threshold = 0.95}}) {
      SpikeRule own = rule;
      own.when = is_loss ? "loss_spike" : "grad_spike";
      if (!is_loss || rule.preset != "zclip") all.insert(expect_spikes(lab, own));
    }
    EXPECT_GE(all.size(), 3u) << "the presets find different steps";
  }
  EXPECT_TRUE(has(lab.refusal({}, rule_of("when = \"loss_spike\"\npreset = \"zclip\"\naction = \"alert\"")),
                  "recovery.rule.0.preset"));
}

void threshold(const std::string&) {
  Lab lab;
  EXPECT_GT(expect_spikes(lab, {.threshold = 0.9}).size(), expect_spikes(lab, {.threshold = 0.97}).size());
  // "auto", seen in the limit of a step that is a spike for every rule.
  for (const bool is_loss : {true, false}) {
    const std::vector<std::pair<std::string, double>> usual{{"robust_z", is_loss ? 8 : 20},
                                                            {"olmo", 6},
                                                            {"megatron", 10},
                                                            {"zclip", 2.5},
                                                            {"ratio", is_loss ? 3 : 2}};
    for (const auto& [name, expected] : usual) {
      if (is_loss && name == "zclip") continue;
      const Seen run =
          lab.run(kTwenty + Sets{"training.steps=51", "checkpoint.interval=\"never\"",
                                 "debug.inject=[\"spike@step=50,factor=1000\"]"},
                  rule_of(std::string("when = \"") + (is_loss ? "loss_spike" : "grad_spike") +
                          "\"\npreset = \"" + name + "\"\nwindow = 40\naction = \"alert\"\nfor_steps = 1"));
      const auto limits = spikes_in(run.values(is_loss ? "loss" : "grad_norm"), name, is_loss, 40, expected);
      ASSERT_EQ(limits.count(50), 1u) << name;
      for (const json& alert : events_named(run, "alert"))
        EXPECT_TRUE(alert.at("at_step") != 50 ||
                    std::abs(alert.at("limit").get<double>() / limits.at(50) - 1) < 1e-5)
            << name << " " << alert.at("limit");
      EXPECT_FALSE(events_named(run, "alert").empty()) << name;
    }
  }
}

void window(const std::string&) {
  Lab lab;
  EXPECT_NE(expect_spikes(lab, {.window = 8, .threshold = 0.98}),
            expect_spikes(lab, {.window = 40, .threshold = 0.98}));
  EXPECT_TRUE(has(lab.refusal({}, rule_of("when = \"loss_spike\"\nwindow = 1\naction = \"alert\"")),
                  "recovery.rule.0.window"));
}

// Whether a rule alerts in a run with these settings, and first when.
std::optional<int64_t> first_alert(Lab& lab, const std::string& keys, const Sets& sets) {
  const Seen run = lab.run(kTwenty + Sets{"training.steps=90", "checkpoint.interval=\"never\""} + sets,
                           rule_of(keys + "\naction = \"alert\""));
  const auto alerts = events_named(run, "alert");
  return alerts.empty() ? std::nullopt : std::optional<int64_t>(alerts[0].at("at_step"));
}

void when(const std::string&) {
  Lab lab;
  for (const char* one : {"loss_spike", "grad_spike"}) expect_spikes(lab, {.when = one, .threshold = 0.95});
  std::string why;
  lab.run_to_end(kTwenty + kNan13, why, rule_of(kNonfinite + "action = \"stop\""));
  EXPECT_TRUE(has(why, "nonfinite")) << why;
  // Each on a run that shows it, and on one that does not.
  const Sets spoiled{"debug.inject=[\"spike@step=50,factor=10\"]"}, learns{};
  for (const char* one : {"when = \"loss_high\"", "when = \"divergence\"\nfor_steps = 20"}) {
    EXPECT_GT(first_alert(lab, one, spoiled).value_or(0), 50) << one;
    EXPECT_FALSE(first_alert(lab, one, learns)) << one;
  }
  const std::string plateau = "when = \"plateau\"\nfor_steps = 20\nthreshold = ";
  EXPECT_EQ(first_alert(lab, plateau + "0.1", {"optimizer.lr=1e-30"}), 40) << "after two times for_steps";
  EXPECT_NE(first_alert(lab, plateau + "1e-6", learns), 40);
  const std::string growth = "when = \"logit_growth\"\nthreshold = ";
  EXPECT_EQ(first_alert(lab, growth + "1e-9", {"log.layers=\"1 steps\""}), 1);
  EXPECT_FALSE(first_alert(lab, growth + "1e9", learns));
  EXPECT_FALSE(first_alert(lab, "when = \"corruption\"", learns));
  EXPECT_TRUE(has(lab.refusal({}, rule_of("action = \"alert\"")), "recovery.rule.0.when"));
}

const char* const kAnyGradient = "when = \"grad_spike\"\npreset = \"megatron\"\nwindow = 2\n";

// A factor that holds for some steps from the one after step 3 on, in which the rule fires first.
std::vector<double> eased(Lab& lab, const std::string& keys, int64_t steps) {
  const Seen run =
      lab.run(kTwenty + Sets{"training.steps=" + std::to_string(steps)},
              rule_of(kAnyGradient + std::string("threshold = 1e-6\naction = \"ease_lr\"\n") + keys));
  return run.values("lr");
}

void for_steps(const std::string&) {
  Lab lab;
  // The rule fires in every step, and is not applied again while it holds.
  EXPECT_EQ(eased(lab, "for_steps = 2", 10),
            (std::vector<double>{0.01, 0.01, 0.01, 0.005, 0.005, 0.005, 0.005, 0.005, 0.005, 0.005}));
  EXPECT_EQ(eased(lab, "for_steps = 3", 5), (std::vector<double>{0.01, 0.01, 0.01, 0.005, 0.005}));
  // From a spike on.
  const Seen run = lab.run(kTwenty + Sets{"training.steps=60", "debug.inject=[\"spike@step=50,factor=10\"]"},
                           rule_of("when = \"loss_spike\"\npreset = \"ratio\"\nthreshold = 1.3\n"
                                   "action = \"ease_lr\"\nfor_steps = 4"));
  const auto at = steps_of(events_named(run, "intervention"));
  ASSERT_FALSE(at.empty());
  const std::vector<double> lr = run.values("lr");
  for (size_t i = 0; i < lr.size(); ++i) {
    const auto step = static_cast<int64_t>(i) + 1;
    const bool is_eased =
        std::any_of(at.begin(), at.end(), [&](int64_t from) { return step > from && step <= from + 4; });
    EXPECT_EQ(lr[i], is_eased ? 0.005 : 0.01) << step;
  }
  EXPECT_EQ(first_alert(lab, "when = \"plateau\"\nthreshold = 0.1\nfor_steps = 15", {"optimizer.lr=1e-30"}),
            30);
}

// With beta1 = 0 the state "m" after a step is the gradient that was applied.
double applied(const Seen& run, int64_t step, bool is_embedding) {
  double squares = 0;
  for (const auto& [name, tensor] : run.states(step)) {
    if (!name.starts_with("m/")) continue;
    if (has(name, "embed_tokens") != is_embedding) continue;
    for (const double value : tensor.values) squares += value * value;
  }
  return std::sqrt(squares);
}

void factor(const std::string&) {
  Lab lab;
  EXPECT_EQ(eased(lab, "factor = 0.25", 5), (std::vector<double>{0.01, 0.01, 0.01, 0.0025, 0.0025}));
  EXPECT_EQ(eased(lab, "", 5), (std::vector<double>{0.01, 0.01, 0.01, 0.005, 0.005}));
  const Sets still = kStill + Sets{"training.steps=5", "checkpoint.interval=\"1 steps\""};
  const Seen plain = lab.run(still);
  for (const auto& [given, expected] :
       std::vector<std::pair<std::string, double>>{{"", 0.1}, {"factor = 0.5\n", 0.5}}) {
    const Seen run = lab.run(still, rule_of(kAnyGradient + std::string("threshold = 1e-6\n") + given +
                                            "action = \"shrink_embedding\"\nfor_steps = 1"));
    for (const int64_t step : {2, 3, 4}) {
      const double now = step == 4 ? expected : 1;
      EXPECT_NEAR(applied(run, step, true), now * applied(plain, step, true),
                  1e-4 * applied(plain, step, true));
      EXPECT_NEAR(applied(run, step, false), applied(plain, step, false), 1e-4 * applied(plain, step, false));
    }
  }
  // The norm after clipping is the factor times the limit, half of the greater of the first two norms.
  const std::vector<double> norms = plain.values("grad_norm");
  const double limit = 0.5 * std::max(norms[0], norms[1]);
  for (const auto& [given, expected] :
       std::vector<std::pair<std::string, double>>{{"", limit}, {"factor = 0.5\n", 0.5 * limit}}) {
    const Seen run = lab.run(
        still, rule_of(kAnyGradient + std::string("threshold = 0.5\n") + given + "action = \"clip\""));
    const double clipped = std::hypot(applied(run, 3, true), applied(run, 3, false));
    EXPECT_NEAR(clipped, expected, 1e-3 * expected);
    EXPECT_NEAR(std::hypot(applied(run, 2, true), applied(run, 2, false)), norms[1], 1e-3 * norms[1]);
  }
}

void action(const std::string&) {
  Lab lab;
  const Sets sets = kTwenty + kNan13 + Sets{"recovery.snapshot=\"5 steps\"", "recovery.in_memory=true"};
  const auto run_with = [&](const std::string& name) {
    return lab.run(sets, rule_of(kNonfinite + "action = \"" + name + "\""));
  };
  const Seen skipped = run_with("skip_update");
  EXPECT_EQ(interventions_in(skipped), Lines{"nonfinite skip_update 13"});
  expect_skipped_13(lab, skipped);
  // The same steps again, without the fault.
  const Seen back = run_with("rollback"), clean = lab.run(kTwenty);
  EXPECT_EQ(interventions_in(back), Lines{"nonfinite rollback 13 to 10"});
  EXPECT_TRUE(same(back.weights(20), clean.weights(20)) && same(back.states(20), clean.states(20)));
  EXPECT_EQ(back.values("loss"), clean.values("loss"));
  // Other samples: those of steps 11 to 13 are left out.
  const Seen past = run_with("rollback_skip");
  EXPECT_EQ(interventions_in(past), Lines{"nonfinite rollback_skip 13 to 10"});
  EXPECT_EQ(past.event("intervention").at("skipped_samples"), "20-25");
  const Seen without = lab.run(kTwenty + Sets{"data.skip=[[20, 25]]"});
  EXPECT_TRUE(same(past.weights(20), without.weights(20)) && same(past.states(20), without.states(20)));
  const std::string discarded = read_file(past.folder / "metrics.discarded.jsonl");
  for (const int step : {11, 12, 13}) EXPECT_TRUE(has(discarded, "{\"step\":" + std::to_string(step)));
  std::string why;
  const Seen stopped = lab.run_to_end(sets, why, rule_of(kNonfinite + "action = \"stop\""));
  EXPECT_TRUE(has(why, "step 13")) << why;
  EXPECT_EQ(steps_of(events_named(stopped, "gave_up")), std::vector<int64_t>{13});
  // An alert changes nothing; the others are checked by `factor`.
  const Seen seen =
      lab.run(kTwenty, rule_of(kAnyGradient + std::string("threshold = 1e-6\naction = \"alert\"")));
  EXPECT_FALSE(events_named(seen, "alert").empty());
  EXPECT_TRUE(same(seen.weights(20), clean.weights(20)));
  for (const char* wrong :
       {"when = \"loss_spike\"\naction = \"clip\"", "when = \"plateau\"\naction = \"skip_update\"",
        "when = \"nonfinite\"\naction = \"ease_lr\""}) {
    EXPECT_TRUE(has(lab.refusal({}, rule_of(wrong)), "recovery.rule.0.action")) << wrong;
  }
  EXPECT_TRUE(has(lab.refusal({}, rule_of(kNonfinite)), "recovery.rule.0.action"));
}

// The command reads the events that metrics.jsonl has; at most one a minute for each rule.
void alert_command(const std::string&) {
  Lab lab;
  lab.put("save", "#!/bin/sh\ncat >> \"$1\"\n");
  ::chmod(lab.path("save").c_str(), 0755);
  const std::string alerts =
      rule_of(kAnyGradient + std::string("threshold = 1e-6\naction = \"alert\"\nfor_steps = 1"));
  const Seen run = lab.run({"training.steps=20", "log.alert_command=" + lab.list({"save", "seen"})}, alerts);
  EXPECT_GT(events_named(run, "alert").size(), 10u);
  const std::string seen = read_file(lab.path("seen"));
  ASSERT_EQ(std::count(seen.begin(), seen.end(), '\n'), 1) << seen;
  json event = parse_json<json>(seen);
  const json& recorded = run.event("alert");
  for (const char* field : {"event", "at_step", "rule", "measured", "limit"})
    EXPECT_EQ(event.at(field), recorded.at(field)) << field;
  EXPECT_FALSE(std::filesystem::exists(lab.run({"training.steps=20"}, alerts).folder / "logs/alert.log"));
  // A command that fails is not an error of the run.
  EXPECT_TRUE(
      is_finished(lab.run({"training.steps=5", "log.alert_command=[\"no-such-program-anywhere\"]"}, alerts)));
  EXPECT_TRUE(has(lab.refusal({"log.alert_command=[\"\"]"}), "log.alert_command"));
}

}  // namespace

Contracts recovery_keys() {
  return {{"recovery.rules", rules},
          {"recovery.snapshot", snapshot},
          {"recovery.in_memory", in_memory},
          {"recovery.detection_delay", detection_delay},
          {"recovery.copies", copies},
          {"recovery.peer_copies", peer_copies},
          {"recovery.max_interventions", max_interventions},
          {"recovery.max_lost_steps", max_lost_steps},
          {"recovery.rule.when", when},
          {"recovery.rule.preset", preset},
          {"recovery.rule.threshold", threshold},
          {"recovery.rule.window", window},
          {"recovery.rule.action", action},
          {"recovery.rule.factor", factor},
          {"recovery.rule.for_steps", for_steps},
          {"log.alert_command", alert_command}};
}

}  // namespace strata::contracts
