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
#include <string_view>

#include "hardware/device_spec.h"
#include "kernels/cpu/gemm_panels.h"
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
  bool weight_rows = false;       // kForward of bf16: b is the weight as plan_weight_rows has it
  // Not of kWeightGrad: the bits of a row are the same whatever the other rows are and how many. Neither the
  // library's fp32 products promise that nor the kernels for few rows. It is not asked of the library's
  // products of bf16.
  bool rows_alone = false;
  int64_t x_stride = 0;  // elements between rows of x or dx; 0: k
  int64_t y_stride = 0;  // elements between rows of y or dy; 0: n
};

// What a GEMM costs, from its sizes alone.
struct GemmCost {
  double flops = 0.0;  // 2 · m · n · k
  double bytes = 0.0;  // each operand once, an accumulated result twice
};
GemmCost gemm_cost(const GemmSpec& spec);

// What computes. kAuto: of bf16 activations, where the processor has bf16 dot products or tiles, oneDNN, but
// for weight gradients without tiles, which the own engine takes with panels of pairs (gemm_panels.h), as it
// takes all products where the library does not multiply bf16; else that engine with fp32 panels, but for
// those fp32 products that oneDNN's sgemm does faster. kPairs reads weights as oneDNN has them.
enum class GemmEngine : uint8_t { kAuto, kPanels, kPairs, kOneDnn };

// How the engine wants a weight to lie in memory; the same for every m. plain: the fp32 master itself is the
// operand. Else a buffer of `bytes` bytes, filled by pack_weight whenever the master has changed.
struct WeightEncoding {
  std::string id;  // equal ids: equal bytes, so that roles may share one buffer
  bool plain = true;
  int64_t bytes = 0;
  GemmRole role = GemmRole::kForward;  // kForward or kInputGrad
  int64_t n = 0;
  int64_t k = 0;
  DType dtype = DType::kF32;
};
WeightEncoding plan_weight_encoding(GemmRole role, int64_t n, int64_t k, DType dtype,
                                    const hardware::DeviceSpec& device,
                                    GemmEngine engine = GemmEngine::kAuto);
// For a few rows, as in decoding, where reading the weight is all that takes time: bf16 as it lies, [n, k].
// Wanted where the engine would else read the fp32 master.
bool prefers_weight_rows(int64_t m, DType dtype, const hardware::DeviceSpec& device);
WeightEncoding plan_weight_rows(int64_t n, int64_t k);

// Fills encodings. It may hold a library's handles, so one is used by one thread at a time; the encoding
// itself may be shared.
class WeightPacker {
 public:
  explicit WeightPacker(const WeightEncoding& encoding);
  ~WeightPacker();
  WeightPacker(WeightPacker&&) noexcept;
  void pack(void* dst, const float* master);

  struct Engine;

 private:
  std::unique_ptr<Engine> engine_;  // null: the master is the operand
};

struct GemmArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  const float* bias = nullptr;
  void* c = nullptr;
  void* scratch = nullptr;  // GemmPlan::scratch_bytes, aligned to 64 bytes
};

// What computes a planned GEMM.
enum class GemmKernel : uint8_t { kPanels, kPairs, kSgemm, kFewRows, kWeightRows, kOneDnn };
std::string_view name_of(GemmKernel kernel);  // "panels", "pairs", "sgemm", "few rows", "few rows", "onednn"

// A GEMM as it is to run on a device: data, made from sizes and a DeviceSpec alone, and never changed.
struct GemmPlan {
  GemmSpec spec;  // with strides filled in
  GemmCost cost;
  int64_t scratch_bytes = 0;
  int threads = 1;  // that it is to run on
  GemmKernel kernel = GemmKernel::kPanels;
  detail::PanelGemm panels;  // kPanels, kPairs
};

// Throws InternalError on a specification that makes no sense, WorldError when the library refuses. For
// oneDNN on a processor with other instruction sets than this one the scratch is estimated: such a plan is to
// be priced, and Gemm refuses it.
GemmPlan plan_gemm(const GemmSpec& spec, const hardware::DeviceSpec& device,
                   GemmEngine engine = GemmEngine::kAuto);

// A planned GEMM made ready on this machine. It holds run state (the library's argument list), so one is run
// by one thread at a time, with the plan's number of compute threads; plans are shared.
class Gemm {
 public:
  // InternalError where the plan is for another processor.
  explicit Gemm(const GemmPlan& plan);
  ~Gemm();
  Gemm(Gemm&&) noexcept;

  // Nothing is allocated by us and no shape is looked at. The same bits every time at one thread count. c
  // must not overlap the operands. Padding between the rows of c is left as it is.
  void run(const GemmArgs& args);

  const GemmPlan& plan() const { return plan_; }
  std::string engine() const;  // for people: "panels", "onednn:brg:avx512_core_bf16"

 private:
  struct Library;
  GemmPlan plan_;
  std::unique_ptr<Library> library_;  // kOneDnn
};

}  // namespace strata::cpu
