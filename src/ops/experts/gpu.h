// Lists of token–expert pairs by expert, for kernels of several ops.
#pragma once

#include "device/gpu/gpu.h"
#include "kernels/gpu/launch_experts.h"
#include "ops/experts/experts.h"

namespace strata::device {

class GpuExpertLists {
 public:
  // ids are i32[tokens, per_token], or with token offsets i32[pairs, 1]. Takes its part of the scratch memory.
  GpuExpertLists(const Shape& ids, int64_t tokens, int64_t experts, GpuScratch& scratch);
  template <typename Op>
  GpuExpertLists(const Bind<Op>& node, GpuScratch& scratch)
      : GpuExpertLists(node.in.ids->shape, ops::tokens_of(node), node.attrs.experts, scratch) {}

  const gpu::ExpertsPlan& plan() const { return plan_; }
  // Tokens without experts (gpu::ExpertsSortArgs).
  void leave_out(int64_t sequence, int64_t idle);
  // Starts the kernels that make the lists; the result has their places.
  gpu::ExpertsSortArgs sort(const Launch& launch, const int32_t* ids, const int32_t* token_offsets,
                            std::byte* scratch) const;

 private:
  gpu::ExpertsPlan plan_;
  gpu::ExpertsSortArgs sizes_{};
  int64_t counts_at_, offsets_at_, tiles_at_, slots_at_, tokens_at_;
};

}  // namespace strata::device
