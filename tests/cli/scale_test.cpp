// `strata scale fit` on the folders of runs.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "fixtures/cli_fixture.h"

namespace strata {
namespace {

class ScaleFitTest : public CliTest {
 protected:
  static double loss_of(double params, double tokens) {
    return 1.7 + 400 / std::pow(params, 0.34) + 400 / std::pow(tokens, 0.28);
  }

  // A run of 100 steps whose training loss falls to `loss` and stays there for the last steps.
  void write_run(const std::string& name, double params, double tokens, bool held_out, bool finished) {
    std::filesystem::create_directories(folder_ / name);
    std::string lines = fmt::format("{{\"event\":\"start\",\"at_step\":0,\"time\":1,\"parameters\":{}}}\n",
                                    static_cast<int64_t>(params));
    const double loss = loss_of(params, tokens);
    for (int step = 1; step <= 100; ++step) {
      lines += fmt::format("{{\"step\":{},\"tokens\":{},\"time\":{},\"loss\":{}", step,
                           static_cast<int64_t>(tokens * step / 100), step + 1, step > 80 ? loss : loss + 1);
      // Held-out losses are higher by a tenth.
      if (held_out && step % 50 == 0)
        lines += fmt::format(",\"eval/valid/loss\":{}", step == 50 ? 9 : loss + 0.1);
      lines += "}\n";
    }
    if (finished) lines += "{\"event\":\"finish\",\"at_step\":100,\"time\":102}\n";
    write(name + "/metrics.jsonl", lines);
  }

  void write_runs(bool last_has_held_out, bool last_finished = true) {
    int i = 0;
    for (const double params : {1e6, 4e6, 16e6}) {
      for (const double tokens : {1e7, 4e7, 16e7}) {
        ++i;
        write_run(fmt::format("runs/r{}", i), params, tokens, i < 9 || last_has_held_out,
                  i < 9 || last_finished);
      }
    }
  }

  nlohmann::json fit(const std::string& arguments) {
    const Outcome outcome = run("scale fit " + arguments + " --json");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return parse_json<nlohmann::json>(outcome.out);
  }
};

TEST_F(ScaleFitTest, UsesTheHeldOutLossThatAllRunsHave) {
  write_runs(true);
  const auto found = fit("runs/r*");
  EXPECT_EQ(found["runs"], 9);
  EXPECT_TRUE(contains(found["loss"], "eval/valid/loss")) << found["loss"];
  EXPECT_NEAR(found["coefficients"]["E"]["value"].get<double>(), 1.8, 0.02);
  EXPECT_NEAR(found["coefficients"]["alpha"]["value"].get<double>(), 0.34, 0.01);
  EXPECT_TRUE(found["notes"].empty()) << found["notes"];
  EXPECT_TRUE(found.contains("envelope"));
  // By name, in runs/.
  EXPECT_EQ(fit("r1 r2 r3 r4 r5 r6 r7 r8 r9")["coefficients"], found["coefficients"]);
}

TEST_F(ScaleFitTest, OtherwiseTheLastTrainingSteps) {
  write_runs(false, false);
  const auto found = fit("runs/r*");
  EXPECT_TRUE(contains(found["loss"], "mean training loss") && contains(found["loss"], "1 of 9 runs"))
      << found["loss"];
  EXPECT_NEAR(found["coefficients"]["E"]["value"].get<double>(), 1.7, 0.02);
  EXPECT_TRUE(contains(found["notes"].at(0), "1 of 9 runs have not finished")) << found["notes"];
}

// The model in the folder counts, not the number in the metrics; tables and folders may be mixed.
TEST_F(ScaleFitTest, TakesTheSizeFromTheModel) {
  write_runs(true);
  std::filesystem::create_directories(folder_ / "runs/r9/final");
  std::filesystem::copy(std::string(STRATA_TEST_MODEL) + "/config.json",
                        folder_ / "runs/r9/final/config.json");
  write("more.csv", fmt::format("params,tokens,loss\n64M,1e9,{}\n", loss_of(64e6, 1e9) + 0.1));
  ASSERT_EQ(run("scale fit runs/r* more.csv --html page.html").code, 0) << read_file(folder_ / "err");
  const std::string page = read_file(folder_ / "page.html");
  EXPECT_FALSE(contains(page, "<td class=\"text\">runs/r9</td><td>16.0M</td>"));
  EXPECT_TRUE(contains(page, "<td class=\"text\">runs/r8</td><td>16.0M</td>"));
  EXPECT_TRUE(contains(page, "<td class=\"text\">more.csv:2</td><td>64.0M</td>"));
}

TEST_F(ScaleFitTest, RejectsRunsThatCannotBeFitted) {
  write_runs(true);
  const Outcome few = run("scale fit runs/r1 runs/r2 runs/r3");
  EXPECT_EQ(few.code, 3);
  EXPECT_TRUE(contains(few.err, "found 3 runs") && contains(few.err, "at least 6")) << few.err;
  EXPECT_EQ(run("scale fit runs/r10").code, 2);
  std::filesystem::create_directories(folder_ / "runs/empty");
  write("runs/empty/metrics.jsonl", "");
  const Outcome empty = run("scale fit runs/r* runs/empty");
  EXPECT_EQ(empty.code, 3);
  EXPECT_TRUE(contains(empty.err, "no steps")) << empty.err;
  std::filesystem::remove_all(folder_ / "runs/empty");
  std::filesystem::create_directories(folder_ / "runs/nameless");
  write("runs/nameless/metrics.jsonl", "{\"step\":1,\"tokens\":10,\"time\":1,\"loss\":3}\n");
  const Outcome nameless = run("scale fit runs/r* runs/nameless");
  EXPECT_EQ(nameless.code, 3);
  EXPECT_TRUE(contains(nameless.err, "no parameter count") && nameless.out.empty()) << nameless.err;
}

}  // namespace
}  // namespace strata
