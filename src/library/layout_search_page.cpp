// The page of strata plan --html.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "library/layout_search.h"
#include "library/step_sections.h"
#include "observe/markup.h"

namespace strata::library {
namespace {

using planning::gigabytes;
using planning::Hypothesis;
using planning::Sensitivity;
using Rows = std::vector<std::vector<std::string>>;

std::string list_of(const std::vector<std::string>& lines) {
  std::string out = "<ul>";
  for (const std::string& line : lines) out += "<li>" + observe::escape_markup(line) + "</li>";
  return out + "</ul>";
}

std::string sensitivity_section(const std::vector<Sensitivity>& all) {
  if (all.empty()) return "";
  double most = 0.01;
  for (const Sensitivity& one : all) most = std::max(most, std::abs(one.gain));
  std::string bars;
  for (const Sensitivity& one : all)
    bars += fmt::format(
        "<div class=\"row\"><span>{}</span><div class=\"meter\"><i style=\"width:{:.1f}%\"></i></div><em>{:.1f} % {}"
        "</em></div>\n",
        observe::escape_markup(one.what), 100 * std::max(0.0, one.gain) / most, 100 * std::abs(one.gain),
        one.gain >= 0 ? "less time" : "more time");
  return section({"What more of one resource would give, by formulas", bars, true});
}

}  // namespace

std::string LayoutSearch::page() const {
  const PlannedLayout& best = layouts_.front();
  const Simulation& step = *best.compiled->simulation;
  const bool tried = std::any_of(layouts_.begin(), layouts_.end(),
                                 [](const PlannedLayout& one) { return one.measured.has_value(); });
  Rows rows{{"step", "formula", "MFU", "memory", "run", "cost", "limited by", "layout"}};
  if (tried) rows.front().insert(rows.front().begin() + 1, "measured");
  for (const PlannedLayout& one : layouts_) {
    const planning::RankedLayout& formula = one.formula;
    const std::optional<double> cost = cost_of(one.seconds(), job_.devices);
    std::vector<std::string> row{
        one.compiled ? time_text(one.compiled->seconds) : "",
        time_text(formula.seconds),
        fmt::format("{:.1f} %", 100 * formula.mfu * formula.seconds / one.seconds()),
        gigabytes(one.compiled ? static_cast<double>(one.compiled->bytes) : formula.memory.total()),
        human_duration(run_seconds(one.seconds())),
        cost ? "$" + human_count(*cost) : "",
        std::string(to_string(formula.binds)),
        layout_in_words(formula.layout)};
    if (tried) row.insert(row.begin() + 1, one.measured ? time_text(*one.measured) : "");
    rows.push_back(std::move(row));
  }
  std::string out = section({"Layouts, the best first", html_table(rows), true});
  out += ranks_section(step, here_ ? job_.devices : job_.cluster.devices_per_host);
  out += time_section(step) + memory_section(step) + timeline_section(step);
  if (!here_)
    out += cost_section(run_seconds(best.seconds()) / 3600, job_.devices,
                        planning::prices_of(catalogue_, job_.cluster.chip.name));
  out += sensitivity_section(more_);
  if (!hypotheses_.empty()) {
    std::vector<std::string> lines;
    for (const Hypothesis& one : hypotheses_) lines.push_back(hypothesis_text(one));
    out += section({"What this version cannot run, by formulas", list_of(lines), true});
  }
  if (!(rejected_.empty() && found_.nearest.empty())) {
    std::vector<std::string> lines;
    for (const auto* list : {&rejected_, &found_.nearest}) {
      for (const planning::Discarded& one : *list) lines.push_back(one.layout + ": " + one.reason);
    }
    out += section({"Layouts that nearly run", list_of(lines), true});
  }
  if (!assumptions_.empty()) out += section({"Assumed, because not given", list_of(assumptions_), true});
  out += sources_section(step, here_ ? nullptr : &job_.cluster);
  out += section({"RUN.toml of the best", "<pre>" + observe::escape_markup(run_toml()) + "</pre>", true});
  return page_of(
      fmt::format("{} on {} devices", model_name_, job_.devices),
      fmt::format("{}; {} tokens in steps of {} sequences of {} tokens; {} parameters", job_.cluster.title,
                  human_count(tokens_), job_.batch, job_.sequence, human_count(parameters_)),
      out);
}

}  // namespace strata::library
