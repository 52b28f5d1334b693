#include "observe/run_page.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fixtures/scratch_folder.h"

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
        {"memory_bytes", 1.42e9}};
    if (step % 100 == 0) fields.push_back({"eval/valid/loss", 3.25 + 6 * std::exp(-s / 80)});
    metrics.add_step(step, fields);
  }
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
  run.sample_step = 600;
  run.sample_text = "ROMEO:\nWhat light through yonder window breaks?\nIt is the <east> & Juliet is the sun.";
  run.resume_command = "strata train runs/shakespeare/run.toml";
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
        "yonder", "strata train runs/shakespeare/run.toml"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_NE(page.find("the &lt;east&gt; &amp; Juliet"), std::string::npos);
}

TEST(RunPage, EscapesEveryTextOfTheUser) {
  MetricsTable metrics;
  metrics.add_step(1, {{"loss", 1.0}, {std::string("eval/") + kEvil + "/loss", 1.0}});
  RunPageData run;
  run.metrics = &metrics;
  run.name = run.state_text = run.updated = run.sample_text = run.resume_command = kEvil;
  run.facts = {{kEvil, kEvil}};
  run.step_time = {{kEvil, 1}};
  run.memory = {{kEvil, 1, 1}};
  run.events = {{kEvil, 1, kEvil, kEvil}};
  const std::string page = run_page_html(run);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("alert('x')"), std::string::npos);
}

TEST(RunPage, EveryStateStandsOnAnEmptyRun) {
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

TEST(RunPage, IsWrittenWhole) {
  const ScratchFolder folder;
  const MetricsTable metrics = some_metrics(50);
  const RunPageData run = some_run(metrics);
  write_run_page(posix_file_system(), folder / "index.html", run);
  EXPECT_EQ(read_file(folder / "index.html"), run_page_html(run));
}

}  // namespace
}  // namespace strata::observe
