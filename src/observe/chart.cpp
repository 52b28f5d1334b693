#include "observe/chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "observe/markup.h"

namespace strata::observe {
namespace {

constexpr size_t kMostPoints = 2000;
constexpr double kTop = 40, kBottom = 36, kLeft = 52, kRight = 16;
constexpr double kCharacterWidth = 6.4;  // of 12 px sans-serif text, on average

constexpr const char* kLightColors =
    "--surface:#ffffff;--ink:#1b2430;--muted:#66717f;--grid:#e6e9ee;"
    "--c0:#2563eb;--c1:#dd6b10;--c2:#0d8a63;--c3:#8b45d6;";
constexpr const char* kDarkColors =
    "--surface:#151b23;--ink:#e6edf3;--muted:#93a0ae;--grid:#2a323d;"
    "--c0:#6ea8ff;--c1:#f2a154;--c2:#4cc38a;--c3:#bf94f5;";
constexpr const char* kRules =
    ".chart text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:var(--muted)}"
    ".chart .title{font-size:14px;font-weight:600;fill:var(--ink)}"
    ".chart .grid{stroke:var(--grid);stroke-width:1}"
    ".chart .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}"
    ".chart .faint{fill:none;stroke-width:1;opacity:.32;stroke-linejoin:round}"
    ".chart .dot{stroke:var(--surface);stroke-width:1.5}";

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  bool empty() const { return !(low <= high); }
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  double span() const { return high - low; }
  // The position of a value between 0 (low) and 1 (high). The span itself may overflow.
  double part_of(double value) const {
    return std::isfinite(span()) ? (value - low) / span() : (value / 2 - low / 2) / (high / 2 - low / 2);
  }
  // Adds a margin on the requested sides, so that low < high.
  void widen(double margin, bool below, bool above) {
    constexpr double kMost = std::numeric_limits<double>::max();
    const auto moved = [&](double from, double by, double towards) {
      const double to = std::clamp(from + by, -kMost, kMost);
      return to == from ? std::nextafter(from, towards) : to;  // less than half an ulp
    };
    if (below) low = moved(low, -margin, -kMost);
    if (above) high = moved(high, margin, kMost);
  }
};

// Medians over a few neighbours, to ignore single spikes.
std::vector<double> without_spikes(const std::vector<double>& values) {
  std::vector<double> finite;
  std::copy_if(values.begin(), values.end(), std::back_inserter(finite),
               [](double v) { return std::isfinite(v); });
  const size_t reach = std::clamp<size_t>(finite.size() / 100, 2, 25);
  if (finite.size() < 4 * reach) return finite;
  std::vector<double> out, part;
  // At most 2,000 points are drawn.
  const size_t stride = std::max<size_t>(1, finite.size() / kMostPoints);
  for (size_t i = 0; i < finite.size(); i += stride) {
    part.assign(finite.begin() + static_cast<std::ptrdiff_t>(i - std::min(i, reach)),
                finite.begin() + static_cast<std::ptrdiff_t>(std::min(finite.size(), i + reach + 1)));
    const auto middle = part.begin() + static_cast<std::ptrdiff_t>(part.size() / 2);
    std::nth_element(part.begin(), middle, part.end());
    out.push_back(*middle);
  }
  return out;
}

bool is_dots(const ChartLine& line) {
  return line.look == ChartLine::Look::kDots || line.look == ChartLine::Look::kScatter;
}

// Clips spikes of a few steps, which would squash the rest. Dots are few and all shown.
Range y_range(const Chart& chart) {
  Range range;
  for (const ChartLine& line : chart.lines) {
    const bool dots = is_dots(line);
    for (const double y : dots ? line.y : without_spikes(line.y))
      if (std::isfinite(y)) range.add(y);
  }
  if (range.empty()) return range;
  if (chart.from_zero) range.add(0);
  const double margin = range.span() > 0 ? range.span() * 0.05 : std::max(std::abs(range.high) * 0.05, 1e-9);
  range.widen(margin, !chart.from_zero || range.low < 0, true);
  return range;
}

Range x_range(const Chart& chart) {
  Range range;
  for (const ChartLine& line : chart.lines) {
    for (size_t i = 0; i < std::min(line.x.size(), line.y.size()); ++i) {
      if (std::isfinite(line.x[i]) && std::isfinite(line.y[i])) range.add(line.x[i]);
    }
  }
  // A single point: widen by 1, or to the next number if adding 1 has no effect.
  const bool at_end = range.high == std::numeric_limits<double>::max();
  if (!range.empty() && range.span() == 0) range.widen(1, at_end, !at_end);
  return range;
}

// From data to drawing.
struct Scale {
  Range x, y;
  double left, right, top, bottom;
  double at_x(double v) const { return left + clamped(x.part_of(v)) * (right - left); }
  double at_y(double v) const { return bottom - clamped(y.part_of(v)) * (bottom - top); }
  // Points far outside the drawing are invisible, and some SVG readers do not accept their coordinates.
  static double clamped(double part) { return std::clamp(part, -100.0, 100.0); }
};

std::string path_of(const ChartLine& line, const Scale& scale) {
  std::string path;
  bool drawing = false;
  for (size_t i = 0; i < line.x.size(); ++i) {
    if (!std::isfinite(line.y[i]) || !std::isfinite(line.x[i])) {
      drawing = false;
      continue;
    }
    // "h0" makes a lone point visible as a round cap.
    path += fmt::format("{}{:.1f} {:.1f}{}", drawing ? "L" : "M", scale.at_x(line.x[i]),
                        scale.at_y(line.y[i]), drawing ? "" : "h0");
    drawing = true;
  }
  return path;
}

std::string draw_line(ChartLine line, const Scale& scale) {
  const size_t n = std::min(line.x.size(), line.y.size());
  line.x.resize(n);
  line.y.resize(n);
  downsample(line.x, line.y, kMostPoints);
  const std::string label = escape_markup(line.label);
  std::string out;
  if (is_dots(line)) {
    out += fmt::format("<g data-label=\"{}\">", label);
    ChartLine joined = line;  // a thin line joins the dots
    joined.x.clear();
    joined.y.clear();
    for (size_t i = 0; i < line.y.size(); ++i) {
      if (!std::isfinite(line.y[i]) || !std::isfinite(line.x[i])) continue;
      joined.x.push_back(line.x[i]);
      joined.y.push_back(line.y[i]);
    }
    if (line.look == ChartLine::Look::kDots) {
      out += fmt::format("<path class=\"faint\" style=\"stroke:var(--c{});opacity:.7\" d=\"{}\"/>",
                         line.color, path_of(joined, scale));
    }
    for (size_t i = 0; i < joined.x.size(); ++i) {
      out += fmt::format(
          "<circle class=\"dot\" style=\"fill:var(--c{})\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"/>",
          line.color, scale.at_x(joined.x[i]), scale.at_y(joined.y[i]));
    }
    return out + "</g>\n";
  }
  const bool faint = line.look == ChartLine::Look::kFaint;
  return fmt::format("<path class=\"{}\" data-label=\"{}\" style=\"stroke:var(--c{})\" d=\"{}\"/>\n",
                     faint ? "faint" : "line", label, line.color, path_of(line, scale));
}

// The legend, to the right of the title, with its last entry at the right edge.
std::string draw_legend(const Chart& chart) {
  std::string out;
  double x = chart.width - kRight;
  for (auto line = chart.lines.rbegin(); line != chart.lines.rend(); ++line) {
    if (line->label.empty()) continue;
    x -= kCharacterWidth * static_cast<double>(line->label.size());
    out += fmt::format("<text x=\"{:.1f}\" y=\"22\">{}</text>", x, escape_markup(line->label));
    x -= 22;
    const char* const look = line->look == ChartLine::Look::kFaint ? "faint" : "line";
    if (is_dots(*line)) {
      out += fmt::format("<circle style=\"fill:var(--c{})\" cx=\"{:.1f}\" cy=\"18\" r=\"3.5\"/>", line->color,
                         x + 9);
    } else {
      out += fmt::format("<path class=\"{}\" style=\"stroke:var(--c{})\" d=\"M{:.1f} 18h16\"/>", look,
                         line->color, x);
    }
    x -= 14;
  }
  return out + "\n";
}

// A tick at its position on the axis, which is a logarithm on a logarithmic axis.
struct Tick {
  double at = 0.0;
  std::string label;
};

std::vector<Tick> ticks_of(const Range& range, int about, bool logarithmic) {
  std::vector<Tick> ticks;
  if (logarithmic) {
    for (const double value : log_ticks(std::pow(10, range.low), std::pow(10, range.high), about))
      ticks.push_back({std::log10(value), log_tick_label(value)});
    return ticks;
  }
  const std::vector<double> values = nice_ticks(range.low, range.high, about);
  const double step = values.size() > 1 ? values[1] - values[0] : range.span();
  for (const double value : values) ticks.push_back({value, tick_label(value, step)});
  return ticks;
}

std::string draw_axes(const Chart& chart, const Scale& scale) {
  std::string out;
  const int about_y = std::max(2, static_cast<int>((scale.bottom - scale.top) / 40));
  for (const Tick& y : ticks_of(scale.y, about_y, chart.log_y)) {
    out += fmt::format(
        "<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/><text x=\"{:.1f}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>\n",
        scale.left, scale.at_y(y.at), scale.right, scale.left - 8, scale.at_y(y.at) + 4, y.label);
  }
  const int about_x = std::max(2, static_cast<int>((scale.right - scale.left) / 90));
  const double label_left = scale.right - kCharacterWidth * static_cast<double>(chart.x_label.size()) - 24;
  for (const Tick& x : ticks_of(scale.x, about_x, chart.log_x)) {
    if (scale.at_x(x.at) > label_left) continue;  // the axis label is here
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", scale.at_x(x.at),
                       scale.bottom + 20, x.label);
  }
  out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", scale.right,
                     scale.bottom + 20, escape_markup(chart.x_label));
  return out;
}

}  // namespace

std::string share_color(size_t i) {
  return fmt::format("hsl({} 58% {}%)", (215 + i * 137) % 360, i % 2 == 0 ? 52 : 62);
}

std::string chart_style() {
  return fmt::format(":root{{color-scheme:light dark;{}}}@media(prefers-color-scheme:dark){{:root{{{}}}}}{}",
                     kLightColors, kDarkColors, kRules);
}

std::string draw_chart(const Chart& original, bool standalone) {
  Chart chart = original;
  const auto to_logarithms = [](std::vector<double>& values) {
    for (double& value : values)
      value = value > 0 ? std::log10(value) : std::numeric_limits<double>::quiet_NaN();
  };
  for (ChartLine& line : chart.lines) {
    if (chart.log_x) to_logarithms(line.x);
    if (chart.log_y) to_logarithms(line.y);
  }
  const Scale scale{x_range(chart),       y_range(chart), kLeft,
                    chart.width - kRight, kTop,           chart.height - kBottom};
  const bool empty = scale.x.empty() || scale.y.empty();
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "role=\"img\" aria-label=\"{2}\"",
      chart.width, chart.height, escape_markup(chart.title));
  if (standalone) out += fmt::format(" width=\"{:.0f}\" height=\"{:.0f}\"", chart.width, chart.height);
  if (!empty) {
    // The range of the axes, in logarithms if they are logarithmic; values beyond it are clipped.
    out += fmt::format(" data-range=\"{} {} {} {}\"", scale.x.low, scale.x.high, scale.y.low, scale.y.high);
  }
  out += ">\n";
  if (standalone) {
    out += "<style>" + chart_style() +
           "</style>\n<rect width=\"100%\" height=\"100%\" style=\"fill:var(--surface)\"/>\n";
  }
  out += fmt::format("<text class=\"title\" x=\"{:.0f}\" y=\"22\">{}</text>\n", 16.0,
                     escape_markup(chart.title));
  if (empty) {
    return out +
           fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">no data yet</text>\n</svg>\n",
                       chart.width / 2, chart.height / 2 + 4);
  }
  out += draw_legend(chart) + draw_axes(chart, scale);
  // A nested svg clips lines to the axes without ids, which could collide on a page of several charts.
  out += fmt::format(
      "<svg x=\"{0:.1f}\" y=\"{1:.1f}\" width=\"{2:.1f}\" height=\"{3:.1f}\" viewBox=\"{0:.1f} {1:.1f} "
      "{2:.1f} {3:.1f}\">\n",
      scale.left - 4, scale.top - 4, scale.right - scale.left + 8, scale.bottom - scale.top + 8);
  for (const ChartLine& line : chart.lines) out += draw_line(line, scale);
  return out + "</svg>\n</svg>\n";
}

}  // namespace strata::observe
