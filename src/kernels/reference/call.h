// Reference kernels: every op by its formula, in fp64, without blocking, vectors or libraries. The kernels of
// every device are tested against them, and runs with debug.reference_kernels use them. The bits do not depend
// on the number of threads.
//
// They are simple rather than fast: they look up attributes, allocate, and convert each element separately.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace strata::reference {

// An operand of a call. Elements are indexed through the whole array, row-major.
struct Array {
  std::byte* data = nullptr;  // nullptr: an absent optional operand
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<int64_t> segments;  // widths of the parts of a row, for example of [q | k | v]
  bool accumulate = false;        // an output that is added to, not overwritten

  bool present() const { return data != nullptr; }
  double at(int64_t i) const;
  int64_t index_at(int64_t i) const;         // i32, i64 or u8
  void put(int64_t i, double value) const;   // rounds to the array's dtype
  void give(int64_t i, double value) const;  // put, or add if the array accumulates
  std::vector<double> row(int64_t r) const;  // of a matrix
};

// to[row, first + c] = from[row, from_first + c] for c < n, for all rows of two matrices.
void copy_columns(const Array& to, int64_t first, const Array& from, int64_t from_first, int64_t n);

struct Call {
  std::vector<Array> in, out;  // in the order of the op's members
  graph::Attributes attrs;
};
using Kernel = void (*)(const Call&);

}  // namespace strata::reference
