// GEMMs of a linear layer, y[m,n] = x[m,k] · W[n,k]ᵀ + bias[n], in three roles:
//
//   role          a          b                          c
//   kForward      x[m,k]     W, packed for kForward     y[m,n]  = x · Wᵀ (+ bias)
//   kInputGrad    dy[m,n]    W, packed for kInputGrad   dx[m,k] = dy · W
//   kWeightGrad   dy[m,n]    x[m,k]                     dW[n,k] = dyᵀ · x, or dW += dyᵀ · x (fp32)
//
// Activations are fp32, bf16 or fp16, row-major with a row stride: slices of fused buffers (qkv) work too.
// Sums are fp32; the master weight is fp32, row-major and dense. With bf16 activations the weight is rounded
// to bf16 on every processor, with or without native bf16; with fp16 ones it is rounded to fp16, and operands
// are widened while they are packed. Any size may be 0.
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
  DType dtype = DType::kF32;      // of a (and b of the weight gradient): kF32, kBF16 or kF16
  DType out_dtype = DType::kF32;  // of y or dx: kF32 or dtype; dW is always kF32
  bool bias = false;              // kForward only
  bool accumulate = false;        // kWeightGrad only: c += instead of c =
  bool weight_rows = false;       // kForward of bf16: b has the layout of plan_weight_rows
  // Not for kWeightGrad. A row's bits depend neither on the other rows nor on their number. The library's
  // fp32 GEMMs and the skinny GEMM do not guarantee this; the library's bf16 GEMMs are not asked to.
  bool rows_alone = false;
  int64_t x_stride = 0;  // elements between rows of x or dx; 0: k
  int64_t y_stride = 0;  // elements between rows of y or dy; 0: n
};

// Cost of a GEMM, a function of its sizes.
struct GemmCost {
  double flops = 0.0;  // 2 · m · n · k
  double bytes = 0.0;  // each operand once, an accumulated result twice
};
GemmCost gemm_cost(const GemmSpec& spec);

// Implementations. kAuto chooses:
//   - bf16 activations on a processor with bf16 dot products or AMX: oneDNN. Weight gradients without AMX,
//     and all roles if the library does not multiply bf16, use the in-house GEMM on VNNI panels
//     (gemm_panels.h).
//   - otherwise, and for fp16, the in-house GEMM on fp32 panels; for some fp32 GEMMs the skinny GEMM or
//     oneDNN's sgemm, if they are faster.
// kPairs reads weights in oneDNN's packed layout.
enum class GemmEngine : uint8_t { kAuto, kPanels, kPairs, kOneDnn };

// Packed layout that the engine reads a weight in; the same for every m. plain: the engine reads the fp32
// master itself. Otherwise it reads a buffer of `bytes` bytes, which a WeightPacker refills after each change
// of the master.
struct WeightEncoding {
  std::string id;  // the same id means the same bytes, so roles may share a buffer
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
// bf16 copy of the weight, [n, k], for skinny GEMMs as in decoding, where reading the weight takes all the
// time. Preferred if the engine would otherwise read the fp32 master.
bool prefers_weight_rows(int64_t m, DType dtype, const hardware::DeviceSpec& device);
WeightEncoding plan_weight_rows(int64_t n, int64_t k);

// Packs weights. It may hold handles of the library, so only one thread at a time may use it. Packers may
// share a WeightEncoding.
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

// Kernel of a planned GEMM.
enum class GemmKernel : uint8_t { kPanels, kPairs, kSgemm, kSkinny, kWeightRows, kOneDnn };
std::string_view name_of(GemmKernel kernel);  // "panels", "pairs", "sgemm", "skinny", "skinny", "onednn"

// A GEMM planned for a device: immutable data, a function of sizes and a DeviceSpec.
struct GemmPlan {
  GemmSpec spec;  // with strides filled in
  GemmCost cost;
  int64_t scratch_bytes = 0;
  int threads = 1;  // that will run it
  GemmKernel kernel = GemmKernel::kPanels;
  detail::PanelGemm panels;  // kPanels, kPairs
};

// Throws InternalError for an invalid specification and WorldError if the library refuses it. If oneDNN is to
// run on a processor with other instruction sets than this one, the scratch size is an estimate: the plan can
// be priced, but Gemm rejects it.
GemmPlan plan_gemm(const GemmSpec& spec, const hardware::DeviceSpec& device,
                   GemmEngine engine = GemmEngine::kAuto);

// A planned GEMM, ready to run on this machine. It holds run state (the library's argument list), so only one
// thread at a time may run it, with the plan's number of compute threads. Plans may be shared.
class Gemm {
 public:
  // Throws InternalError if the plan is for another processor.
  explicit Gemm(const GemmPlan& plan);
  ~Gemm();
  Gemm(Gemm&&) noexcept;

  // Neither allocates memory nor checks shapes. Results are bit-identical from run to run for a given
  // number of threads. c must not overlap the operands; padding between its rows is left unchanged.
  void run(const GemmArgs& args);

  const GemmPlan& plan() const { return plan_; }
  std::string engine() const;  // to display: "panels", "onednn:brg:avx512_core_bf16"

 private:
  struct Library;
  GemmPlan plan_;
  std::unique_ptr<Library> library_;  // kOneDnn
};

}  // namespace strata::cpu
