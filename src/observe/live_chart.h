// The data of a chart, for the run page's script.
#pragma once

#include <string>
#include <vector>

#include "observe/metrics.h"

namespace strata::observe {

// A column of the metrics and how the script draws it.
struct LiveLine {
  enum class Look { kLine, kNoisy, kDots };  // kNoisy: faint, with a smoothed line over it
  std::string column;
  std::string label;  // empty: not in the legend
  int color = 0;
  Look look = Look::kLine;
  double scale = 1;  // 100: percent
};

struct LiveChart {
  std::string title, unit;  // "tokens/s"; "%" is appended to the number
  std::vector<LiveLine> lines;
  bool from_zero = false;
  int height = 230;
};

// Returns an element that the script fills. Each line is thinned to 1,500 points, each with step, tokens and
// running seconds. Empty if no line has a point.
std::string live_chart(const LiveChart& chart, const MetricsTable& metrics);

}  // namespace strata::observe
