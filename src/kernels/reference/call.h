// Plain kernels: every op as its formula stands, in fp64, with no blocking, vectors or engines. They are what
// the fast kernels of every device are held against, and what a run computes with under
// debug.reference_kernels. Rows and columns of matrices; the same bits for any number of threads.
//
// Simplicity is what they are for: they look attributes up, allocate, and convert each element as they go.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace strata::reference {

// An operand of a call. Elements are counted through the whole array, row-major.
struct Array {
  std::byte* data = nullptr;  // nullptr: an optional operand that is not there
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<int64_t> segments;  // widths of the parts of a row, as of [q | k | v]
  bool accumulate = false;        // an output that is added to, not overwritten

  bool present() const { return data != nullptr; }
  double at(int64_t i) const;
  int64_t index_at(int64_t i) const;         // of i32, i64 or u8
  void put(int64_t i, double value) const;   // rounds to the array's dtype
  void give(int64_t i, double value) const;  // put, or add where the array accumulates
  std::vector<double> row(int64_t r) const;  // of a matrix
};

// to[row, first + c] = from[row, from_first + c] for c < n, of matrices of the same rows.
void copy_columns(const Array& to, int64_t first, const Array& from, int64_t from_first, int64_t n);

struct Call {
  std::vector<Array> in, out;  // in the order of the op's members
  graph::Attributes attrs;
};
using Kernel = void (*)(const Call&);

}  // namespace strata::reference
