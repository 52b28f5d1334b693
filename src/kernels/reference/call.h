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
  int64_t index_at(int64_t i) const;         // of i32 or i64
  void put(int64_t i, double value) const;   // rounds to the array's dtype
  void give(int64_t i, double value) const;  // put, or add where the array accumulates
  std::vector<double> row(int64_t r) const;  // of a matrix
};

struct Call {
  std::vector<Array> in, out;  // in the order of the op's definition (ops/ops.h)
  graph::Attributes attrs;
};
using Kernel = void (*)(const Call&);

// linear.cpp. Weights are rounded to the activations' dtype, as encodings do.
void linear(const Call&);
void linear_grad_input(const Call&);
void linear_grad_weight(const Call&);
void column_sums(const Call&);
void loss_seed(const Call&);
void softcap(const Call&);
void linear_cross_entropy(const Call&);
void linear_cross_entropy_train(const Call&);
// attention.cpp and cross_attention.cpp
void qk_norm(const Call&);
void qk_norm_grad_input(const Call&);
void qk_norm_grad_weight(const Call&);
void rope_table(const Call&);
void rope(const Call&);
void attention(const Call&);
void attention_grad(const Call&);
void cached_attention(const Call&);
void cross_attention(const Call&);
void cross_attention_grad(const Call&);
void cached_cross_attention(const Call&);
void store_cross(const Call&);
void document_ends(const Call&);
void relative_bias(const Call&);
void relative_bias_grad(const Call&);
// rows.cpp
void constant(const Call&);
void take_row(const Call&);
void add(const Call&);
void scale(const Call&);
void add_row(const Call&);
void add_row_grad(const Call&);
void embedding(const Call&);
void embedding_grad(const Call&);
void rms_norm(const Call&);
void rms_norm_grad_input(const Call&);
void rms_norm_grad_weight(const Call&);
void layer_norm(const Call&);
void layer_norm_grad_input(const Call&);
void layer_norm_grad_weight(const Call&);
// activation.cpp
void gated(const Call&);
void gated_grad(const Call&);
void activation(const Call&);
void activation_grad(const Call&);
// clamp.cpp
void clamp(const Call&);
void clamp_grad(const Call&);
// update.cpp
void sum_of_squares(const Call&);
void update_scalars(const Call&);
void root_of_sum(const Call&);
void adamw(const Call&);

}  // namespace strata::reference
