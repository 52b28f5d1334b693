#include "ops/reference.h"
#include "ops/elementwise/elementwise.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::Scale>& at) {
  for (int64_t i = 0; i < at.out.y.shape.elements(); ++i) at.out.y.put(i, at.attrs.factor * at.in.x.at(i));
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
