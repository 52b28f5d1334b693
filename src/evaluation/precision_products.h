// The matmuls of codes in a program, and their results from the tensors that the codes were made of. Internal to
// precision_loss.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "evaluation/precision_loss.h"
#include "graph/graph.h"
#include "ops/scaled_linear/scaled_linear.h"

namespace strata::evaluation {

struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<float> values;
  float at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * columns + j)]; }
};

// An operand of a matmul, by positions among the node's inputs.
struct OperandAt {
  ops::ScaledOperandAttrs attrs;
  int codes = graph::kNone, scales = graph::kNone;
  int greatest = graph::kNone;  // kNone: its rule has none
};

// What matmuls of experts have besides (ops/experts/experts.h).
struct ExpertsAt {
  int64_t experts = 0;
  int ids = graph::kNone;    // i32[N, k], likewise
  bool from_tokens = false;  // the first operand has one row a token, and not one a pair
};

struct Product {
  ProductRole role = ProductRole::kForward;
  std::array<OperandAt, 2> operands;
  int bias = graph::kNone;  // likewise; kNone: without
  std::optional<ExpertsAt> experts = {};
};

// nullopt for any other node, and for those that compute forward again.
std::optional<Product> product_of(const graph::Node& node);

// Some rows of a result.
struct ExactRows {
  std::vector<int64_t> rows;   // in order, evenly spaced
  std::vector<double> values;  // [rows, columns], without a bias
};

// Rows of a result in fp64: all that cost at most `multiplications`, but at least 64 of them. `sources`: the operands
// before they were quantised, in the layout of the program. `ids`: of experts, [N · k]. `rows` and `columns`: of the result.
ExactRows exact_rows(const Product& product, const std::array<Matrix, 2>& sources,
                     const std::vector<int32_t>& ids, int64_t rows, int64_t columns, int64_t multiplications);

}  // namespace strata::evaluation
