// The GEMMs of a linear layer y[m,n] = x[m,k] · W[n,k]ᵀ + bias[n], in its three roles:
//
//   role          a          b                        c
//   kForward      x[m,k]     W, encoded for kForward  y[m,n]  = x · Wᵀ (+ bias)
//   kInputGrad    dy[m,n]    W, encoded for kInputGrad dx[m,k] = dy · W
//   kWeightGrad   dy[m,n]    x[m,k]                   dW[n,k] = dyᵀ · x, or added to what is there (fp32)
//
// Activations are f32 or bf16, row-major with a row stride, so that slices of fused buffers (qkv, gate_up)
// work. Sums are fp32; the master weight is fp32, row-major and dense. With bf16 activations the weight takes
// part rounded to bf16 on every processor, native bf16 or not. Any size may be 0.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tensor/dtype.h"

namespace strata::cpu {

enum class GemmRole : uint8_t { kForward, kInputGrad, kWeightGrad };

struct GemmSpec {
  GemmRole role = GemmRole::kForward;
  int64_t m = 0;                  // tokens
  int64_t n = 0;                  // outputs of the layer
  int64_t k = 0;                  // inputs of the layer
  DType dtype = DType::kF32;      // of a (and b of the weight gradient): kF32 or kBF16
  DType out_dtype = DType::kF32;  // of y or dx: kF32 or dtype; dW is always kF32
  bool bias = false;              // kForward only
  bool accumulate = false;        // kWeightGrad only: c += instead of c =
  int64_t x_stride = 0;           // elements between rows of x or dx; 0: k
  int64_t y_stride = 0;           // elements between rows of y or dy; 0: n
};

// What a GEMM costs, from its sizes alone.
struct GemmCost {
  double flops = 0.0;  // 2 · m · n · k
  double bytes = 0.0;  // each operand once, an accumulated result twice
};
GemmCost gemm_cost(const GemmSpec& spec);

}  // namespace strata::cpu
