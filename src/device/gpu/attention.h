// Attention as a part of ops' kernels on a GPU: which of the kernels run, what each row sees, and the arguments.
#pragma once

#include "device/gpu/gpu.h"
#include "kernels/gpu/launch_plain.h"

namespace strata::device {

// What a call reads besides queries, keys and values; as AttentionRangesArgs and PlainAttentionArgs have them.
struct GpuAttentionInputs {
  const int32_t* kv_begin = nullptr;
  const int32_t* kv_end = nullptr;
  const int32_t* sequence_end = nullptr;
  const int32_t* position = nullptr;
  const int32_t* entries = nullptr;
  const float* bias = nullptr;
};

class GpuAttention {
 public:
  // How rows of a sequence see keys, and their bias.
  struct Form {
    double scale = 1, softcap = 0;
    bool causal = false, chunked = false;
    int64_t window = 0;
    int64_t repeat = 1;                     // consecutive rows with one place
    int64_t bias_width = 0, bias_zero = 0;  // width 0: no bias
  };
  // Strides of rows, in elements.
  struct Strides {
    int64_t q = 0, k = 0, v = 0, out = 0;
  };
  GpuAttention(gpu::AttentionShape shape, const Strides& strides, const Form& form);

  const gpu::AttentionShape& shape() const { return shape_; }
  const GpuScratch& scratch() const { return scratch_; }
  GpuScratch& scratch() { return scratch_; }

  // The arguments of a call, after its ranges; q, k, v and results are left to the caller.
  gpu::PlainAttentionArgs begin(const Launch& launch, std::byte* scratch, const GpuAttentionInputs& in) const;
  void forward(const Launch& launch, gpu::PlainAttentionArgs args) const;
  // delta, then dq, dk and dv; and the bias's gradient where dbias is not null: [heads, width], with `parts` of
  // bias_parts_bytes() as its workspace.
  void backward(const Launch& launch, gpu::PlainAttentionArgs args, float* dbias = nullptr,
                std::byte* parts = nullptr) const;
  int64_t bias_parts_bytes() const;

 private:
  gpu::AttentionShape shape_;
  gpu::PlainAttentionArgs args_{};
  gpu::AttentionRangesArgs ranges_{};
  bool plain_ = false;
  GpuScratch scratch_;
  int64_t rows_at_ = 0, tiles_at_ = 0;
  gpu::KernelLaunch find_ranges_, forward_;
  std::vector<gpu::KernelLaunch> backward_;  // not plain
  gpu::KernelLaunch delta_;                  // plain
  gpu::PlainAttentionBackward plain_backward_;
  gpu::BiasGradientPlan bias_gradient_;
};

}  // namespace strata::device
