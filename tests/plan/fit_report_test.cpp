// Fits of runs as text, JSON and a page.
#include "plan/fit_report.h"

#include <gtest/gtest.h>

#include <cmath>

#include <fmt/core.h>

#include "base/error.h"
#include "base/random.h"

namespace strata::planning {
namespace {

// IsoFLOP profiles of the replicated law with noise.
std::vector<NamedRun> profiles(double noise) {
  const LossLaw law = find_allocation_law("chinchilla").loss.value();
  std::vector<NamedRun> out;
  for (int budget = 0; budget < 5; ++budget) {
    const double flops = 1e18 * std::pow(10.0, 0.5 * budget), best = optimum_for_flops(law, flops).params;
    for (int size = -3; size <= 3; ++size) {
      float normal = 0.0f;
      fill_normal(&normal, 1, 1.0f, {7, 1}, budget * 7 + size + 3);
      RunPoint run{best * std::pow(1.6, size), 0.0, 0.0};
      run.tokens = flops / (6 * run.params);
      run.loss = law.loss(run.params, run.tokens) * std::exp(noise * static_cast<double>(normal));
      out.push_back({fmt::format("run <{}&{}>", budget, size), run});
    }
  }
  return out;
}

TEST(FitReport, FindsTheLawAndItsOptimum) {
  const FitReport report = report_fit(profiles(0.002), "eval/valid/loss", 1e21);
  const LossLaw law = find_allocation_law("chinchilla").loss.value();
  const auto json = json_of(report);
  EXPECT_EQ(json["law"], "chinchilla");
  for (const auto& [name, value] :
       {std::pair{"E", law.e}, {"A", law.a}, {"B", law.b}, {"alpha", law.alpha}, {"beta", law.beta}}) {
    const auto& found = json["coefficients"][name];
    EXPECT_LE(found["low"].get<double>(), found["value"].get<double>()) << name;
    EXPECT_NEAR(found["value"].get<double>() / value, 1, 0.3) << name;
  }
  EXPECT_EQ(json["runs"], 35);
  EXPECT_NEAR(json["isoflop"]["params_exponent"].get<double>(), 0.5126, 0.02);
  EXPECT_NEAR(json["optimum"]["params"]["value"].get<double>() / optimum_for_flops(law, 1e21).params, 1, 0.1);
  const std::string text = to_text(report);
  for (const char* part : {"eval/valid/loss", "alpha", "90 %:", "minima of 5 budgets", "1.0 decades"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(FitReport, WithoutBudgetsThereIsNoSecondApproach) {
  std::vector<NamedRun> runs = profiles(0.002);
  // Other budgets for each run.
  for (size_t i = 0; i < runs.size(); ++i) runs[i].point.tokens *= std::pow(1.9, static_cast<double>(i % 7));
  const LossLaw law = find_allocation_law("chinchilla").loss.value();
  for (NamedRun& run : runs) run.point.loss = law.loss(run.point.params, run.point.tokens);
  runs.resize(12);
  const FitReport report = report_fit(runs, "column loss", std::nullopt);
  EXPECT_FALSE(report.isoflop);
  EXPECT_TRUE(json_of(report)["isoflop"].is_null() && json_of(report)["optimum"].is_null());
  EXPECT_NE(to_text(report).find("IsoFLOP         none: found"), std::string::npos) << to_text(report);
  EXPECT_NE(fit_page(report).find("Loss by tokens"), std::string::npos);
}

TEST(FitReport, WarnsAboutExponentsThatTheRunsDoNotDetermine) {
  std::vector<NamedRun> runs = profiles(0.03);
  runs.resize(21);
  const FitReport report = report_fit(runs, "loss", std::nullopt);
  ASSERT_FALSE(report.notes.empty());
  EXPECT_NE(report.notes.front().find("hardly determine"), std::string::npos);
}

// Offline, escaped, balanced, with the three charts and all runs.
TEST(FitPage, IsOnePageWithThePlots) {
  const std::string page = fit_page(report_fit(profiles(0.002), "<eval>", 1e21));
  const auto count = [&](const std::string& part) {
    size_t found = 0;
    for (size_t at = page.find(part); at != std::string::npos; at = page.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("role=\"img\""), 3u);
  EXPECT_EQ(count("<svg"), count("</svg>"));
  EXPECT_EQ(count("<section"), count("</section>"));
  EXPECT_EQ(count("<table"), count("</table>"));
  EXPECT_EQ(count("src="), 0u);
  EXPECT_EQ(count("href="), 0u);
  EXPECT_EQ(count("<script"), 0u);
  EXPECT_EQ(count("run &lt;0&amp;-3&gt;"), 1u);
  EXPECT_EQ(count("<eval>"), 0u);
  EXPECT_EQ(count("nan"), 0u);
  // Four profiles of seven runs each, the minima, the budget asked for, and every run.
  EXPECT_EQ(count("<circle class=\"dot\""), 4u * 7 + 5 + 1 + 35);
}

TEST(RunPoints, OfATable) {
  const std::vector<NamedRun> runs =
      parse_run_points("loss,name,tokens,params,seed\n2.5,a,10B,1.2B,1\n2.25,b,2e10,1200M,2\n", "t.csv");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[1].name, "b");
  EXPECT_EQ(runs[0].point.params, 1.2e9);
  EXPECT_EQ(runs[1].point.tokens, 2e10);
  EXPECT_EQ(runs[1].point.loss, 2.25);
  EXPECT_EQ(parse_run_points("params,tokens,loss\n1,2,3\n", "t.csv")[0].name, "t.csv:2");
  const auto refusal = [](const char* text) {
    try {
      parse_run_points(text, "t.csv");
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal("params,token,loss\n1,2,3\n")
                .find("no column tokens, expected params, tokens and loss; rename "
                      "\"token\"?"),
            std::string::npos);
  EXPECT_NE(refusal("params,tokens,loss\n1,2,3\n1,-2,3\n").find("[t.csv:3:3] tokens: found \"-2\""),
            std::string::npos);
  EXPECT_NE(refusal("params,tokens,loss\n1,2\n"), "");
}

}  // namespace
}  // namespace strata::planning
