// The page of `strata scale fit --html`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "observe/chart.h"
#include "observe/markup.h"
#include "observe/run_page_assets.h"
#include "plan/fit_report.h"
#include "plan/scale_report.h"

namespace strata::planning {
namespace {

using observe::Chart;
using observe::ChartLine;
using observe::escape_markup;

constexpr int kColors = 4;
constexpr size_t kPoints = 60;  // of a curve

std::vector<double> log_spaced(double low, double high, size_t count) {
  std::vector<double> out;
  for (size_t i = 0; i < count; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(count - 1);
    out.push_back(low * std::pow(high / low, part));
  }
  return out;
}

struct Extent {
  double low = INFINITY, high = 0.0;
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};
Extent extent_of(const FitReport& report, double (*value)(const RunPoint&)) {
  Extent out;
  for (const NamedRun& run : report.runs) out.add(value(run.point));
  return out;
}
double params_of(const RunPoint& run) {
  return run.params;
}
double tokens_of(const RunPoint& run) {
  return run.tokens;
}
double budget_of(const RunPoint& run) {
  return 6 * run.params * run.tokens;
}

// At most `most` of the values, evenly chosen, with the first and the last.
std::vector<double> some_of(const std::vector<double>& values, size_t most) {
  if (values.size() <= most) return values;
  std::vector<double> out;
  for (size_t i = 0; i < most; ++i) out.push_back(values[i * (values.size() - 1) / (most - 1)]);
  return out;
}

// A family of curves with the runs that belong to each, within `tolerance` of its value.
Chart family_chart(const FitReport& report, Chart chart, const std::vector<double>& values, double tolerance,
                   double (*family)(const RunPoint&), double (*x)(const RunPoint&),
                   double (*loss)(const LossLaw&, double value, double x)) {
  int color = 0;
  for (const double value : values) {
    ChartLine dots{.label = "", .x = {}, .y = {}, .color = color, .look = ChartLine::Look::kScatter};
    Extent range;
    for (const NamedRun& run : report.runs) {
      if (std::abs(std::log(family(run.point) / value)) > std::log(tolerance)) continue;
      dots.x.push_back(x(run.point));
      dots.y.push_back(run.point.loss);
      range.add(dots.x.back());
    }
    ChartLine curve{.label = value < 1e15 ? short_amount(value) : short_flops(value),
                    .x = log_spaced(range.low / 1.5, range.high * 1.5, kPoints),
                    .y = {},
                    .color = color};
    for (const double at : curve.x) curve.y.push_back(loss(report.fit.law, value, at));
    chart.lines.push_back(std::move(curve));
    chart.lines.push_back(std::move(dots));
    color = (color + 1) % kColors;
  }
  return chart;
}

// IsoFLOP profiles if the runs have budgets, else the loss by tokens of some sizes.
Chart loss_by_size(const FitReport& report) {
  Chart chart;
  chart.log_x = true;
  if (report.isoflop) {
    chart.title = "Loss by size, for equal FLOPs";
    chart.x_label = "parameters";
    std::vector<double> budgets;
    for (const IsoFlopFit::Budget& budget : report.isoflop->budgets) budgets.push_back(budget.flops);
    return family_chart(report, std::move(chart), some_of(budgets, kColors), 1.2, budget_of, params_of,
                        [](const LossLaw& law, double flops, double params) {
                          return law.loss(params, flops / (6 * params));
                        });
  }
  chart.title = "Loss by tokens, for each size";
  chart.x_label = "tokens";
  std::vector<double> sizes;
  for (const NamedRun& run : report.runs) sizes.push_back(run.point.params);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end(), [](double a, double b) { return b < 1.05 * a; }),
              sizes.end());
  return family_chart(
      report, std::move(chart), some_of(sizes, kColors), 1.05, params_of, tokens_of,
      [](const LossLaw& law, double params, double tokens) { return law.loss(params, tokens); });
}

Chart frontier(const FitReport& report) {
  Chart chart;
  chart.title = "Optimal size by compute";
  chart.x_label = "FLOPs";
  chart.log_x = chart.log_y = true;
  Extent range = extent_of(report, budget_of);
  range.add(report.optimum ? report.optimum->flops : 30 * range.high);
  ChartLine best{.label = "this fit", .x = log_spaced(range.low, range.high, 25), .y = {}};
  ChartLine low{.label = "90 %", .x = best.x, .y = {}, .color = 0, .look = ChartLine::Look::kFaint},
      high = low;
  high.label.clear();
  const AllocationLaw& published = allocation_laws().front();
  ChartLine other{.label = std::string(published.name), .x = best.x, .y = {}, .color = 1};
  for (const double flops : best.x) {
    const Interval params = allocate_flops(report.fit, flops).params;
    best.y.push_back(params.value);
    low.y.push_back(params.low);
    high.y.push_back(params.high);
    other.y.push_back(allocate_flops(published, flops).params.value);
  }
  chart.lines = {std::move(best), std::move(low), std::move(high), std::move(other)};
  const auto marks = [&](std::string label, int color) -> ChartLine& {
    return chart.lines.emplace_back(ChartLine{
        .label = std::move(label), .x = {}, .y = {}, .color = color, .look = ChartLine::Look::kScatter});
  };
  if (report.isoflop) {
    ChartLine& minima = marks("minima", 2);
    for (const IsoFlopFit::Budget& budget : report.isoflop->budgets) {
      minima.x.push_back(budget.flops);
      minima.y.push_back(budget.params);
    }
  }
  if (report.optimum) {
    ChartLine& asked = marks("asked for", 3);
    asked.x.push_back(report.optimum->flops);
    asked.y.push_back(report.optimum->params.value);
  }
  return chart;
}

Chart fitted_against_measured(const FitReport& report) {
  Chart chart;
  chart.title = "Fitted by measured loss";
  chart.x_label = "measured";
  ChartLine dots{.label = "runs", .x = {}, .y = {}, .color = 0, .look = ChartLine::Look::kScatter};
  Extent range;
  for (const NamedRun& run : report.runs) {
    const double fitted = report.fit.law.loss(run.point.params, run.point.tokens);
    dots.x.push_back(run.point.loss);
    dots.y.push_back(fitted);
    range.add(run.point.loss);
    range.add(fitted);
  }
  chart.lines.push_back(
      {.label = "equal", .x = {range.low, range.high}, .y = {range.low, range.high}, .color = 1});
  chart.lines.push_back(std::move(dots));
  return chart;
}

std::string card(const std::string& content, bool wide = false) {
  return fmt::format("<section class=\"card{}\">{}</section>\n", wide ? " wide" : "", content);
}

std::string plot(const Chart& chart) {
  return fmt::format("<section class=\"card plot\">{}</section>\n", observe::draw_chart(chart, false));
}

std::string coefficient_table(const FitReport& report) {
  const LawFit& fit = report.fit;
  std::string rows = "<tr><th></th><th>value</th><th>90 %</th></tr>\n";
  const auto row = [&](std::string_view name, const Interval& interval) {
    rows += fmt::format("<tr><th>{}</th><td>{:.4g}</td><td>{:.4g} to {:.4g}</td></tr>\n", name,
                        interval.value, interval.low, interval.high);
  };
  row("E", fit.e);
  row("A", fit.a);
  row("B", fit.b);
  row("alpha", fit.alpha);
  row("beta", fit.beta);
  row("N ~ C^", fit.params_exponent);
  if (report.optimum) {
    const Allocation& best = *report.optimum;
    const auto amounts = [&](std::string_view name, const Interval& interval) {
      rows += fmt::format("<tr><th>{} at {} FLOPs</th><td>{}</td><td>{} to {}</td></tr>\n", name,
                          short_flops(best.flops), short_amount(interval.value), short_amount(interval.low),
                          short_amount(interval.high));
    };
    amounts("parameters", best.params);
    amounts("tokens", best.tokens);
  }
  return card("<h2>Coefficients</h2><table>" + rows + "</table>");
}

std::string run_table(const FitReport& report) {
  std::string rows =
      "<tr><th>run</th><th>parameters</th><th>tokens</th><th>loss</th><th>fitted</th><th>off by</th></tr>\n";
  for (const NamedRun& run : report.runs) {
    const double fitted = report.fit.law.loss(run.point.params, run.point.tokens);
    rows += fmt::format(
        "<tr><td class=\"text\">{}</td><td>{}</td><td>{}</td><td>{:.4f}</td><td>{:.4f}</td>"
        "<td>{:+.2f} %</td></tr>\n",
        escape_markup(run.name), short_amount(run.point.params), short_amount(run.point.tokens),
        run.point.loss, fitted, 100 * (run.point.loss / fitted - 1));
  }
  return card("<h2>Runs</h2><div class=\"scroll\"><table>" + rows + "</table></div>", true);
}

std::string notes_card(const FitReport& report) {
  if (report.notes.empty()) return "";
  std::string out = "<h2>Notes</h2>";
  for (const std::string& note : report.notes) out += "<p class=\"small\">" + escape_markup(note) + "</p>\n";
  return card(out, true);
}

}  // namespace

std::string fit_page(const FitReport& report) {
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<title>Scaling law of these runs</title>\n<style>";
  out += observe::chart_style() + observe::kPageStyle + "</style></head>\n<body><main>\n";
  out += fmt::format(
      "<header><h1>Scaling law of {} runs</h1></header>\n<p>{}</p>\n<p class=\"muted small\">N parameters, D tokens, "
      "L nats per token; {}; scatter {:.2g} % of the loss</p>\n",
      report.runs.size(), equation_of(report.fit.law), escape_markup(report.loss_name),
      100 * report.fit.residual);
  out += "<div class=\"grid\">\n" + plot(loss_by_size(report)) + plot(frontier(report)) +
         plot(fitted_against_measured(report)) + coefficient_table(report) + notes_card(report) +
         run_table(report);
  return out + "</div>\n</main></body></html>\n";
}

}  // namespace strata::planning
