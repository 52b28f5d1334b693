// Rows of a matrix: one after the other, or where a list says. Internal to products of blocks.
#pragma once

#include <cstdint>

namespace strata::cpu::detail {

struct RowsInOrder {
  int64_t first = 0;
  int64_t operator[](int64_t r) const { return first + r; }
  RowsInOrder from(int64_t r) const { return {first + r}; }
};
struct RowsListed {
  const int32_t* list;
  int64_t operator[](int64_t r) const { return list[r]; }
  RowsListed from(int64_t r) const { return {list + r}; }
};

}  // namespace strata::cpu::detail
