#include "observe/live_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/json.h"
#include "observe/chart.h"
#include "observe/markup.h"
#include "observe/run_history.h"

namespace strata::observe {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPoints = 1500;

// Six digits are more than a screen can show.
Json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  // Not stod, which throws for subnormal numbers; the largest ones may round to infinity.
  const double near = std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
  return std::isfinite(near) ? near : value;
}

Json line_json(const LiveLine& line, const MetricsTable& metrics, std::span<const double> seconds) {
  const std::span<const double> column = metrics.column(line.column);
  std::vector<double> rows, values;  // rows of the table that have a number
  for (size_t i = 0; i < column.size(); ++i) {
    if (!std::isfinite(column[i])) continue;
    rows.push_back(static_cast<double>(i));
    values.push_back(column[i] * line.scale);
  }
  if (rows.empty()) return nullptr;
  downsample(rows, values, kMostPoints);
  const std::span<const double> tokens = metrics.column("tokens");
  Json step = Json::array(), token = Json::array(), time = Json::array(), y = Json::array();
  for (size_t k = 0; k < rows.size(); ++k) {
    const auto row = static_cast<size_t>(rows[k]);
    step.push_back(metrics.steps()[row]);
    token.push_back(row < tokens.size() ? rounded(tokens[row]) : Json());
    time.push_back(rounded(seconds[row]));
    y.push_back(rounded(values[k]));
  }
  static constexpr const char* kLooks[] = {"line", "noisy", "dots"};
  return {{"label", escape_markup(line.label)},
          {"color", line.color},
          {"look", kLooks[static_cast<size_t>(line.look)]},
          {"step", step},
          {"tokens", token},
          {"time", time},
          {"y", y}};
}

}  // namespace

std::string live_chart(const LiveChart& chart, const MetricsTable& metrics) {
  const std::vector<double> seconds = running_seconds(metrics);
  Json lines = Json::array();
  for (const LiveLine& line : chart.lines) {
    if (Json json = line_json(line, metrics, seconds); !json.is_null()) lines.push_back(std::move(json));
  }
  if (lines.empty()) return "";
  const Json json{{"title", escape_markup(chart.title)},
                  {"unit", chart.unit},
                  {"zero", chart.from_zero},
                  {"height", chart.height},
                  {"lines", lines}};
  // Nothing in it can close the element: labels are escaped, the rest is numbers and fixed words.
  return "<div class=\"live\"><script type=\"application/json\">" +
         dump_json(json, -1, InvalidUtf8::kReplace) + "</script></div>\n";
}

}  // namespace strata::observe
