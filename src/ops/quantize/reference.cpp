#include <algorithm>
#include <cmath>

#include "ops/quantize/quantize.h"
#include "ops/reference.h"
#include "quantize/hadamard.h"

namespace strata::reference {
namespace {

using quantize::ScaleRule;

// A matrix as a result has it: x or its transpose, transformed if that is asked for.
class Plane {
 public:
  Plane(const Array& x, bool transposed, bool transforms)
      : transposed_(transposed), rows_(x.shape[transposed ? 1 : 0]), columns_(x.shape[transposed ? 0 : 1]) {
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t column = 0; column < columns_; ++column)
        values_.push_back(
            static_cast<float>(x.at(transposed ? column * rows_ + row : row * columns_ + column)));
    }
    for (int64_t row = 0; transforms && row < rows_; ++row) {
      for (int64_t column = 0; column + quantize::kHadamard <= columns_; column += quantize::kHadamard)
        quantize::hadamard_16(values_.data() + row * columns_ + column, 1, ops::hadamard_signs());
    }
  }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  float at(int64_t row, int64_t column) const {
    return values_[static_cast<size_t>(row * columns_ + column)];
  }
  // Of x.
  int64_t source_row(int64_t row, int64_t column) const { return transposed_ ? column : row; }
  int64_t source_column(int64_t row, int64_t column) const { return transposed_ ? row : column; }

 private:
  bool transposed_;
  int64_t rows_, columns_;
  std::vector<float> values_;
};

// Random bits of an element; none: it is rounded to the nearest code.
struct Rounding {
  std::optional<quantize::StochasticBits> bits;
  const Array& places;
  const ops::HeldColumns& held;
  int64_t number_of(int64_t column) const {
    int64_t number = column;
    for (const quantize::ColumnRun& run : held.runs) {
      if (run.begin <= column) number = run.number + column - run.begin;
    }
    return number;
  }
  double rounded(quantize::Format format, float value, const Plane& plane, int64_t row,
                 int64_t column) const {
    if (!bits) return static_cast<double>(quantize::decode(format, quantize::encode(format, value)));
    const int64_t source = plane.source_row(row, column);
    const quantize::StochasticBits of_sample{bits->key, static_cast<uint32_t>(places.index_at(2 * source))};
    const int64_t element =
        places.index_at(2 * source + 1) * held.all + number_of(plane.source_column(row, column));
    return static_cast<double>(
        quantize::decode(format, quantize::encode(format, value, quantize::random_word(of_sample, element))));
  }
};

// The greater magnitude; NaN wins.
float greater(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::nanf("");
  return std::max(std::abs(a), std::abs(b));
}

float greatest_of(const Plane& plane, int64_t row_begin, int64_t row_end, int64_t column_begin,
                  int64_t column_end) {
  float most = 0;
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t column = column_begin; column < column_end; ++column)
      most = greater(most, plane.at(row, column));
  }
  return most;
}

void find_greatest(const Plane& plane, const std::optional<ScaleRule>& rule, const Array& found) {
  if (rule->needs() == ScaleRule::Needs::kTensor) {
    found.put(0, static_cast<double>(greatest_of(plane, 0, plane.rows(), 0, plane.columns())));
    return;
  }
  for (int64_t row = 0; row < plane.rows(); ++row)
    found.put(row, static_cast<double>(greatest_of(plane, row, row + 1, 0, plane.columns())));
}

// Rows and columns [begin, end) of a block.
struct Extent {
  int64_t begin, end;
};
Extent extent_of(int64_t block, int64_t length, int64_t size) {
  if (length == quantize::kWhole) return {0, size};
  return {block * length, std::min(size, (block + 1) * length)};
}

void quantize_plane(const Plane& plane, const ScaleRule& rule, const Array& given, const Rounding& rounding,
                    const Array& codes, const Array& scales) {
  for (int64_t i = 0; i < scales.shape[0]; ++i) {
    // Of the tensor, or of the row if each has one.
    const int64_t at = rule.needs() == ScaleRule::Needs::kRows ? i : 0;
    const float whole = rule.needs() == ScaleRule::Needs::kNothing ? 0 : static_cast<float>(given.at(at));
    const Extent rows = extent_of(i, rule.block().rows, plane.rows());
    for (int64_t j = 0; j < scales.shape[1]; ++j) {
      const Extent columns = extent_of(j, rule.block().columns, plane.columns());
      const bool is_given = rule.block().columns == quantize::kWhole;
      const float greatest =
          is_given ? whole : greatest_of(plane, rows.begin, rows.end, columns.begin, columns.end);
      const ScaleRule::Scale scale = rule.scale_of(greatest, whole);
      const float stored = rule.scale_type() == quantize::ScaleType::kF32
                               ? rule.value_of(scale.stored)
                               : quantize::decode(*quantize::format_of(scales.dtype), scale.stored);
      scales.put(i * scales.shape[1] + j, static_cast<double>(stored));
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t column = columns.begin; column < columns.end; ++column) {
          const float x = plane.at(row, column);
          codes.put(row * plane.columns() + column,
                    rounding.rounded(rule.format(), rule.divides() ? x / scale.applied : x * scale.applied,
                                     plane, row, column));
        }
      }
    }
  }
}

}  // namespace

template <>
void compute(const Arrays<ops::GreatestMagnitudes>& at) {
  if (at.out.of_rows.present())
    find_greatest(Plane(at.in.x, false, false), at.attrs.along_rows, at.out.of_rows);
  if (at.out.of_columns.present())
    find_greatest(Plane(at.in.x, true, at.attrs.transforms_columns), at.attrs.along_columns,
                  at.out.of_columns);
}

template <>
void compute(const Arrays<ops::GreatestOfRanks>& at) {
  const Array& found = at.in.found;
  const int64_t n = found.shape[1];
  for (int64_t i = 0; i < n; ++i) {
    float most = 0;
    for (int64_t rank = 0; rank < found.shape[0]; ++rank)
      most = greater(most, static_cast<float>(found.at(rank * n + i)));
    at.out.greatest.put(i, static_cast<double>(most));
  }
}

template <>
void compute(const Arrays<ops::Quantize>& at) {
  const int64_t ranks = at.attrs.columns ? at.attrs.columns->ranks : 1;
  const int64_t rank = ranks > 1 ? place_in(at.in.rank, at.attrs.axis, ranks) : 0;
  const ops::HeldColumns held = ops::held_columns(at.attrs, at.in.x.shape[1], rank);
  const auto rounding = [&](bool along_columns) {
    Rounding made{std::nullopt, at.in.places, held};
    if (at.attrs.stochastic) made.bits = ops::stochastic_bits(at.attrs, along_columns);
    return made;
  };
  if (at.attrs.along_rows)
    quantize_plane(Plane(at.in.x, false, false), *at.attrs.along_rows, at.in.row_greatest, rounding(false),
                   at.out.row_codes, at.out.row_scales);
  if (at.attrs.along_columns)
    quantize_plane(Plane(at.in.x, true, at.attrs.transforms_columns), *at.attrs.along_columns,
                   at.in.column_greatest, rounding(true), at.out.column_codes, at.out.column_scales);
  if (!at.out.greatest.present()) return;
  const Plane plane(at.in.x, false, false);
  float most = greatest_of(plane, 0, plane.rows(), 0, plane.columns());
  if (at.out.greatest.accumulate) most = greater(most, static_cast<float>(at.out.greatest.at(0)));
  at.out.greatest.put(0, static_cast<double>(most));
}

}  // namespace strata::reference
