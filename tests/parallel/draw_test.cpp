// Drawings of schedules.
#include "parallel/draw.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "parallel/schedules.h"

namespace strata::parallel {
namespace {

std::string text_of(const ScheduleRequest& request, int columns) {
  const Schedule schedule = make_schedule(request);
  return draw_text(schedule, simulate(schedule, even_costs(schedule)), {.columns = columns});
}

TEST(DrawText, LabelsEveryAction) {
  EXPECT_EQ(text_of({"1f1b", 2, 3}, 80),
            "1f1b: 2 stages on 2 ranks, 3 micro-batches\n"
            " time   0                                 12   bubble   peak\n"
            " rank 0 F0 F1 ......B0--- F2 B1--- ...B2---    25.0 %      2\n"
            " rank 1 ...F0 B0--- F1 B1--- F2 B2--- ......   25.0 %      1\n"
            "takes 12; bubble 25.0 % of all ranks' time; peak 2 activations\n");
}

TEST(DrawText, ContinuesInBandsAndNamesChunks) {
  EXPECT_EQ(text_of({"zbv", 2, 2}, 50),
            "zbv: 4 stages on 2 ranks, 2 micro-batches\n"
            " time   0                                      5\n"
            " rank 0 F0a F1a ....F0b I0b W0b F1b I1b W1b I0a \n"
            " rank 1 ....F0a F0b F1a F1b I0b W0b I0a W0a I1b \n"
            " time   5              7   bubble   peak\n"
            " rank 0 W0a ....I1a W1a    14.3 %    1.5\n"
            " rank 1 W1b I1a W1a ....   14.3 %      2\n"
            "F3a: micro-batch 3 in the rank's first stage, F3b in its second\n"
            "takes 7; bubble 14.3 % of all ranks' time; peak 2 activations\n");
}

// For any times: a whole number of columns seldom ends with the step.
TEST(DrawText, TheTimeLineEndsWithTheStep) {
  for (const ScheduleKind& kind : schedule_kinds()) {
    const Schedule schedule = make_schedule({std::string(kind.name), 2, 6, kind.chunks == 0 ? 2 : 1});
    for (int i = 1; i <= 20; ++i) {
      Costs costs = even_costs(schedule);
      for (size_t stage = 0; stage < costs.stages.size(); ++stage)
        costs.stages[stage].forward *= 0.37 * i + 0.011 * static_cast<double>(stage);
      const Simulation simulation = simulate(schedule, costs);
      for (const int columns : {50, 77, 200}) {
        const std::string text = draw_text(schedule, simulation, {.columns = columns});
        EXPECT_NE(text.find(fmt::format(" {:.6g}   bubble", simulation.makespan)), std::string::npos) << text;
      }
    }
  }
}

TEST(DrawText, StaysWithinItsColumns) {
  for (const ScheduleKind& kind : schedule_kinds()) {
    for (const int32_t micro_batches : {32, 64}) {
      const std::string text =
          text_of({std::string(kind.name), 16, micro_batches, kind.chunks == 0 ? 2 : 1}, 100);
      EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 1 + 4 * 17 + 2) << kind.name;
      for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
        end = text.find('\n', at);
        EXPECT_LE(end - at, 100U) << text.substr(at, end - at);
      }
    }
  }
}

TEST(DrawText, LongStepsShowOnlyKinds) {
  const std::string text = text_of({"gpipe", 2, 400}, 100);
  // Forward in the first third, backward in the rest.
  const size_t row = text.find(" rank 0 ");
  ASSERT_NE(row, std::string::npos);
  EXPECT_EQ(text.substr(row + 8, 20), std::string(20, 'F'));
  EXPECT_EQ(text.substr(row + 8 + 30, 40), std::string(40, 'B'));
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

TEST(DrawSvg, DrawsARectangleForEachAction) {
  const Schedule schedule = make_schedule({"dualpipev", 2, 4});
  const std::string svg = draw_svg(schedule, simulate(schedule, even_costs(schedule)));
  // 4 stages and 4 micro-batches, plus each chunk in the legend.
  EXPECT_EQ(count_of(svg, "<rect class=\"F0\"") + count_of(svg, "<rect class=\"F1\""), 16U + 2);
  EXPECT_EQ(count_of(svg, "<rect class=\"B0\"") + count_of(svg, "<rect class=\"I0\""), 8U + 2);
  EXPECT_EQ(count_of(svg, "<rect class=\"I1\""), count_of(svg, "<rect class=\"W1\""));
  EXPECT_EQ(count_of(svg, "<svg"), count_of(svg, "</svg>"));
  EXPECT_NE(svg.find("bubble 7.7 %"), std::string::npos);
}

TEST(DrawSvg, EscapesTheName) {
  Schedule schedule = make_schedule({"1f1b", 1, 1});
  schedule.name = "<a&b>";
  const std::string svg = draw_svg(schedule, simulate(schedule, even_costs(schedule)));
  EXPECT_NE(svg.find("&lt;a&amp;b&gt;"), std::string::npos);
}

}  // namespace
}  // namespace strata::parallel
