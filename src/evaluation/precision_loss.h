// Measures the precision that a training step in 8 or 4 bits loses: of each operand against the tensor that it was
// quantised from, and of each matmul against the same of these tensors.
//
// The ratio of signal to noise of b against a, in dB, is 10 log10(Σ a² / Σ (a − b)²).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "program/executor.h"
#include "quantize/recipe.h"

namespace strata::evaluation {

enum class ProductRole : uint8_t { kForward, kInputGrad, kWeightGrad };
std::string_view name_of(ProductRole role);  // "forward", "input_grad", "weight_grad"

// Ratios end here: at the top without any difference, at the bottom (negative) with NaN or infinity.
inline constexpr double kMostDecibels = 200;
double decibels(double signal, double noise);

struct OperandLoss {
  std::string tensor = {};  // that was quantised
  std::string format = {};  // "e4m3"
  std::string rule = {};    // ScaleRule::str()
  // Where a recipe transforms the operand, of the transformed numbers. Weight gradients of experts round an operand once
  // more, along the pairs of an expert, which only the ratio of the result shows.
  double snr_db = 0;
  double saturated =
      0;               // share of the elements above the largest number of their block by more than rounding
  double flushed = 0;  // share of the elements that are not 0 and became 0
};

struct ProductLoss {
  std::string op = {};
  int32_t layer = graph::kNone;  // of the model's blocks
  ProductRole role = ProductRole::kForward;
  std::string weight = {};  // the parameter; of experts, of all of a layer
  std::array<OperandLoss, 2> operands = {};
  double snr_db = 0, gate_db = 0;
  int64_t rows = 0, rows_compared = 0;  // of the result
  bool fits() const { return snr_db >= gate_db; }
};

// The least ratio of a matmul's result, in dB. 8 bits: 18 for outputs, 17 for gradients, as the tests of torchao 0.18
// ask of a linear layer. 4 bits: 10 (Primus-Turbo's tests).
double gate_of(const quantize::Recipe& recipe, ProductRole role);

struct PrecisionOptions {
  // Multiplications to spend on one matmul's reference, which is summed in fp64. Larger ones are compared in evenly
  // spaced rows, in at least 64 of them.
  int64_t multiplications = int64_t{1} << 28;
  std::function<void(double done)> progress = {};
};

// Runs forward and backward of the first micro-batch of a program that trains with a recipe, and measures its matmuls,
// in the order in which they run. The executor has one rank; its weights are loaded and packed, and the micro-batch is
// uploaded. Gradients then hold that micro-batch only. Holds each input of a matmul in memory until its last use.
std::vector<ProductLoss> measure_precision(program::Executor& executor, size_t index,
                                           const PrecisionOptions& options = {});

}  // namespace strata::evaluation
