#include "plan/fit_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/suggest.h"
#include "plan/amount.h"
#include "plan/csv.h"
#include "plan/scale_report.h"

namespace strata::planning {
namespace {

using FitJson = nlohmann::ordered_json;

struct Coefficient {
  std::string_view name;
  const Interval& interval;
};
std::vector<Coefficient> coefficients(const LawFit& fit) {
  return {{"E", fit.e},         {"A", fit.a},       {"B", fit.b},
          {"alpha", fit.alpha}, {"beta", fit.beta}, {"params_exponent", fit.params_exponent}};
}

double run_flops(const RunPoint& run) {
  return 6 * run.params * run.tokens;
}

void add_notes(FitReport& report) {
  const LawFit& fit = report.fit;
  if (!fit.converged)
    report.notes.emplace_back("the search stopped before it converged; treat the fit as rough");
  for (const auto& [name, interval, more] :
       {std::tuple{"alpha", &fit.alpha, "sizes"}, std::tuple{"beta", &fit.beta, "token counts"}}) {
    if (!(interval->high > 2 * interval->low)) continue;
    report.notes.push_back(
        fmt::format("the runs hardly determine {}, {:.3g} to {:.3g}; add runs with other {}", name,
                    interval->low, interval->high, more));
  }
  if (!report.optimum) return;
  double largest = 0.0;
  for (const NamedRun& run : report.runs) largest = std::max(largest, run_flops(run.point));
  const double decades = std::log10(report.optimum->flops / largest);
  if (decades > 0.5) {
    report.notes.push_back(fmt::format("{:.1f} decades of compute beyond the largest run ({} FLOPs)", decades,
                                       short_flops(largest)));
  }
}

// The index of a column of a header; a name that is near counts as a mistake, not as another column.
std::optional<size_t> column_of(const CsvRow& header, std::string_view wanted) {
  for (size_t i = 0; i < header.size(); ++i) {
    if (header[i].text == wanted) return i;
  }
  return std::nullopt;
}

// The message without its prefix in brackets, because another fit succeeded.
std::string as_remark(const DataError& error) {
  std::string text = error.what();
  if (const size_t end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
  return text;
}

double cell_amount(const CsvCell& cell, std::string_view column, const std::string& name) {
  try {
    return parse_count(column, cell.text);
  } catch (const ConfigError&) {
    throw DataError("[{}:{}:{}] {}: found \"{}\", expected a number above 0 such as 7B or 2.31", name,
                    cell.line, cell.column, column, cell.text);
  }
}

}  // namespace

FitReport report_fit(std::vector<NamedRun> runs, std::string loss_name, std::optional<double> flops,
                     std::span<const RunCurve> curves, const FitOptions& options) {
  FitReport out;
  std::vector<RunPoint> points;
  for (const NamedRun& run : runs) points.push_back(run.point);
  out.fit = fit_loss_law(points, options);
  out.runs = std::move(runs);
  out.loss_name = std::move(loss_name);
  try {
    out.isoflop = fit_isoflop(points);
  } catch (const DataError& error) {
    out.no_isoflop = as_remark(error);
  }
  try {
    if (!curves.empty()) out.envelope = fit_envelope(curves);
  } catch (const DataError& error) {
    out.no_envelope = as_remark(error);
  }
  if (flops) out.optimum = allocate_flops(out.fit, *flops);
  add_notes(out);
  return out;
}

std::vector<NamedRun> parse_run_points(std::string_view text, const std::string& name) {
  const std::vector<CsvRow> rows = parse_csv(text, name);
  if (rows.empty())
    throw DataError("[{}] found an empty table, expected the columns params, tokens and loss", name);
  constexpr std::string_view kColumns[] = {"params", "tokens", "loss"};
  size_t at[3] = {};
  std::vector<std::string> header;
  for (const CsvCell& cell : rows.front()) header.push_back(cell.text);
  for (size_t k = 0; k < 3; ++k) {
    const auto found = column_of(rows.front(), kColumns[k]);
    if (!found) {
      const auto nearest = nearest_name(kColumns[k], header);
      throw DataError("[{}:1] found no column {}, expected params, tokens and loss{}", name, kColumns[k],
                      nearest ? fmt::format("; rename \"{}\"?", *nearest) : "");
    }
    at[k] = *found;
  }
  const auto names = column_of(rows.front(), "name");
  std::vector<NamedRun> out;
  for (size_t i = 1; i < rows.size(); ++i) {
    const CsvRow& row = rows[i];
    const auto amount = [&](size_t k) { return cell_amount(row[at[k]], kColumns[k], name); };
    out.push_back({names ? row[*names].text : fmt::format("{}:{}", name, row.front().line),
                   {.params = amount(0), .tokens = amount(1), .loss = amount(2)}});
  }
  return out;
}

std::string to_text(const FitReport& report) {
  const LawFit& fit = report.fit;
  const auto by = [](double RunPoint::*member) {
    return [member](const NamedRun& a, const NamedRun& b) { return a.point.*member < b.point.*member; };
  };
  const auto [small, large] =
      std::minmax_element(report.runs.begin(), report.runs.end(), by(&RunPoint::params));
  const auto [brief, extended] =
      std::minmax_element(report.runs.begin(), report.runs.end(), by(&RunPoint::tokens));
  std::string text;
  const auto row = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{:<16}{}\n", name, value);
  };
  row("runs", fmt::format("{}: {} to {} parameters, {} to {} tokens", report.runs.size(),
                          short_amount(small->point.params), short_amount(large->point.params),
                          short_amount(brief->point.tokens), short_amount(extended->point.tokens)));
  row("loss", report.loss_name);
  row("law", equation_of(fit.law));
  for (const auto& [name, interval] : coefficients(fit)) {
    row(name == "params_exponent" ? "N ~ C^" : name,
        fmt::format("{:<10.4g}90 %: {:.4g} to {:.4g}", interval.value, interval.low, interval.high));
  }
  row("scatter",
      fmt::format("{:.2g} % of the loss; Huber from {:.2g} %", 100 * fit.residual, 100 * fit.huber_delta));
  if (report.isoflop) {
    row("IsoFLOP", fmt::format("N ~ C^{:.3f}, D ~ C^{:.3f} from the minima of {} budgets",
                               report.isoflop->params.exponent, report.isoflop->tokens.exponent,
                               report.isoflop->budgets.size()));
  } else {
    row("IsoFLOP", "none: " + report.no_isoflop);
  }
  if (report.envelope) {
    row("envelope", fmt::format("N ~ C^{:.3f} from training curves, {} sizes, {} to {} FLOPs",
                                report.envelope->params.exponent, report.envelope->sizes,
                                short_flops(report.envelope->low), short_flops(report.envelope->high)));
  } else if (!report.no_envelope.empty()) {
    row("envelope", "none: " + report.no_envelope);
  }
  if (const auto& best = report.optimum) {
    row("optimum", fmt::format("at {} FLOPs, loss {:.4f}", short_flops(best->flops), *best->loss));
    for (const auto& [name, interval] :
         {std::pair{"parameters", best->params}, std::pair{"tokens", best->tokens}}) {
      row(name, fmt::format("{}  (90 %: {} to {})", short_amount(interval.value), short_amount(interval.low),
                            short_amount(interval.high)));
    }
  }
  for (const std::string& note : report.notes) row("note", note);
  return text;
}

nlohmann::ordered_json json_of(const FitReport& report) {
  const auto interval_json = [](const Interval& interval) {
    return FitJson{{"value", json_number_or_null(interval.value)},
                   {"low", json_number_or_null(interval.low)},
                   {"high", json_number_or_null(interval.high)}};
  };
  FitJson out{{"law", "chinchilla"}, {"coefficients", FitJson::object()}};
  for (const auto& [name, interval] : coefficients(report.fit))
    out["coefficients"][std::string(name)] = interval_json(interval);
  out["runs"] = report.runs.size();
  out["loss"] = report.loss_name;
  out["residual"] = report.fit.residual;
  out["huber_delta"] = report.fit.huber_delta;
  out["converged"] = report.fit.converged;
  out["isoflop"] = nullptr;
  if (report.isoflop) {
    out["isoflop"] = {{"params_exponent", report.isoflop->params.exponent},
                      {"params_scale", report.isoflop->params.scale},
                      {"tokens_exponent", report.isoflop->tokens.exponent},
                      {"tokens_scale", report.isoflop->tokens.scale},
                      {"budgets", FitJson::array()}};
    for (const IsoFlopFit::Budget& budget : report.isoflop->budgets) {
      out["isoflop"]["budgets"].push_back(
          {{"flops", budget.flops}, {"params", budget.params}, {"loss", budget.loss}});
    }
  }
  out["envelope"] = nullptr;
  if (report.envelope) {
    out["envelope"] = {{"params_exponent", report.envelope->params.exponent},
                       {"params_scale", report.envelope->params.scale},
                       {"sizes", report.envelope->sizes},
                       {"flops_low", report.envelope->low},
                       {"flops_high", report.envelope->high}};
  }
  out["optimum"] = nullptr;
  if (report.optimum) {
    out["optimum"] = {{"flops", report.optimum->flops},
                      {"params", interval_json(report.optimum->params)},
                      {"tokens", interval_json(report.optimum->tokens)},
                      {"loss", *report.optimum->loss}};
  }
  out["notes"] = report.notes;
  return out;
}

}  // namespace strata::planning
