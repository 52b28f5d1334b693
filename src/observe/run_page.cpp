#include "observe/run_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "observe/chart.h"
#include "observe/expert_section.h"
#include "observe/live_chart.h"
#include "observe/markup.h"
#include "observe/plot.h"
#include "observe/rank_section.h"
#include "observe/run_page_assets.h"
#include "observe/run_page_script.h"

namespace strata::observe {

std::string_view name_of(RunState state) {
  switch (state) {
    case RunState::kRunning:
      return "running";
    case RunState::kWaiting:
      return "waiting";
    case RunState::kFinished:
      return "finished";
    case RunState::kInterrupted:
      return "interrupted";
    case RunState::kFailed:
      return "failed";
  }
  return "";
}

namespace {

double progress_of(const RunPageData& run) {
  if (run.total_steps <= 0) return 0;
  return std::clamp(static_cast<double>(run.step) / static_cast<double>(run.total_steps), 0.0, 1.0);
}

std::string header(const RunPageData& run) {
  const std::string state(name_of(run.state));
  std::string out = fmt::format("<header><h1>{}</h1><span class=\"badge {}\">{}</span>",
                                escape_markup(run.name), state, state);
  if (!run.updated.empty()) {
    out += fmt::format("<span class=\"muted small\">as of {}</span>", escape_markup(run.updated));
  }
  out += "</header>\n";
  if (!run.state_text.empty()) out += "<div class=\"why\">" + escape_markup(run.state_text) + "</div>\n";
  const double percent = progress_of(run) * 100;
  return out +
         fmt::format(
             "<div class=\"bar\" role=\"progressbar\" aria-label=\"progress\" aria-valuenow=\"{0:.0f}\" "
             "aria-valuemin=\"0\" aria-valuemax=\"100\"><i style=\"width:{0:.2f}%\"></i></div>\n",
             percent);
}

double lowest(std::span<const double> values) {
  double low = RunPageData::kUnknown;
  for (const double value : values) {
    if (std::isfinite(value) && !(value >= low)) low = value;
  }
  return low;
}

double median(std::span<const double> values) {
  std::vector<double> finite;
  std::copy_if(values.begin(), values.end(), std::back_inserter(finite),
               [](double v) { return std::isfinite(v); });
  if (finite.empty()) return RunPageData::kUnknown;
  const auto middle = finite.begin() + static_cast<std::ptrdiff_t>(finite.size() / 2);
  std::nth_element(finite.begin(), middle, finite.end());
  return *middle;
}

std::string tiles(const RunPageData& run) {
  std::string out = "<section class=\"tiles\">\n";
  const auto tile = [&](const std::string& name, const std::string& value, const std::string& note = "") {
    out += fmt::format("<div class=\"card tile\"><span class=\"muted small\">{}</span><b>{}</b>{}</div>\n",
                       escape_markup(name), escape_markup(value),
                       note.empty() ? "" : "<em>" + escape_markup(note) + "</em>");
  };
  const auto known = [&](const std::string& name, double value, auto&& text) {
    if (std::isfinite(value)) tile(name, text(value));
  };
  const auto fixed4 = [](double v) { return fmt::format("{:.4f}", v); };
  const auto percent = [](double v) { return fmt::format("{:.1f}%", v * 100); };
  const MetricsTable& metrics = *run.metrics;
  // The last step's value, with the median over all steps.
  const auto with_median = [&](const std::string& name, const char* column, auto&& text) {
    const double last = metrics.last(column), usual = median(metrics.column(column));
    if (std::isfinite(last)) tile(name, text(last), "median " + text(usual));
  };
  const auto milliseconds = [](double v) {
    return v < 1e4 ? fmt::format("{:.4g} ms", v) : human_duration(v / 1e3);
  };
  tile("step", fmt::format("{} / {}", run.step, run.total_steps));
  if (run.state == RunState::kRunning) known("time left", run.seconds_left, human_duration);
  known("elapsed", run.seconds_elapsed, human_duration);
  known("loss", metrics.last("loss"), fixed4);
  for (const std::string& name : metrics.names()) {
    if (!name.starts_with("eval/") || !name.ends_with("/loss")) continue;
    known("best " + name.substr(5, name.size() - 10) + " loss", lowest(metrics.column(name)), fixed4);
  }
  for (const std::string& name : metrics.names()) {
    if (name.starts_with("eval/") && name.ends_with("/bits_per_byte"))
      known(name.substr(5, name.size() - 19) + ", bits per byte", metrics.last(name), fixed4);
  }
  for (const std::string& name : metrics.names()) {
    if (name.starts_with("eval/") && (name.ends_with("/acc") || name.ends_with("/acc_norm")))
      known(name.substr(5), metrics.last(name), percent);
  }
  known("tokens", run.tokens, human_count);
  with_median("tokens/s", "tokens_per_s", human_count);
  with_median("step time", "step_ms", milliseconds);
  with_median("MFU", "mfu", percent);
  with_median("MFU, measured", "mfu_measured", percent);
  known("memory", metrics.last("memory_bytes"), human_bytes);
  if (std::isfinite(run.goodput)) {
    std::string more;
    if (std::isfinite(run.ettr)) more = "ETTR " + percent(run.ettr);
    if (std::isfinite(run.ettr_predicted)) more += ", " + percent(run.ettr_predicted) + " predicted";
    tile("goodput", percent(run.goodput), more);
  }
  return out + "</section>\n";
}

// A chart twice: as a drawing, and as data for the script, which redraws it.
std::string card(const Chart& chart, const LiveChart& live, const MetricsTable& metrics) {
  return "<div class=\"card plot\"><div class=\"nojs\">" + draw_chart(chart, false) + "</div>" +
         live_chart(live, metrics) + "</div>\n";
}

// The loss over x, drawn once for wide and once for narrow screens; the style shows one.
std::string loss_view(const RunPageData& run, const char* x) {
  Chart chart = loss_chart(*run.metrics, x, "Loss");
  chart.width = 1160;
  chart.height = 380;
  std::string out = "<div class=\"plot on-wide\">" + draw_chart(chart, false) + "</div>";
  chart.width = 480;
  chart.height = 300;
  return out + "<div class=\"plot on-narrow\">" + draw_chart(chart, false) + "</div>";
}

// Lines for the columns "eval/NAME<suffix>".
void add_evaluations(LiveChart& chart, const MetricsTable& metrics, std::string_view suffix, double scale) {
  int color = 1;
  for (const std::string& name : metrics.names()) {
    if (!name.starts_with("eval/") || !name.ends_with(suffix)) continue;
    chart.lines.push_back({.column = name,
                           .label = name.substr(5, name.size() - 5 - suffix.size()),
                           .color = color,
                           .look = LiveLine::Look::kDots,
                           .scale = scale});
    color = color == 3 ? 1 : color + 1;
  }
}

std::string loss_card(const RunPageData& run) {
  LiveChart live{.title = "Loss", .unit = "", .lines = {}, .height = 380};
  live.lines.push_back({.column = "loss", .label = "training", .color = 0, .look = LiveLine::Look::kNoisy});
  add_evaluations(live, *run.metrics, "/loss", 1);
  return "<div class=\"card wide\"><div class=\"nojs tabs\">"
         "<input type=\"radio\" name=\"t\" id=\"t1\" checked><label for=\"t1\">by step</label>"
         "<input type=\"radio\" name=\"t\" id=\"t2\"><label for=\"t2\">by tokens</label>\n"
         "<div class=\"view v1\">" +
         loss_view(run, "step") + "</div><div class=\"view v2\">" + loss_view(run, "tokens") +
         "</div></div>\n<div class=\"controls\"></div>" + live_chart(live, *run.metrics) + "</div>\n";
}

// A chart of one column.
std::string column_card(const MetricsTable& metrics, const char* column, const std::string& title,
                        const std::string& unit, LiveLine::Look look, bool from_zero = false) {
  Chart chart = metric_chart(metrics, column, title);
  chart.from_zero = from_zero;
  const LiveChart live{.title = title,
                       .unit = unit,
                       .lines = {{.column = column, .label = "", .color = 0, .look = look}},
                       .from_zero = from_zero};
  return card(chart, live, metrics);
}

std::string mfu_card(const MetricsTable& metrics) {
  Chart chart = metric_chart(metrics, "mfu", "Model FLOPs utilisation, %");
  chart.from_zero = true;
  chart.lines[0].label = "published peak";
  chart.lines.push_back(metric_chart(metrics, "mfu_measured", "").lines[0]);
  chart.lines[1].label = "measured peak";
  chart.lines[1].color = 2;
  std::erase_if(chart.lines, [](const ChartLine& line) { return line.y.empty(); });
  for (ChartLine& line : chart.lines) {
    for (double& y : line.y) y *= 100;
  }
  using Look = LiveLine::Look;
  return card(
      chart,
      {.title = "Model FLOPs utilisation",
       .unit = "%",
       .lines = {{.column = "mfu", .label = "published peak", .color = 0, .look = Look::kNoisy, .scale = 100},
                 {.column = "mfu_measured",
                  .label = "measured peak",
                  .color = 2,
                  .look = Look::kNoisy,
                  .scale = 100}},
       .from_zero = true},
      metrics);
}

// Charts of metrics that only some runs evaluate.
std::string evaluation_cards(const MetricsTable& metrics) {
  std::string out;
  LiveChart bits{.title = "Bits per byte", .unit = "bits", .lines = {}};
  add_evaluations(bits, metrics, "/bits_per_byte", 1);
  if (!bits.lines.empty()) {
    Chart chart = metric_chart(metrics, bits.lines[0].column, "Bits per byte");
    chart.lines[0].look = ChartLine::Look::kDots;
    chart.lines[0].label = bits.lines[0].label;
    out += card(chart, bits, metrics);
  }
  const Chart tasks = task_chart(metrics);
  if (!tasks.lines.empty()) {
    LiveChart live{.title = "Tasks", .unit = "%", .lines = {}};
    add_evaluations(live, metrics, "/acc", 100);
    add_evaluations(live, metrics, "/acc_norm", 100);
    out += card(tasks, live, metrics);
  }
  return out;
}

// Charts for models with experts.
std::string expert_cards(const MetricsTable& metrics) {
  if (metrics.column("expert_max_vio").empty()) return "";
  using Look = LiveLine::Look;
  return column_card(metrics, "expert_max_vio", "Busiest expert above the mean (MaxVio, largest over layers)",
                     "", Look::kNoisy, true) +
         column_card(metrics, "expert_entropy", "Entropy of experts (1: equally busy)", "", Look::kNoisy) +
         column_card(metrics, "router_z", "Log Σ exp of router logits (RMS, largest over layers)", "",
                     Look::kNoisy) +
         column_card(metrics, "dead_experts", "Experts without tokens, over all layers", "", Look::kNoisy,
                     true) +
         column_card(metrics, "expert_dropped", "Share of token–expert pairs dropped by full experts", "",
                     Look::kNoisy, true);
}

std::string charts(const RunPageData& run) {
  const MetricsTable& metrics = *run.metrics;
  using Look = LiveLine::Look;
  return loss_card(run) + column_card(metrics, "grad_norm", "Gradient norm", "", Look::kNoisy) +
         column_card(metrics, "lr", "Learning rate", "", Look::kLine) +
         column_card(metrics, "tokens_per_s", "Tokens per second", "tokens/s", Look::kNoisy, true) +
         mfu_card(metrics) + column_card(metrics, "param_norm", "Parameter norm", "", Look::kLine) +
         evaluation_cards(metrics) + expert_cards(metrics);
}

std::string step_time(const RunPageData& run) {
  double total = 0;
  for (const TimeShare& share : run.step_time) total += share.milliseconds;
  if (!(total > 0)) return "";
  std::vector<TimeShare> shares = run.step_time;
  std::stable_sort(shares.begin(), shares.end(),
                   [](const TimeShare& a, const TimeShare& b) { return a.milliseconds > b.milliseconds; });
  std::string bar, keys;
  for (size_t i = 0; i < shares.size(); ++i) {
    const double percent = shares[i].milliseconds / total * 100;
    const std::string name = escape_markup(shares[i].name), color = share_color(i);
    bar += fmt::format("<i style=\"width:{:.3f}%;background:{}\" title=\"{} {:.1f}%\"></i>", percent, color,
                       name, percent);
    keys += fmt::format(
        "<span><i class=\"swatch\" style=\"background:{}\"></i>{}<em>{:.4g} ms &middot; "
        "{:.1f}%</em></span>\n",
        color, name, shares[i].milliseconds, percent);
  }
  return fmt::format(
      "<section class=\"card wide\"><h2>Where a step's time goes <span class=\"muted\">&middot; {:.4g} "
      "ms</span></h2>\n"
      "<div class=\"stack\">{}</div>\n<div class=\"keys\">{}</div></section>\n",
      total, bar, keys);
}

std::string memory(const RunPageData& run) {
  if (run.memory.empty()) return "";
  double scale = 0, planned = 0;
  for (const MemoryShare& share : run.memory) {
    planned += share.planned_bytes;
    scale = std::max({scale, share.planned_bytes, std::isfinite(share.used_bytes) ? share.used_bytes : 0.0});
  }
  std::string rows;
  for (const MemoryShare& share : run.memory) {
    const bool measured = std::isfinite(share.used_bytes);
    rows +=
        fmt::format("<div class=\"row\"><span>{}</span><div class=\"meter\"><u style=\"width:{:.2f}%\"></u>",
                    escape_markup(share.name), scale > 0 ? share.planned_bytes / scale * 100 : 0.0);
    if (measured)
      rows +=
          fmt::format("<i style=\"width:{:.2f}%\"></i>", scale > 0 ? share.used_bytes / scale * 100 : 0.0);
    std::string text = share.planned_bytes > 0 || !measured ? human_bytes(share.planned_bytes) : "";
    if (measured) text = human_bytes(share.used_bytes) + (text.empty() ? "" : " of " + text);
    rows += fmt::format("</div><em>{}</em></div>\n", text);
  }
  std::string total = human_bytes(planned) + " planned";
  if (std::isfinite(run.memory_budget_bytes)) total += " of " + human_bytes(run.memory_budget_bytes);
  return fmt::format(
      "<section class=\"card\"><h2>Memory <span class=\"muted\">&middot; {}</span></h2>\n{}"
      "<div class=\"muted small\">filled: used; outline: planned</div></section>\n",
      total, rows);
}

std::string facts(const RunPageData& run) {
  if (run.facts.empty()) return "";
  std::string rows;
  for (const auto& [name, value] : run.facts) {
    rows += fmt::format("<tr><th>{}</th><td class=\"text\">{}</td></tr>\n", escape_markup(name),
                        escape_markup(value));
  }
  return "<section class=\"card\"><h2>This run</h2><table>" + rows + "</table></section>\n";
}

std::string events(const RunPageData& run) {
  if (run.events.empty()) return "";
  constexpr size_t kShown = 100;
  std::string rows;
  size_t shown = 0;
  for (auto event = run.events.rbegin(); event != run.events.rend() && shown < kShown; ++event, ++shown) {
    rows += fmt::format(
        "<tr><td class=\"time\">{}</td><td>{}</td><td>{}</td><td class=\"text\">{}</td></tr>\n",
        escape_markup(event->time), event->step, escape_markup(event->kind), escape_markup(event->text));
  }
  const std::string more = run.events.size() > kShown
                               ? fmt::format(" <span class=\"muted\">&middot; the last {}</span>", kShown)
                               : "";
  return fmt::format(
      "<section class=\"card wide\"><h2>Events{}</h2><div "
      "class=\"scroll\"><table><tr><th>time</th><th>step</th>"
      "<th>event</th><th></th></tr>\n{}</table></div></section>\n",
      more, rows);
}

// All samples of the step that samples[first] belongs to.
std::string samples_of_step(const RunPageData& run, size_t first) {
  std::string out;
  for (size_t i = first; i < run.samples.size() && run.samples[i].step == run.samples[first].step; ++i) {
    const RunSample& sample = run.samples[i];
    if (!sample.prompt.empty())
      out += fmt::format("<p class=\"prompt\">{}</p>", escape_markup(sample.prompt));
    out += fmt::format("<pre>{}</pre>\n", escape_markup(sample.text));
  }
  return out;
}

std::string samples(const RunPageData& run) {
  constexpr size_t kShown = 20;  // older ones are in metrics.jsonl
  std::vector<size_t> firsts;
  for (size_t i = 0; i < run.samples.size(); ++i)
    if (i == 0 || run.samples[i].step != run.samples[i - 1].step) firsts.push_back(i);
  if (firsts.empty()) return "";
  const size_t newest = firsts.back();
  std::string out = fmt::format(
      "<section class=\"card wide\"><h2>Newest sample <span class=\"muted\">&middot; step {}</span></h2>{}",
      run.samples[newest].step, samples_of_step(run, newest));
  firsts.pop_back();
  for (size_t shown = 0; shown < kShown && !firsts.empty(); ++shown, firsts.pop_back()) {
    out += fmt::format("<details><summary>step {}</summary>{}</details>\n", run.samples[firsts.back()].step,
                       samples_of_step(run, firsts.back()));
  }
  return out + "</section>\n";
}

std::string go_on(const RunPageData& run) {
  if (run.go_on_command.empty()) return "";
  const char* const title = run.state == RunState::kFinished ? "How to extend" : "How to resume";
  return fmt::format("<section class=\"card wide\"><h2>{}</h2><pre>{}</pre></section>\n", title,
                     escape_markup(run.go_on_command));
}

}  // namespace

std::string run_page_html(const RunPageData& run) {
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n";
  if (run.state == RunState::kRunning && run.refresh_seconds > 0) {
    out += fmt::format("<meta http-equiv=\"refresh\" content=\"{}\">\n", run.refresh_seconds);
  }
  out += fmt::format("<title>{} &middot; {:.0f}% &middot; {}</title>\n", escape_markup(run.name),
                     std::floor(progress_of(run) * 100), name_of(run.state));
  out += "<style>" + chart_style() + kPageStyle + "</style></head>\n<body><main>\n";
  out += header(run) + tiles(run) + "<div class=\"grid\">\n";
  out += charts(run) + expert_section(run.experts) + rank_section(run.ranks, *run.metrics) + step_time(run) +
         memory(run) + facts(run) + samples(run) + events(run) + go_on(run);
  out += "</div>\n</main>\n<script>";
  out += kPageScript;
  return out + "</script></body></html>\n";
}

void write_run_page(FileSystem& files, const Path& path, const RunPageData& run) {
  write_file_atomically(files, path, run_page_html(run));
}

}  // namespace strata::observe
