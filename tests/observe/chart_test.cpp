#include "observe/chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "fixtures/scratch_folder.h"
#include "observe/markup.h"
#include "observe/plot.h"

namespace strata::observe {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

TEST(Chart, TicksAreRoundAndInside) {
  EXPECT_EQ(nice_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(nice_ticks(-1, 1, 4), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  for (const auto& [low, high] : {std::pair{2.9, 11.2}, {1e-5, 3e-4}, {-7e8, 2e9}, {0.999, 1.001}}) {
    const std::vector<double> ticks = nice_ticks(low, high, 5);
    ASSERT_GE(ticks.size(), 2u);
    ASSERT_LE(ticks.size(), 11u);
    EXPECT_GE(ticks.front(), low - 1e-12);
    EXPECT_LE(ticks.back(), high * (1 + 1e-9));
  }
  EXPECT_EQ(nice_ticks(3, 3, 5).size(), 1u);
}

TEST(Chart, TickLabelsHaveTheDecimalsThatTheStepNeeds) {
  EXPECT_EQ(tick_label(0, 1), "0");
  EXPECT_EQ(tick_label(2.5, 0.5), "2.5");
  EXPECT_EQ(tick_label(3, 1), "3");
  EXPECT_EQ(tick_label(0.25, 0.05), "0.25");
  EXPECT_EQ(tick_label(1200, 200), "1200");
  EXPECT_EQ(tick_label(20000, 5000), "20k");
  EXPECT_EQ(tick_label(1.5e9, 5e8), "1.5B");
  EXPECT_EQ(tick_label(3e-4, 1e-4), "3e-4");
  EXPECT_EQ(tick_label(2.5e-4, 5e-5), "2.5e-4");
  EXPECT_EQ(tick_label(1e-3, 5e-4), "1e-3");
  EXPECT_EQ(tick_label(3.0005, 5e-4), "3.0005");
  EXPECT_EQ(tick_label(-4, 2), "-4");
}

TEST(Chart, LogarithmicTicks) {
  EXPECT_EQ(log_ticks(1, 1000, 5), (std::vector<double>{1, 10, 100, 1000}));
  EXPECT_EQ(log_ticks(15, 600, 5), (std::vector<double>{20, 50, 100, 200, 500}));
  EXPECT_LE(log_ticks(1e-3, 1e20, 6).size(), 7u);
  EXPECT_GE(log_ticks(2, 3, 5).size(), 2u) << "within one decade";
  EXPECT_EQ(log_ticks(0, 3, 5).size(), 1u);
  EXPECT_EQ(log_tick_label(2e8), "200M");
  EXPECT_EQ(log_tick_label(1e9), "1B");
  EXPECT_EQ(log_tick_label(5e20), "5e20");
  EXPECT_EQ(log_tick_label(2.5), "2.5");
  EXPECT_EQ(log_tick_label(0.02), "0.02");
}

// Powers of ten are equally far apart; points that have no logarithm are gaps.
TEST(Chart, LogarithmicAxes) {
  Chart chart;
  chart.lines.push_back(
      {.label = "", .x = {0, 1, 10, 100}, .y = {5, 1, 10, 100}, .look = ChartLine::Look::kScatter});
  chart.log_x = chart.log_y = true;
  const std::string svg = draw_chart(chart, false);
  EXPECT_EQ(count(svg, "<circle"), 3u);
  EXPECT_EQ(count(svg, "<path class=\"faint\""), 0u) << "scattered dots are not joined";
  std::vector<double> at;
  for (size_t found = svg.find(" cx=\""); found != std::string::npos; found = svg.find(" cx=\"", found + 1))
    at.push_back(std::stod(svg.substr(found + 5)));
  ASSERT_EQ(at.size(), 3u);
  EXPECT_NEAR(at[1] - at[0], at[2] - at[1], 0.11);
}

TEST(Chart, SmoothingIgnoresAndKeepsGaps) {
  const std::vector<double> values = {1, 2, NAN, 4, 5};
  const std::vector<double> means = smoothed(values, 3);
  EXPECT_EQ(means[0], 1.5);
  EXPECT_EQ(means[1], 1.5);
  EXPECT_TRUE(std::isnan(means[2]));
  EXPECT_EQ(means[3], 4.5);
  EXPECT_EQ(means[4], 4.5);  // not the last value
  const std::vector<double> flat(1000, 2.5);
  for (const double mean : smoothed(flat, 101)) EXPECT_DOUBLE_EQ(mean, 2.5);
}

TEST(Chart, ThinningKeepsExtremesAndGaps) {
  std::vector<double> x, y;
  for (int i = 0; i < 100000; ++i) {
    x.push_back(i);
    y.push_back(i == 12345 ? 100 : i == 54321 ? -100 : i >= 70000 && i < 80000 ? NAN : std::sin(i * 0.01));
  }
  downsample(x, y, 2000);
  EXPECT_LE(x.size(), 2000u);
  EXPECT_EQ(x.size(), y.size());
  EXPECT_TRUE(std::is_sorted(x.begin(), x.end()));
  EXPECT_NE(std::find(y.begin(), y.end(), 100), y.end());
  EXPECT_NE(std::find(y.begin(), y.end(), -100), y.end());
  EXPECT_TRUE(std::any_of(y.begin(), y.end(), [](double v) { return std::isnan(v); }));
}

TEST(Chart, GapsBreakTheLineAndOddDataIsDrawn) {
  Chart chart{.title = "t", .x_label = "step", .lines = {{"a", {1, 2, 3, 4}, {1, NAN, 3, INFINITY}}}};
  const std::string svg = draw_chart(chart, true);
  const size_t line = svg.find("class=\"line\" data-label=\"a\"");
  ASSERT_NE(line, std::string::npos);
  EXPECT_EQ(count(svg.substr(line, svg.find("/>", line) - line), "M"), 2u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  for (const auto& values : {std::vector<double>{}, {NAN, NAN}, {5}, {5, 5}, {0, 0}}) {
    std::vector<double> xs(values.size());
    for (size_t i = 0; i < xs.size(); ++i) xs[i] = static_cast<double>(i);
    const bool drawn = std::any_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
    const std::string odd =
        draw_chart({.title = "t", .x_label = "step", .lines = {{"a", xs, values}}}, false);
    EXPECT_EQ(odd.find("no data yet") == std::string::npos, drawn);
    EXPECT_EQ(odd.find("nan"), std::string::npos) << odd;
  }
}

TEST(Markup, EscapesTextForHtmlAndXml) {
  EXPECT_EQ(escape_markup("<a href=\"x\">'&'</a>"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(escape_markup("é € 😀\n\t"), "é € 😀\n\t");
  EXPECT_EQ(escape_markup(std::string("\x00\x1b", 2)), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(escape_markup("\xff\xc3"), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(escape_markup("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // a surrogate
  EXPECT_EQ(escape_markup("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");                  // overlong
}

TEST(Plot, LossSvgIsOneDocumentWithTrainingAndEvaluation) {
  const ScratchFolder folder;
  MetricsTable metrics;
  for (int64_t step = 1; step <= 300; ++step) {
    MetricFields fields = {{"loss", 3 + 6 * std::exp(-static_cast<double>(step) / 60)}};
    if (step % 50 == 0)
      fields.push_back({"eval/valid/loss", 3.2 + 6 * std::exp(-static_cast<double>(step) / 60)});
    metrics.add_step(step, fields);
  }
  write_loss_svg(posix_file_system(), folder / "loss.svg", metrics, "a <run> & more");
  const std::string svg = read_file(folder / "loss.svg");
  EXPECT_EQ(svg.find("<svg xmlns=\"http://www.w3.org/2000/svg\""), 0u);
  EXPECT_EQ(count(svg, "<svg"), count(svg, "</svg>"));
  EXPECT_EQ(count(svg, "class=\"dot\""), 6u);
  EXPECT_NE(svg.find(">training</text>"), std::string::npos);
  EXPECT_NE(svg.find(">valid</text>"), std::string::npos);
  EXPECT_NE(svg.find("a &lt;run&gt; &amp; more"), std::string::npos);
  EXPECT_EQ(svg.find("href"), std::string::npos);
}

// The range of a chart's axes: "x x y y".
double shown_up_to(const Chart& chart) {
  const std::string svg = draw_chart(chart, false);
  const std::string name = "data-range=\"";
  std::istringstream range(svg.substr(svg.find(name) + name.size()));
  double x0 = 0, x1 = 0, y0 = 0, y1 = 0;
  range >> x0 >> x1 >> y0 >> y1;
  return y1;
}

TEST(Chart, ASpikeDoesNotSquashTheRest) {
  Chart chart{.title = "t", .x_label = "step", .lines = {{"", {}, {}, 0}}};
  for (int i = 0; i < 400; ++i) {
    chart.lines[0].x.push_back(i);
    chart.lines[0].y.push_back(i == 250 || i == 251 ? 1e6 : 3 + std::sin(i));
  }
  EXPECT_LT(shown_up_to(chart), 5);
  // Lasting values are shown.
  for (size_t i = 300; i < 360; ++i) chart.lines[0].y[i] = 9;
  EXPECT_GT(shown_up_to(chart), 9);
  EXPECT_LT(shown_up_to(chart), 10);
}

TEST(Plot, LongRunsGiveSmallFiles) {
  MetricsTable metrics;
  for (int64_t step = 1; step <= 200000; ++step)
    metrics.add_step(step, {{"loss", 2 + 1.0 / static_cast<double>(step)}});
  EXPECT_LT(draw_chart(loss_chart(metrics, "step", "t"), true).size(), 100000u);
}

}  // namespace
}  // namespace strata::observe
