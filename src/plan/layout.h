// How a training job is divided among devices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/model_shape.h"
#include "plan/published_runs.h"

namespace strata::planning {

enum class PipelineSchedule {
  kGPipe,
  k1F1B,         // interleaved with more than one stage per rank
  kZeroBubble,   // ZB-H1; interleaved_zb with more than one stage per rank
  kZeroBubbleV,  // ZBV, two stages per rank
  kVHalf,
  kVMin,
  kDualPipeV,  // two stages per rank
};
// Schedules that place two stages on every rank, folded.
bool is_folded(PipelineSchedule schedule);
std::string_view to_string(PipelineSchedule schedule);

// Degrees of 1 mean that the axis is not used. The data axis contains the experts' groups.
struct Layout {
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t virtual_stages = 1;  // per pipeline rank
  int64_t context = 1;
  int64_t data = 1;
  int64_t expert = 1;
  int64_t expert_tensor = 1;  // 1, or tensor: each expert's width is sharded over the tensor axis
  int64_t overlap_chunks =
      1;  // parts of a micro-batch's rows whose exchanges along the tensor axis overlap matmuls
  // ZeRO stage: 0 nothing is sharded, 1 optimizer state, 2 and gradients, 3 and weights, over `shards` ranks
  // of the data and context axes (all of them, or groups that hold replicas of each other).
  int zero_stage = 0;
  int64_t shards = 1;
  int64_t micro_batch = 1;   // sequences
  double micro_batches = 1;  // per replica and step; a published batch may not divide evenly
  Recompute recompute = Recompute::kNone;
  bool sequence_parallel = true;  // activations between matmuls are sharded over the tensor axis
  PipelineSchedule schedule = PipelineSchedule::k1F1B;

  int64_t devices() const { return tensor * pipeline * context * data; }
  int64_t replicas() const { return data * context; }  // that reduce gradients together
};

// The constraints that the layout violates, each as a sentence with the values. `sequence` tokens.
//   tensor divides heads and ffn, and kv_heads or the reverse; pipeline * virtual_stages is at most the
//   layers; interleaving needs micro_batches divisible by pipeline; 2 * context * tensor divides the
//   sequence; expert * expert_tensor divides the experts' ranks; expert divides the experts.
std::vector<std::string> layout_violations(const ModelShape& shape, const Layout& layout, int64_t sequence);

// Time in which a pipeline rank is idle, in units of the work of one micro-batch on one stage (forward and
// backward). 1F1B and GPipe p - 1, interleaved (p - 1)/v, ZB-H1 (p - 1)/3 and interleaved a v-th of that, ZBV
// (p - 1)/6, DualPipeV (p - 1)/3 (reference: pipeline_schedules.md §1, for equal forward, input-gradient and
// weight-gradient times). V-half and V-min have no closed form: 13 and 13.5 of the 21 units of 1F1B, as
// simulated for 8 stages and 32 micro-batches.
double bubble_units(const Layout& layout);

// Micro-batches whose activations the first stage holds, in units of a stage: 1F1B p, interleaved
// p (1 + (p - 1)/(p v)), GPipe all, V-half p/2 + 1, V-min p/3 + 1, DualPipeV p + 1/2; never more than there are.
double stages_in_flight(const Layout& layout);

}  // namespace strata::planning
