#include "observe/heat_map.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "observe/markup.h"

namespace strata::observe {
namespace {

constexpr double kWidth = 1160, kLeft = 110, kRight = 16, kTop = 40, kBottom = 28;
constexpr int kLevels = 12;
constexpr size_t kMostNames = 16;  // of rows, so that they stay legible

double opacity_of(int level) {
  return 0.06 + 0.94 * level / (kLevels - 1);
}

// The range of the shades. A few values far above the others, such as those of a run's first step, would make
// the rest indistinguishable, so values beyond `high` all have the darkest shade.
struct Limits {
  double low = 0, high = 0;
  bool cut = false;
  int level_of(double value) const {
    const double part = high > low ? std::min(1.0, (value - low) / (high - low)) : 0;
    return static_cast<int>(std::lround(part * (kLevels - 1)));
  }
};

Limits limits_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const double most = 1.5 * values[(values.size() - 1) * 95 / 100];
  const bool cut = most > values.front() && most < values.back();
  return {values.front(), cut ? most : values.back(), cut};
}

std::vector<std::vector<double>> thinned(const std::vector<std::vector<double>>& columns, size_t most) {
  const size_t count = std::min(columns.size(), most);
  std::vector<std::vector<double>> out(count);
  for (size_t i = 0; i < columns.size(); ++i) {
    std::vector<double>& into = out[i * count / columns.size()];
    if (into.empty()) {
      into = columns[i];
      continue;
    }
    for (size_t row = 0; row < into.size(); ++row) {
      if (!(into[row] >= columns[i][row])) into[row] = columns[i][row];
    }
  }
  return out;
}

// The legend, to the right of the title: from the smallest to the largest value.
std::string legend(const HeatMap& map, const Limits& limits) {
  constexpr double kSwatch = 12;
  const double left = kWidth - kRight - 120 - kSwatch * kLevels;
  std::string out = fmt::format("<text x=\"{:.1f}\" y=\"22\" text-anchor=\"end\">{}</text>", left - 8,
                                escape_markup(map.text(limits.low)));
  for (int level = 0; level < kLevels; ++level)
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"11\" width=\"{}\" height=\"12\" style=\"fill:var(--c0)\" "
        "fill-opacity=\"{:.2f}\"/>",
        left + level * kSwatch, kSwatch, opacity_of(level));
  return out + fmt::format("<text x=\"{:.1f}\" y=\"22\">{}</text>\n", left + kSwatch * kLevels + 8,
                           (limits.cut ? "≥ " : "") + escape_markup(map.text(limits.high)));
}

}  // namespace

std::string draw_heat_map(const HeatMap& map) {
  const double cell_height =
      std::clamp(320.0 / static_cast<double>(std::max<size_t>(1, map.rows.size())), 6.0, 22.0);
  const double bottom = kTop + cell_height * static_cast<double>(map.rows.size());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
      "aria-label=\"{}\">\n<text class=\"title\" x=\"16\" y=\"22\">{}</text>\n",
      kWidth, bottom + kBottom, escape_markup(map.title), escape_markup(map.title));
  std::vector<double> values;
  for (const auto& column : map.columns)
    std::copy_if(column.begin(), column.end(), std::back_inserter(values),
                 [](double v) { return std::isfinite(v); });
  if (values.empty())
    return out +
           fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">no data yet</text>\n</svg>\n",
                       kWidth / 2, (kTop + bottom) / 2);
  const Limits limits = limits_of(std::move(values));
  out += legend(map, limits);
  const auto columns = thinned(map.columns, map.most_columns);
  const double cell_width = (kWidth - kLeft - kRight) / static_cast<double>(columns.size());
  // One path per shade; neighbouring cells of one shade in a row are one rectangle.
  std::array<std::string, kLevels> shades;
  for (size_t row = 0; row < map.rows.size(); ++row) {
    for (size_t begin = 0, end; begin < columns.size(); begin = end) {
      const auto level = [&](size_t column) {
        const double value = columns[column][row];
        return std::isfinite(value) ? limits.level_of(value) : -1;
      };
      for (end = begin + 1; end < columns.size() && level(end) == level(begin);) ++end;
      if (level(begin) < 0) continue;
      shades[static_cast<size_t>(level(begin))] += fmt::format(
          "M{:.1f} {:.1f}h{:.1f}v{:.1f}h{:.1f}z", kLeft + cell_width * static_cast<double>(begin),
          kTop + cell_height * static_cast<double>(row), cell_width * static_cast<double>(end - begin),
          cell_height - 1, -cell_width * static_cast<double>(end - begin));
    }
  }
  for (int level = 0; level < kLevels; ++level) {
    if (const std::string& cells = shades[static_cast<size_t>(level)]; !cells.empty())
      out += fmt::format("<path style=\"fill:var(--c0)\" fill-opacity=\"{:.2f}\" d=\"{}\"/>\n",
                         opacity_of(level), cells);
  }
  const size_t every = (map.rows.size() + kMostNames - 1) / kMostNames;
  for (size_t row = 0; row < map.rows.size(); row += every)
    out +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 8,
                    kTop + cell_height * (static_cast<double>(row) + 0.5) + 4, escape_markup(map.rows[row]));
  return out + fmt::format(
                   "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text><text x=\"{:.1f}\" y=\"{:.1f}\" "
                   "text-anchor=\"end\">{}</text>\n</svg>\n",
                   kLeft, bottom + 18, escape_markup(map.first), kWidth - kRight, bottom + 18,
                   escape_markup(map.last));
}

}  // namespace strata::observe
