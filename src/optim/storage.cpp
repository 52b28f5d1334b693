#include "optim/storage.h"

#include <algorithm>

#include "base/error.h"

namespace strata::optim {

using graph::HeldSpan;

std::string_view name_of(Rounding rounding) {
  static constexpr std::string_view kNames[] = {"stochastic", "kahan", "nearest"};
  return kNames[static_cast<size_t>(rounding)];
}

namespace {

int64_t product_from(const Shape& shape, int dim) {
  int64_t product = 1;
  for (; dim < shape.rank(); ++dim) product *= shape[dim];
  return product;
}

HeldElements::Dimension along(const graph::Value& value, const graph::Mesh& mesh, int dim, int64_t inner) {
  HeldElements::Dimension held;
  size_t combinations = 1;
  for (const graph::AxisCut& of : graph::cuts_of(value, dim, mesh)) {
    held.axes.push_back(of.axis);
    held.ranks.push_back(mesh.size(of.axis));
    combinations *= static_cast<size_t>(held.ranks.back());
  }
  for (size_t i = 0; i < combinations; ++i) {
    graph::Coordinates at;
    size_t rest = i;
    for (size_t k = held.axes.size(); k-- > 0;) {
      at[held.axes[k]] = static_cast<int32_t>(rest % static_cast<size_t>(held.ranks[k]));
      rest /= static_cast<size_t>(held.ranks[k]);
    }
    auto spans = graph::held_spans(value, mesh, at)[static_cast<size_t>(dim)];
    for (HeldSpan& span : spans) span = {{span.whole.begin * inner, span.whole.end * inner}, span.at * inner};
    held.spans.push_back(std::move(spans));
  }
  return held;
}

// The span that holds index `at` of a rank's memory, or the next one; end() if none follows.
std::vector<HeldSpan>::const_iterator span_from(const std::vector<HeldSpan>& spans, int64_t at) {
  return std::find_if(spans.begin(), spans.end(),
                      [&](const HeldSpan& span) { return at < span.at + span.whole.size(); });
}

}  // namespace

HeldElements held_elements(const graph::Value& value, const graph::Mesh& mesh) {
  const Shape& whole = value.sharding.global_shape.rank() > 0 ? value.sharding.global_shape : value.shape;
  HeldElements held;
  held.whole_columns = product_from(whole, 1);
  held.rows = along(value, mesh, 0, 1);
  if (whole.rank() > 1) {
    held.columns = along(value, mesh, 1, product_from(whole, 2));
  } else {
    held.columns.spans = {{{{0, 1}, 0}}};
  }
  return held;
}

PlacedRun placed_run(const std::vector<HeldSpan>& rows, const std::vector<HeldSpan>& columns, int64_t width,
                     int64_t whole_columns, int64_t at, int64_t end) {
  const int64_t row = at / width, column = at % width;
  const auto in_rows = span_from(rows, row);
  const auto padding_to = [&](int64_t next) { return PlacedRun{at, std::min(next, end) - at, -1}; };
  if (in_rows == rows.end()) return padding_to(end);
  if (row < in_rows->at) return padding_to(in_rows->at * width);
  const int64_t place = (in_rows->whole.begin + row - in_rows->at) * whole_columns;
  if (width == whole_columns) {
    const int64_t last = (in_rows->at + in_rows->whole.size()) * width;
    return {at, std::min(last, end) - at, place + column};
  }
  const auto in_columns = span_from(columns, column);
  if (in_columns == columns.end()) return padding_to((row + 1) * width);
  if (column < in_columns->at) return padding_to(row * width + in_columns->at);
  const int64_t last = row * width + in_columns->at + in_columns->whole.size();
  return {at, std::min(last, end) - at, place + in_columns->whole.begin + column - in_columns->at};
}

}  // namespace strata::optim
