// Line charts as SVG, without scripts or outside resources. Colours come from CSS variables (chart_style), so
// that light and dark pages share one drawing.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace strata::observe {

struct ChartLine {
  enum class Look { kLine, kFaint, kDots };
  std::string label;         // in the legend; empty: not there
  std::vector<double> x, y;  // NaN in y is a gap
  int color = 0;             // 0 to 3
  Look look = Look::kLine;
};

struct Chart {
  std::string title, x_label;
  std::vector<ChartLine> lines;
  double width = 720, height = 300;
  bool from_zero = false;  // the y axis starts at 0
};

// Two to ten round numbers (1, 2 or 5 times a power of ten apart) that cover most of [low, high].
std::vector<double> nice_ticks(double low, double high, int about);
// A number as an axis shows it, with the decimals that ticks `step` apart need: "1.5k", "0.25", "3e-4".
std::string tick_label(double value, double step);

// Mean over a window around each point that ignores NaN; NaN where the value is NaN.
std::vector<double> smoothed(std::span<const double> values, size_t window);

// At most max_points points that keep every bucket's extremes and gaps.
void downsample(std::vector<double>& x, std::vector<double>& y, size_t max_points);

// An <svg> element. Lines are thinned to 2,000 points. Without points it says "no data yet". standalone: a
// whole SVG document with its own style and background.
std::string draw_chart(const Chart& chart, bool standalone);

// The CSS that an HTML page with charts needs.
std::string chart_style();

}  // namespace strata::observe
