// Heat maps as SVG, without scripts or external resources; colours as in chart.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace strata::observe {

struct HeatMap {
  std::string title;
  std::vector<std::string> rows;             // names, from the top
  std::vector<std::vector<double>> columns;  // values by row; NaN: left blank
  std::string first, last;                   // labels under the first and the last column
  std::function<std::string(double)> text;   // formats a value for the legend
  size_t most_columns = 96;                  // at most this many are drawn
};

// Returns an <svg> element. Neighbours that are merged into one column show their largest value.
std::string draw_heat_map(const HeatMap& map);

}  // namespace strata::observe
