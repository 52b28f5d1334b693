// Rows of a matrix, consecutive or listed. Internal to GEMM blocks.
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

// Calls multiply(rows of C, rows of A), each in the order of its list, or consecutive without one.
template <typename Multiply>
void with_rows(const int32_t* c_rows, const int32_t* a_rows, const Multiply& multiply) {
  if (c_rows != nullptr && a_rows != nullptr) return multiply(RowsListed{c_rows}, RowsListed{a_rows});
  if (c_rows != nullptr) return multiply(RowsListed{c_rows}, RowsInOrder());
  if (a_rows != nullptr) return multiply(RowsInOrder(), RowsListed{a_rows});
  multiply(RowsInOrder(), RowsInOrder());
}

}  // namespace strata::cpu::detail
