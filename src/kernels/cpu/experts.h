// Grouped GEMMs of a mixture of experts, as ops/experts defines them: N tokens with k token-expert pairs
// each, ids[N, k], the weights of all experts in one matrix w[experts · outputs, inputs]. A pair with id -1
// costs no arithmetic.
//
//   role            a                    b                 c
//   kIn             x[N, inputs]         w                 y[N · k, outputs]
//   kInGradInput    dy[N · k, outputs]   w                 dx[N, inputs]
//   kInGradWeight   dy[N · k, outputs]   x[N, inputs]      dw (fp32)
//   kOut            h[N · k, inputs]     w                 y[N, outputs]
//   kOutGradInput   dy[N, outputs]       w                 dh[N · k, inputs]
//   kOutGradWeight  dy[N, outputs]       h[N · k, inputs]  dw (fp32)
//
// With offsets, tokens have any number of pairs: token n has the pairs [offsets[n], offsets[n + 1]). N · k is
// then the capacity for pairs, and rows of pairs without a token become zeros.
//
// Activations are f32, bf16 or fp16; sums are fp32. The fp32 weight is rounded to the activations' type.
// The bits depend only on the sizes: an element is summed expert by expert in ascending order, and within an
// expert in depth steps that the sizes determine. A weight gradient is one sum over an expert's pairs in
// their order, whether one call has all of them or several calls accumulate. Exception: without offsets, on
// processors with fast bf16 dot products, calls that split the two rows of a dot product yield other last
// bits.
#pragma once

#include <cstdint>

#include "hardware/device_spec.h"
#include "kernels/cpu/gemm_block.h"
#include "tensor/dtype.h"

namespace strata::cpu {

enum class ExpertsRole : uint8_t { kIn, kInGradInput, kInGradWeight, kOut, kOutGradInput, kOutGradWeight };

struct ExpertsSpec {
  ExpertsRole role = ExpertsRole::kIn;
  int64_t tokens = 0;
  int64_t k = 1;       // token-expert pairs per token
  int64_t slots = -1;  // capacity for pairs, with offsets; -1: no offsets, tokens · k pairs
  int64_t experts = 1;
  int64_t outputs = 0, inputs = 0;  // of one expert
  DType dtype = DType::kF32;        // of the activations
  bool accumulate = false;          // weight gradients only: c += instead of c =

  bool has_offsets() const { return slots >= 0; }
  int64_t all_slots() const { return has_offsets() ? slots : tokens * k; }
};

// How to block the GEMMs: data, made only from sizes and a DeviceSpec. The number of rows per expert is known
// only at run time; scratch suffices for any routing.
struct ExpertsPlan {
  ExpertsSpec spec;
  bool pairs =
      false;  // bf16 arithmetic, if the processor has it; else narrower operands are converted to fp32
  detail::PanelShape shape;
  int64_t workers = 1;     // threads that have scratch
  int64_t depth_step = 0;  // depth of one step
  int64_t col_block = 0;   // columns of c per task
  int64_t row_block = 0;   // most rows of c per task; for a sum over pairs, tokens
  int64_t chunks = 1;      // of tokens, each sorted separately
  // Offsets in bytes from the start of scratch, and from the start of a worker's scratch.
  int64_t slots_at = 0, tokens_at = 0, tasks_at = 0, workers_at = 0;
  int64_t b_at = 0, sums_at = 0, worker_bytes = 0;
  int64_t scratch_bytes = 0;
};
ExpertsPlan plan_experts(const ExpertsSpec& spec, const hardware::DeviceSpec& device);

// Throws InternalError on an id outside [-1, experts), and on a plan for another processor.
void run_experts(const ExpertsPlan& plan, const void* a, const int32_t* ids, const int32_t* offsets,
                 const void* b, void* c, void* scratch);

// counts[experts] = (accumulate ? counts : 0) + the number of pairs of each expert; with targets, only pairs
// of tokens whose target is not negative.
void expert_counts(int64_t tokens, int64_t k, int64_t experts, int64_t* counts, const int32_t* ids,
                   const int32_t* targets, bool accumulate);

}  // namespace strata::cpu
