#include "observe/run_page.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fixtures/scratch_folder.h"
#include "observe/run_history.h"

#include "base/json.h"

namespace strata::observe {
namespace {

constexpr const char* kEvil = "<script>alert('x')</script>\"&";

MetricsTable some_metrics(int64_t steps) {
  MetricsTable metrics;
  for (int64_t step = 1; step <= steps; ++step) {
    const auto s = static_cast<double>(step);
    MetricFields fields = {
        {"tokens", step * 32768},
        {"loss", 3.1 + 6 * std::exp(-s / 80) + 0.15 * std::sin(s * 12.9898) * std::cos(s * 78.233)},
        {"grad_norm", 0.4 + 4 * std::exp(-s / 50) + 0.1 * std::abs(std::sin(s * 7.7))},
        {"lr", step < 100 ? 1e-5 * s : 1e-3 * (0.55 + 0.45 * std::cos((s - 100) / 900 * M_PI))},
        {"tokens_per_s", 41000 + 900 * std::sin(s * 0.7)},
        {"mfu", 0.41 + 0.01 * std::sin(s * 0.7)},
        {"mfu_measured", 0.63 + 0.015 * std::sin(s * 0.7)},
        {"step_ms", 790 + 20 * std::sin(s * 0.7)},
        {"param_norm", 40 + 0.01 * s},
        {"time", 1.7e9 + 0.8 * s + (step > 300 ? 5000 : 0)},
        {"memory_bytes", 1.42e9}};
    if (step % 100 == 0) {
      fields.push_back({"eval/valid/loss", 3.25 + 6 * std::exp(-s / 80)});
      fields.push_back({"eval/valid/bits_per_byte", 1.25 + 2 * std::exp(-s / 80)});
    }
    metrics.add_step(step, fields);
  }
  metrics.add_event({"start", 0, {{"time", 1.7e9}}});
  metrics.add_event({"resume", 300, {{"time", 1.7e9 + 5240}}});
  return metrics;
}

RunPageData some_run(const MetricsTable& metrics) {
  RunPageData run;
  run.name = "shakespeare";
  run.updated = "2026-01-31T12:34:56Z";
  run.step = 640;
  run.total_steps = 1000;
  run.tokens = 640 * 32768.0;
  run.seconds_elapsed = 512;
  run.seconds_left = 288;
  run.memory_budget_bytes = 8e9;
  run.facts = {{"model", "llama3-29m (29.4M parameters)"},
               {"data", "corpus/*.txt, 1.1M tokens"},
               {"device", "2 cores, AVX2"},
               {"batch", "64 sequences of 512 tokens"},
               {"precision", "fp32"},
               {"latest checkpoint", "checkpoints/step-00000600"}};
  run.metrics = &metrics;
  run.step_time = {{"gemm", 830},  {"attention", 201}, {"element-wise", 92}, {"update", 41},
                   {"loss", 31.5}, {"embedding", 12},  {"data", 3.2}};
  run.memory = {{"weights", 117.6e6, 117.6e6},
                {"gradients", 117.6e6, 117.6e6},
                {"optimizer", 235e6, 235e6},
                {"activations", 920e6, 880e6},
                {"workspace", 64e6}};
  run.events = {{"12:26:24", 0, "start", "new run, seed 1234"},
                {"12:30:02", 200, "save", "checkpoints/step-00000200, 0.8 s"},
                {"12:32:51", 431, "spike", "loss 5.91 against a trailing mean of 3.42; the step was kept"},
                {"12:34:20", 600, "save", "checkpoints/step-00000600, 0.8 s"}};
  run.samples = {
      {500, "To be", "To be or not too bee"},
      {600, "", "ROMEO:\nWhat light through yonder window breaks?\nIt is the <east> & Juliet is the sun."}};
  run.go_on_command = "strata train runs/shakespeare";
  return run;
}

TEST(RunPage, NeedsNothingFromOutside) {
  const MetricsTable metrics = some_metrics(640);
  const std::string page = run_page_html(some_run(metrics));
  EXPECT_EQ(page.find("<!DOCTYPE html>"), 0u);
  for (const char* const outside :
       {"src=", "href=", "url(", "@import", "fetch(", "XMLHttpRequest", "https://"}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_NE(page.find("http-equiv=\"refresh\""), std::string::npos);
  for (const char* const part :
       {"running", "4:48", "Gradient norm", "Learning rate", "by tokens", "attention", "activations", "spike",
        "yonder", "too bee", "To be", "Newest sample", "strata train runs/shakespeare", "Parameter norm",
        "Bits per byte", "median 41.0k", "by step"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_NE(page.find("the &lt;east&gt; &amp; Juliet"), std::string::npos);
}

TEST(RunPage, ShowsRanksIfThereAreSeveral) {
  const MetricsTable metrics = some_metrics(640);
  RunPageData run = some_run(metrics);
  EXPECT_EQ(run_page_html(run).find("<h2>Ranks"), std::string::npos);
  run.ranks = {{.step = 10, .ranks = 2, .bins = {{5, 1, 1e6}, {6, 0, 1e6}}}};
  EXPECT_NE(run_page_html(run).find("<h2>Ranks"), std::string::npos);
}

TEST(RunPage, EscapesEveryTextOfTheUser) {
  MetricsTable metrics;
  metrics.add_step(1, {{"loss", 1.0}, {std::string("eval/") + kEvil + "/loss", 1.0}});
  RunPageData run;
  run.metrics = &metrics;
  run.name = run.state_text = run.updated = run.go_on_command = kEvil;
  run.samples = {{1, kEvil, kEvil}, {2, kEvil, kEvil}};
  run.facts = {{kEvil, kEvil}};
  run.step_time = {{kEvil, 1}};
  run.memory = {{kEvil, 1, 1}};
  run.events = {{kEvil, 1, kEvil, kEvil}};
  const std::string page = run_page_html(run);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("alert('x')"), std::string::npos);
}

TEST(RunPage, ShowsEveryStateOfAnEmptyRun) {
  const MetricsTable metrics;
  RunPageData run;
  run.metrics = &metrics;
  for (const auto& [state, word] : {std::pair{RunState::kRunning, "running"},
                                    {RunState::kFinished, "finished"},
                                    {RunState::kInterrupted, "interrupted"},
                                    {RunState::kFailed, "failed"}}) {
    run.state = state;
    const std::string page = run_page_html(run);
    EXPECT_NE(page.find(std::string("class=\"badge ") + word), std::string::npos);
    EXPECT_EQ(page.find("http-equiv=\"refresh\"") != std::string::npos, state == RunState::kRunning);
    EXPECT_NE(page.find("no data yet"), std::string::npos);
  }
}

TEST(RunPage, IsWrittenCompletely) {
  const ScratchFolder folder;
  const MetricsTable metrics = some_metrics(50);
  const RunPageData run = some_run(metrics);
  write_run_page(posix_file_system(), folder / "index.html", run);
  EXPECT_EQ(read_file(folder / "index.html"), run_page_html(run));
}

// The script's data is JSON, whatever the names, with step, tokens and time of each point.
TEST(RunPage, ChartsContainTheirData) {
  const MetricsTable metrics = some_metrics(640);
  const std::string page = run_page_html(some_run(metrics));
  const std::string begin = "<script type=\"application/json\">";
  size_t charts = 0;
  for (size_t at = page.find(begin); at != page.npos; at = page.find(begin, at + 1)) {
    const size_t from = at + begin.size();
    const auto json = parse_json<nlohmann::json>(page.substr(from, page.find("</script>", from) - from));
    for (const auto& line : json.at("lines")) {
      for (const char* name : {"step", "tokens", "time"})
        EXPECT_EQ(line.at(name).size(), line.at("y").size());
    }
    if (charts++ > 0) continue;
    EXPECT_EQ(json.at("title"), "Loss");
    EXPECT_EQ(json.at("lines")[0].at("step")[399], 400);
    EXPECT_EQ(json.at("lines")[0].at("tokens")[399], 400 * 32768);
    EXPECT_EQ(json.at("lines")[1].at("step"), nlohmann::json({100, 200, 300, 400, 500, 600}));
  }
  EXPECT_EQ(charts, 7u);
}

// Nothing ran between step 300 and the next start.
TEST(RunHistory, TimeBetweenStartsDoesNotCount) {
  const MetricsTable metrics = some_metrics(640);
  const std::vector<double> seconds = running_seconds(metrics);
  EXPECT_NEAR(seconds[0], 0.8, 1e-6);
  EXPECT_NEAR(seconds[299], 240, 1e-6);
  EXPECT_NEAR(seconds[300], 240.8, 1e-6);
  EXPECT_NEAR(elapsed_seconds(metrics, 1.7e9 + 5240 + 300), 540, 1e-6);
  EXPECT_TRUE(std::isnan(elapsed_seconds({}, 1.7e9)));
}

TEST(RunHistory, EventsAreSentences) {
  EXPECT_EQ(sentence_of({"save", 200, {{"seconds", 0.41}, {"bytes", int64_t{33'100'000}}, {"time", 1e9}}}),
            "checkpoint of step 200: 33.1 MB in 0.4 s");
  EXPECT_EQ(sentence_of({"changed", 3, {{"key", "optimizer.lr"}, {"before", "0.1"}, {"after", ""}}}),
            "optimizer.lr: 0.1 → unset");
  EXPECT_EQ(sentence_of({"spike", 3, {{"loss", 5.91}, {"kept", true}, {"time", 1e9}}}),
            "loss 5.91, kept true");
  EXPECT_EQ(time_text({"save", 1, {{"time", 1769862896.7}}}), "2026-01-31 12:34:56");
  EXPECT_EQ(time_text({"save", 1, {}}), "");
}

}  // namespace
}  // namespace strata::observe
