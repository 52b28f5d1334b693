// Charts of extreme ranges: a single value, neighbouring numbers, the smallest and the largest. Drawing must
// terminate, and neither throw nor write a coordinate that is not finite.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>

#include "base/json.h"
#include "fixtures/scratch_folder.h"
#include "observe/chart.h"
#include "observe/expert_section.h"
#include "observe/plot.h"
#include "observe/rank_section.h"
#include "observe/run_history.h"
#include "observe/run_page.h"

namespace strata::observe {
namespace {

constexpr double kMost = std::numeric_limits<double>::max();
constexpr double kLeast = std::numeric_limits<double>::denorm_min();
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

double later(double value, int ulps) {
  for (int i = 0; i < ulps; ++i) value = std::nextafter(value, kInfinite);
  return value;
}

// Ends of ranges: a few ulp wide at every magnitude, and across magnitudes.
std::vector<std::pair<double, double>> odd_ranges() {
  std::vector<std::pair<double, double>> ranges{
      {0, 0},           {0, kLeast},      {-kLeast, kLeast}, {0, kMost},           {-kMost, kMost},
      {kMost, kMost},   {-kMost, -kMost}, {-kInfinite, 1},   {1, kInfinite},       {kNoNumber, 1},
      {1, kNoNumber},   {2, 1},           {1e308, kMost},    {0x1p53, 0x1p53 + 2}, {1e16, 1e16},
      {kLeast, 1e-320}, {1e-3, 1e300}};
  for (int exponent = -1074; exponent < 1024; exponent += 7) {
    for (const double base : {std::ldexp(1.0, exponent), 1.1 * std::ldexp(1.0, exponent)}) {
      for (const int ulps : {0, 1, 2, 3, 8, 100}) {
        ranges.emplace_back(base, later(base, ulps));
        ranges.emplace_back(-later(base, ulps), -base);
      }
    }
  }
  return ranges;
}

TEST(OddNumbers, TicksAreFewAndAscendInEveryRange) {
  for (const auto& [low, high] : odd_ranges()) {
    for (const int about : {0, 2, 5, 12}) {
      const std::vector<double> ticks = nice_ticks(low, high, about);
      ASSERT_GE(ticks.size(), 1U) << low << " " << high;
      ASSERT_LE(ticks.size(), 30U) << low << " " << high;
      for (size_t i = 1; i < ticks.size(); ++i) ASSERT_LT(ticks[i - 1], ticks[i]);
      const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : high - low;
      for (const double tick : ticks) ASSERT_FALSE(tick_label(tick, step).empty());
    }
  }
}

void expect_drawn(const std::string& svg, const std::string& what) {
  for (const char* part : {"nan", "inf\"", "inf ", "-inf"})
    ASSERT_EQ(svg.find(part), std::string::npos) << what << ": " << part;
}

TEST(OddNumbers, DrawsChartsOfEveryRange) {
  for (const auto& [low, high] : odd_ranges()) {
    const std::string what = std::to_string(low) + " to " + std::to_string(high);
    for (const bool from_zero : {false, true}) {
      Chart chart{.title = "t", .x_label = "step", .lines = {{"a", {1, 2, 3}, {low, high, low}}}};
      chart.from_zero = from_zero;
      expect_drawn(draw_chart(chart, true), what);
      chart.lines[0] = {"a", {low, high}, {1, 2}, 0, ChartLine::Look::kDots};
      expect_drawn(draw_chart(chart, true), what);
    }
  }
}

MetricsTable metrics_of(double low, double high) {
  MetricsTable metrics;
  for (int64_t step = 1; step <= 30; ++step) {
    const double value = step % 2 == 0 ? low : high;
    MetricFields fields;
    for (const char* name : {"tokens",
                             "time",
                             "loss",
                             "grad_norm",
                             "lr",
                             "tokens_per_s",
                             "mfu",
                             "mfu_measured",
                             "step_ms",
                             "param_norm",
                             "memory_bytes",
                             "eval/valid/loss",
                             "eval/valid/acc",
                             "eval/valid/bits_per_byte",
                             "expert_max_vio",
                             "expert_entropy",
                             "router_z",
                             "slowest_rank",
                             "step_ms_min",
                             "step_ms_max"})
      fields.push_back({name, value});
    metrics.add_step(step, fields);
    metrics.add_event({"start", step, {{"time", value}, {"seconds", value}, {"bytes", value}}});
    metrics.add_event({"save", step, {{"time", value}, {"seconds", value}, {"bytes", value}}});
  }
  return metrics;
}

std::string page_of(const MetricsTable& metrics) {
  RunPageData run;
  run.name = "odd";
  run.step = run.total_steps = 30;
  run.metrics = &metrics;
  run.tokens = metrics.last("tokens");
  run.seconds_elapsed = elapsed_seconds(metrics, metrics.last("time"));
  run.seconds_left = run.memory_budget_bytes = metrics.last("loss");
  run.step_time = {{"a", metrics.last("loss")}, {"b", 1}};
  run.memory = {{"a", 1, metrics.last("loss")}};
  for (const MetricsEvent& event : metrics.events())
    run.events.push_back({time_text(event), event.at_step, event.event, sentence_of(event)});
  RankSample sample{.step = 1, .ranks = 2, .bins = {}};
  for (const double value : {metrics.column("loss")[0], metrics.column("loss")[1]})
    sample.bins.push_back({value, value, value});
  run.ranks = {sample, sample};
  return run_page_html(run);
}

// Pages for some ranges, including the extreme ones.
std::vector<std::string> some_pages() {
  std::vector<std::string> pages;
  const auto ranges = odd_ranges();
  for (size_t i = 0; i < ranges.size(); i += i < 20 ? 1 : 37)
    pages.push_back(page_of(metrics_of(ranges[i].first, ranges[i].second)));
  return pages;
}

TEST(OddNumbers, WritesPages) {
  for (const std::string& page : some_pages()) EXPECT_NE(page.find("</html>"), std::string::npos);
}

TEST(OddNumbers, OmitsTimesOutsideTheCalendar) {
  for (const double time : {kNoNumber, kInfinite, -kInfinite, -1.0, 1e12, 1e19, 1e300, -1e300, kMost})
    EXPECT_EQ(time_text({"save", 1, {{"time", time}}}), "") << time;
  EXPECT_EQ(time_text({"save", 1, {{"time", 0.0}}}), "1970-01-01 00:00:00");
  EXPECT_EQ(time_text({"save", 1, {{"time", 253'402'300'799.5}}}), "9999-12-31 23:59:59");
}

// A stub of the browser objects that the page's script uses.
constexpr const char* kBrowser = R"js(
const element = () => ({style: {}, classList: {add() {}}, clientWidth: 700, innerHTML: '', textContent: '',
  append() {}, addEventListener() {}, setAttribute() {}, querySelector: () => element(),
  getBoundingClientRect: () => ({left: 0, top: 0, width: 700})});
const views = [];
const hosts = texts.map(text => Object.assign(element(), {firstElementChild: {textContent: text},
  append(view) { views.push(view); }}));
const document = {documentElement: element(), createElement: element, querySelector: () => element(),
  querySelectorAll: () => hosts};
const location = {pathname: 'x'}, scrollY = 0, scrollTo = () => {}, addEventListener = () => {};
const sessionStorage = {getItem: () => stored, setItem() {}};
)js";

// Runs the script in every state on the data of pages. Returns an empty text if it drew every chart, else its
// output.
std::string script_error(const Path& folder, const std::vector<std::string>& pages) {
  std::string program = "const pages = [];\n";
  std::string script;
  const std::string begin = "<script type=\"application/json\">", end = "</script>";
  for (const std::string& page : pages) {
    nlohmann::json texts = nlohmann::json::array();
    for (size_t at = page.find(begin); at != page.npos; at = page.find(begin, at + 1)) {
      const size_t from = at + begin.size();
      texts.push_back(page.substr(from, page.find(end, from) - from));
    }
    program += "pages.push(" + dump_json(texts) + ");\n";
    const size_t from = page.rfind("<script>") + 8;
    script = page.substr(from, page.rfind(end) - from);
  }
  program += "const show = (texts, stored) => {\n" + std::string(kBrowser) + script + R"js(
  return views.map(view => view.innerHTML);
};
let drawn = 0;
for (const texts of pages)
  for (const x of ['step', 'tokens', 'time'])
    for (const log of [false, true])
      for (const all of [false, true])
        for (const html of show(texts, JSON.stringify({x, log, all}))) {
          if (/NaN|Infinity|undefined/.test(html)) { console.log(x, log, all, html); process.exit(1); }
          drawn += html.includes('<svg') ? 1 : 0;
        }
console.log(drawn > 0 ? 'drawn' : 'nothing');
)js";
  put_file(folder / "page.js", program);
  const std::string command = "timeout 60 node " + (folder / "page.js").string() + " 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string output;
  std::array<char, 4096> part;
  for (size_t n; (n = std::fread(part.data(), 1, part.size(), pipe.get())) > 0;)
    output.append(part.data(), n);
  return output == "drawn\n" ? "" : "the script printed: " + output.substr(0, 2000);
}

TEST(OddNumbers, TheScriptDrawsEveryRange) {
  if (std::system("node --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no node here";
  const ScratchFolder folder;
  EXPECT_EQ(script_error(folder.path(), some_pages()), "");
}

}  // namespace
}  // namespace strata::observe
