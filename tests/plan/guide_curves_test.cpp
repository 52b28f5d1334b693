// Curves of guides: their directions, and that the printed values are the computed ones.
#include "plan/guide_curves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace strata::planning {
namespace {

const std::vector<GuideCurve>& all_curves() {
  static const std::vector<GuideCurve> kCurves = guide_curves();
  return kCurves;
}

const GuideCurve& curve(std::string_view id) {
  const auto found = std::find_if(all_curves().begin(), all_curves().end(),
                                  [&](const GuideCurve& one) { return one.id == id; });
  if (found == all_curves().end()) throw std::out_of_range(std::string(id));
  return *found;
}

// The ones that do not hold are explained in docs/planning.md.
TEST(GuideCurves, DirectionsHold) {
  const std::set<std::string> wrong = {"batch-floor-9b", "schedules-235b", "expert-two-level"};
  for (const GuideCurve& one : all_curves())
    EXPECT_EQ(one.direction_holds, wrong.count(one.id) == 0) << one.id << " " << to_string(one.expected);
}

TEST(GuideCurves, FsdpCrossesWhereTheGuideSays) {
  for (const CurvePoint& point : curve("fsdp-sparsity").points) {
    if (!point.published) continue;
    EXPECT_LE(std::abs(std::log(point.predicted / *point.published)), std::log(2.0)) << point.x;
  }
  // ZeRO-3 wins against tensor ranks with many tokens of a device only.
  const auto& points = curve("fsdp-batch").points;
  EXPECT_LT(points.front().predicted, 1);
  EXPECT_GT(points.back().predicted, 1);
  const auto crossing =
      std::find_if(points.begin(), points.end(), [](const CurvePoint& point) { return point.predicted > 1; });
  EXPECT_GE(crossing->x, 1236 / 2);
  EXPECT_LE(crossing->x, 1236 * 2);
}

TEST(GuideCurves, TheWinnersAreThePublishedOnes) {
  EXPECT_LT(curve("zero3-against-pipeline").points.back().predicted, 1);
  for (const CurvePoint& point : curve("hierarchical").points) EXPECT_GT(point.predicted, 1);
  const auto &flat = curve("expert-flat").points, &two_level = curve("expert-two-level").points;
  ASSERT_EQ(flat.size(), two_level.size());
  for (size_t i = 1; i < flat.size(); ++i) EXPECT_LT(flat[i].predicted, two_level[i].predicted);
  const auto& schedules = curve("schedules-7b").points;
  EXPECT_EQ(
      std::max_element(schedules.begin(), schedules.end(),
                       [](const CurvePoint& a, const CurvePoint& b) { return a.predicted < b.predicted; })
          ->name,
      "zbv");
}

TEST(GuideCurves, DirectionsAreChecked) {
  const auto holds = [](Expected expected, std::vector<CurvePoint> points) {
    GuideCurve one;
    one.expected = expected;
    one.points = std::move(points);
    return direction_holds(one);
  };
  const auto point = [](double predicted, std::optional<double> published = {}) {
    CurvePoint one;
    one.published = published;
    one.predicted = predicted;
    return one;
  };
  EXPECT_TRUE(holds(Expected::kRises, {point(1), point(2), point(3)}));
  EXPECT_FALSE(holds(Expected::kRises, {point(1), point(3), point(2)}));
  EXPECT_TRUE(holds(Expected::kFalls, {point(2), point(1)}));
  EXPECT_FALSE(holds(Expected::kFalls, {point(2), point(2)}));
  EXPECT_TRUE(holds(Expected::kLevel, {point(1), point(1.09), point(0.91)}));
  EXPECT_FALSE(holds(Expected::kLevel, {point(1), point(1.11)}));
  EXPECT_TRUE(holds(Expected::kCrosses, {point(10, 19), point(50), point(90, 50)}));
  EXPECT_FALSE(holds(Expected::kCrosses, {point(10, 21), point(50)}));
  EXPECT_TRUE(holds(Expected::kOrder, {point(1, 5), point(3, 7), point(2)}));
  EXPECT_FALSE(holds(Expected::kOrder, {point(3, 5), point(1, 7)}));
}

TEST(GuideCurves, TextAndJsonStateEveryPoint) {
  const std::string text = to_text(all_curves());
  const nlohmann::ordered_json json = json_of(all_curves());
  ASSERT_EQ(json.size(), all_curves().size());
  std::set<std::string> ids;
  for (size_t i = 0; i < json.size(); ++i) {
    const GuideCurve& one = all_curves()[i];
    EXPECT_TRUE(ids.insert(one.id).second) << one.id << " twice";
    EXPECT_NE(text.find(one.id + ": " + one.what), std::string::npos) << one.id;
    EXPECT_NE(text.find(one.source), std::string::npos) << one.id;
    EXPECT_EQ(json[i]["id"], one.id);
    EXPECT_EQ(json[i]["direction_holds"], one.direction_holds);
    ASSERT_EQ(json[i]["points"].size(), one.points.size());
    for (size_t k = 0; k < one.points.size(); ++k) {
      const auto& printed = json[i]["points"][k];
      EXPECT_EQ(printed["predicted"], one.points[k].predicted);
      EXPECT_GT(one.points[k].predicted, 0) << one.id;
      EXPECT_EQ(printed["published"].is_null(), !one.points[k].published.has_value());
      if (!one.points[k].published) continue;
      EXPECT_NEAR(printed["error"].get<double>(), one.points[k].predicted / *one.points[k].published - 1,
                  1e-12);
    }
  }
  EXPECT_EQ(direction_holds(curve("scout-devices")), curve("scout-devices").direction_holds);
}

}  // namespace
}  // namespace strata::planning
