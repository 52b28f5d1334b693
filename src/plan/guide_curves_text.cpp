#include <fmt/format.h>

#include <algorithm>

#include "plan/guide_curves.h"

namespace strata::planning {
namespace {

std::string curve_number(double value) {
  return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string_view in_words(Expected expected) {
  switch (expected) {
    case Expected::kRises:
      return "rises";
    case Expected::kFalls:
      return "falls";
    case Expected::kLevel:
      return "stays within 10 % of the first point";
    case Expected::kCrosses:
      return "rises, within a factor of 2";
    case Expected::kOrder:
      return "in the published order";
  }
  return "";
}

}  // namespace

std::string to_text(std::span<const GuideCurve> curves) {
  std::string text = "Curves, predicted by the formulas of docs/planning.md:\n";
  size_t hold = 0;
  for (const GuideCurve& curve : curves) {
    hold += curve.direction_holds ? 1 : 0;
    text += fmt::format("\n{}: {}\n  {}\n", curve.id, curve.what, curve.source);
    if (!curve.note.empty()) text += fmt::format("  {}\n", curve.note);
    text += fmt::format("{:>34}{:>12}{:>12}{:>9}\n", curve.axis, "published", "predicted", "error");
    for (const CurvePoint& point : curve.points) {
      text +=
          fmt::format("{:>34}{:>12}{:>12}{:>9}\n", point.name.empty() ? curve_number(point.x) : point.name,
                      point.published ? curve_number(*point.published) : "", curve_number(point.predicted),
                      point.error() ? fmt::format("{:+.1f} %", 100 * *point.error()) : "");
    }
    text += fmt::format("  {}: direction {}\n", in_words(curve.expected),
                        curve.direction_holds ? "holds" : "does not hold");
  }
  return text + fmt::format("\n{} curves: the direction of {} holds\n", curves.size(), hold);
}

nlohmann::ordered_json json_of(std::span<const GuideCurve> curves) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const GuideCurve& curve : curves) {
    nlohmann::ordered_json points = nlohmann::ordered_json::array();
    for (const CurvePoint& point : curve.points) {
      nlohmann::ordered_json one;
      one["x"] = point.name.empty() ? nlohmann::ordered_json(point.x) : nlohmann::ordered_json(point.name);
      one["published"] =
          point.published ? nlohmann::ordered_json(*point.published) : nlohmann::ordered_json();
      one["predicted"] = point.predicted;
      const std::optional<double> error = point.error();
      one["error"] = error ? nlohmann::ordered_json(*error) : nlohmann::ordered_json();
      points.push_back(std::move(one));
    }
    out.push_back({{"id", curve.id},
                   {"source", curve.source},
                   {"what", curve.what},
                   {"axis", curve.axis},
                   {"expected", to_string(curve.expected)},
                   {"note", curve.note},
                   {"points", std::move(points)},
                   {"direction_holds", curve.direction_holds}});
  }
  return out;
}

}  // namespace strata::planning
