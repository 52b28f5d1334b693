#include "tensor/shape.h"

#include <algorithm>

#include "base/error.h"

namespace strata {

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  STRATA_CHECK(dims.size() <= kMaxRank, "a shape of {} dimensions", dims.size());
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

int64_t Shape::elements() const {
  int64_t n = 1;
  for (const int64_t dim : dims()) n *= dim;
  return n;
}

std::string Shape::str() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i > 0 ? ", " : "") + std::to_string((*this)[i]);
  return text + "]";
}

}  // namespace strata
