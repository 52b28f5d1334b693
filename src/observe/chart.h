// Line charts as SVG, without scripts or external resources. Colours are CSS variables (chart_style), so the
// same drawing works on light and dark pages.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace strata::observe {

struct ChartLine {
  enum class Look { kLine, kFaint, kDots, kScatter };  // kDots are joined by a thin line
  std::string label;                                   // in the legend; empty: none
  std::vector<double> x, y;                            // NaN in y is a gap
  int color = 0;                                       // 0 to 3
  Look look = Look::kLine;
};

struct Chart {
  std::string title, x_label;
  std::vector<ChartLine> lines;
  double width = 720, height = 300;
  bool from_zero = false;             // the y axis starts at 0
  bool log_x = false, log_y = false;  // points that are not above 0 are gaps
};

// Two to ten round numbers (1, 2 or 5 times a power of ten apart) that cover most of [low, high].
std::vector<double> nice_ticks(double low, double high, int about);
// Ticks of a logarithmic axis, about `about` of them within [low, high]: powers of ten, also times 2 and 5 if
// these are too few.
std::vector<double> log_ticks(double low, double high, int about);
// Formats a tick of log_ticks(): "200M", "1e20".
std::string log_tick_label(double value);
// Formats a number for an axis, with as many decimals as ticks `step` apart need: "1.5k", "0.25", "3e-4".
std::string tick_label(double value, double step);

// Mean over a window around each point, ignoring NaN values. Points that are NaN stay NaN.
std::vector<double> smoothed(std::span<const double> values, size_t window);

// Reduces a line to at most max_points points, preserving each bucket's extremes and gaps.
void downsample(std::vector<double>& x, std::vector<double>& y, size_t max_points);

// Returns an <svg> element. Lines are thinned to 2,000 points. A chart without points shows "no data yet".
// standalone: returns a complete SVG document with its own style and background.
std::string draw_chart(const Chart& chart, bool standalone);

// The colour of part i of a whole: twelve around the wheel, legible on light and dark.
std::string share_color(size_t i);

// The CSS that an HTML page with charts needs.
std::string chart_style();

}  // namespace strata::observe
