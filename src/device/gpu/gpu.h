// How ops are bound on a GPU: each op's folder has a gpu.cpp with specialisations of bind<Op>(Gpu, node), plain C++ that
// every build compiles, so that programs are planned for a GPU anywhere.
#pragma once

#include <string>

#include "base/error.h"
#include "device/bind.h"
#include "device/encode.h"
#include "device/gpu/queue.h"
#include "tensor/arena.h"

namespace strata::device {

// Alignment: the planner (src/program: layout, memory plan, scratch) places operands at multiples of
// kBufferAlignment, except values that are rows of others (program/row_views.h), which begin at a row. So
// kernels that launch.h chooses by the width of rows may read vectors of 16 bytes if their rows are whole
// vectors; all others look at their pointers.
struct Gpu {};

template <typename Op>
BoundKernel bind(Gpu, const Bind<Op>& node);
template <typename Op>
bool writes(Gpu, const graph::View<Op>& update, const graph::Value& encoded, const hardware::DeviceSpec&);
template <typename Op>
Encodings<Op> encodings(Gpu, const graph::View<Op>& node, const hardware::DeviceSpec& device);

// An op, or a form of it, that has no GPU kernel. ConfigError: the run asked for it.
[[noreturn]] void not_yet(std::string_view op, const std::string& form = {});

// The copies of an op's weights that GEMMs of bf16 read, where its activations are bf16.
template <typename Op>
Encodings<Op> bf16_copies(const graph::View<Op>& node, DType activations,
                          std::initializer_list<graph::InputName<Op>> weights) {
  Encodings<Op> wanted;
  if (activations != DType::kBF16) return wanted;
  for (const graph::InputName<Op> weight : weights)
    wanted.push_back({weight, bf16_copy_of(node.untyped().in(weight.position)), DType::kBF16});
  return wanted;
}

// The step's scalars, as an update's input has them.
inline const gpu::GpuUpdateScalars* update_scalars_at(const uint8_t* place) {
  return reinterpret_cast<const gpu::GpuUpdateScalars*>(place);
}

// A part of scratch memory, at offsets that kernels may read in vectors.
class GpuScratch {
 public:
  // Returns the offset of `bytes` more.
  int64_t take(int64_t bytes) {
    const int64_t at = bytes_;
    bytes_ += align_up(bytes, kBufferAlignment);
    return at;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

// A GEMM as a part of an op's kernel (kernels/gpu/launch.h).
struct GpuGemm {
  gpu::GemmPlan plan;
  gpu::GemmShape shape;

  GpuGemm(const gpu::GemmShape& of, const hardware::DeviceSpec& device);
  int64_t scratch_bytes() const { return plan.parts_bytes; }
  void run(const Launch& launch, const void* a, const void* b, void* c, bool adds, std::byte* scratch,
           const float* bias = nullptr) const;
};

// A function of each element and a number (gpu::elementwise).
struct GpuElements {
  gpu::KernelLaunch kernel;
  int64_t n;
  float factor;

  GpuElements(const std::string& name, const graph::Value& of, double number = 1)
      : kernel(gpu::elementwise(name, of.dtype, of.shape.elements())),
        n(of.shape.elements()),
        factor(static_cast<float>(number)) {}
  void run(const Launch& launch, void* out, const void* a = nullptr, const void* b = nullptr) const {
    start(launch, kernel, gpu::ElementArgs{.out = out, .a = a, .b = b, .n = n, .factor = factor});
  }
};

// Sums over rows: out[columns] (+)= Σ in[rows, columns].
struct GpuColumnSums {
  gpu::ColumnSumsPlan plan;
  int64_t rows, columns;

  GpuColumnSums(DType dtype, int64_t of_rows, int64_t of_columns)
      : plan(gpu::column_sums(dtype, of_rows, of_columns, of_columns)), rows(of_rows), columns(of_columns) {}
  int64_t scratch_bytes() const { return plan.parts * columns * size_of(DType::kF32); }
  void run(const Launch& launch, const void* in, float* out, bool adds, std::byte* scratch) const;
};

}  // namespace strata::device
