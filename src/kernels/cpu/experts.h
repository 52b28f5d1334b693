// Products of a mixture of experts (grouped GEMMs), as ops/experts defines them: N tokens of k slots each,
// ids[N, k], the weights of all experts in one matrix w[experts · outputs, inputs]. A slot with id -1 costs
// no product.
//
//   role            a                    b                 c
//   kIn             x[N, inputs]         w                 y[N · k, outputs]
//   kInGradInput    dy[N · k, outputs]   w                 dx[N, inputs]
//   kInGradWeight   dy[N · k, outputs]   x[N, inputs]      dw (fp32)
//   kOut            h[N · k, inputs]     w                 y[N, outputs]
//   kOutGradInput   dy[N, outputs]       w                 dh[N · k, inputs]
//   kOutGradWeight  dy[N, outputs]       h[N · k, inputs]  dw (fp32)
//
// Where tokens have any number of slots, `slots` in all at most, those of token n are [offsets[n], offsets[n
// + 1]): N · k is then `slots`, and rows of slots that no token has become zeros.
//
// Activations are f32 or bf16, sums fp32. With bf16 activations the fp32 weight takes part rounded to bf16.
// The bits depend on the sizes alone: an element is summed expert by expert in ascending order, and within an
// expert in steps of a depth that the sizes give. A weight gradient is one sum over an expert's slots in
// their order, whether one call has them all or several add to it (without offsets in pairs where the
// processor multiplies those: there calls that end between two slots of a pair give other last bits).
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
  int64_t k = 1;       // slots a token
  int64_t slots = -1;  // with offsets: room for slots; −1: tokens · k, without
  int64_t experts = 1;
  int64_t outputs = 0, inputs = 0;  // of one expert
  DType dtype = DType::kF32;        // of the activations
  bool accumulate = false;          // weight gradients only: c += instead of c =

  bool has_offsets() const { return slots >= 0; }
  int64_t all_slots() const { return has_offsets() ? slots : tokens * k; }
};

// How the products are to be cut: data, made from sizes and a DeviceSpec alone. How many rows an expert has
// is only known at run time; scratch is enough for any routing.
struct ExpertsPlan {
  ExpertsSpec spec;
  bool pairs = false;  // bf16 arithmetic, for processors that have it; else bf16 operands are made fp32
  detail::PanelShape shape;
  int64_t workers = 1;     // that have scratch
  int64_t depth_step = 0;  // deep at once
  int64_t col_block = 0;   // columns of c that a task has
  int64_t row_block = 0;   // rows of c that a task has at most; of a sum over slots, tokens
  int64_t chunks = 1;      // of tokens that are sorted by themselves
  // Bytes from the start of scratch, and from the start of a worker's part of it.
  int64_t slots_at = 0, tokens_at = 0, tasks_at = 0, workers_at = 0;
  int64_t b_at = 0, sums_at = 0, worker_bytes = 0;
  int64_t scratch_bytes = 0;
};
ExpertsPlan plan_experts(const ExpertsSpec& spec, const hardware::DeviceSpec& device);

// Throws InternalError on an id outside [-1, experts), and on a plan for another processor.
void run_experts(const ExpertsPlan& plan, const void* a, const int32_t* ids, const int32_t* offsets,
                 const void* b, void* c, void* scratch);

// counts[experts] = how many of the slots each expert has, or added to what is there; with targets, of tokens
// with one that is not negative.
void expert_counts(int64_t tokens, int64_t k, int64_t experts, int64_t* counts, const int32_t* ids,
                   const int32_t* targets, bool accumulate);

}  // namespace strata::cpu
