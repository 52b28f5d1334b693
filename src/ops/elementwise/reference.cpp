#include "ops/reference.h"
#include "ops/elementwise/elementwise.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::Scale>& at) {
  for (int64_t i = 0; i < at.out.y.shape.elements(); ++i) at.out.y.put(i, at.attrs.factor * at.in.x.at(i));
}

template <>
void compute(const Arrays<ops::ScaleParts>& at) {
  const Array& x = at.in.x;
  const int64_t columns = x.shape[1];
  const std::vector<int64_t> parts = x.segments.empty() ? std::vector<int64_t>{columns} : x.segments;
  for (int64_t row = 0; row < x.shape[0]; ++row) {
    int64_t column = 0;
    for (size_t part = 0; part < parts.size(); ++part) {
      for (int64_t i = 0; i < parts[part]; ++i, ++column) {
        const int64_t at_element = row * columns + column;
        at.out.y.put(at_element, at.attrs.factors[part] * x.at(at_element));
      }
    }
  }
}

template <>
void compute(const Arrays<ops::AddRow>& at) {
  const Array& x = at.in.x;
  const int64_t dim = x.shape[1];
  for (int64_t i = 0; i < x.shape.elements(); ++i)
    at.out.y.put(i, x.at(i) + at.in.table.at(at.attrs.row * dim + i % dim));
}

template <>
void compute(const Arrays<ops::AddRowGrad>& at) {
  const Array &dy = at.in.dy, &table = at.out.dtable;
  const int64_t dim = dy.shape[1];
  for (int64_t i = 0; i < table.shape.elements(); ++i) {
    double sum = 0;
    for (int64_t r = 0; r < dy.shape[0] && i / dim == at.attrs.row; ++r) sum += dy.at(r * dim + i % dim);
    table.give(i, sum);
  }
}

}  // namespace strata::reference
