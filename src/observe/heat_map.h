// Heat maps as SVG, without scripts or outside resources; colours as in chart.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace strata::observe {

struct HeatMap {
  std::string title;
  std::vector<std::string> rows;             // their names, from above
  std::vector<std::vector<double>> columns;  // values by row; NaN: left empty
  std::string first, last;                   // what stands under the first and the last column
  std::function<std::string(double)> text;   // a value as the legend shows it
  size_t most_columns = 96;                  // that are drawn
};

// An <svg> element. Of neighbours that share a column, it has the largest value.
std::string draw_heat_map(const HeatMap& map);

}  // namespace strata::observe
