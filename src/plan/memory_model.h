// Memory of the fullest device of a training job by formulas (reference: planning.md §2).
#pragma once

#include "plan/catalogue.h"
#include "plan/row_job.h"
#include "plan/stack_profile.h"

namespace strata::planning {

// Bytes on one device at the peak of a step.
struct MemoryUse {
  double weights = 0;
  double gradients = 0;
  double optimizer = 0;     // master weights and moments
  double gathered = 0;      // weights of the layers in use, with ZeRO-3
  double activations = 0;   // kept for the backward pass, of all micro-batches in flight
  double working = 0;       // of the layer in use, when layers are recomputed
  double logits = 0;        // of the loss
  double reserved = 0;      // context, communication buffers
  bool last_stage = false;  // of the pipeline; the first one otherwise

  double total() const {
    return weights + gradients + optimizer + gathered + activations + working + logits + reserved;
  }
};

// The fuller one of the first stage (embedding, most micro-batches in flight) and the last (head, loss).
MemoryUse memory_use(const TrainingJob& job, const StackProfile& stack, const Profiles& profiles,
                     const ChipSpec& chip);

// Bytes that a dense layer keeps for the backward pass of one micro-batch, on one device.
//   Attention with stored scores (2205.05198, table 2), sbh (10 + 24/t + 5as/ht); with sequence parallelism
//   sbh/t (34 + 5as/h); selective recomputation drops 5as/h; full recomputation keeps the layer's input,
//   2sbh. Fused attention: sbh (12 + 4k/a + 6f/h) (4f/h without a gate), plus 4as b for the softmax, all /t;
//   selective recomputation keeps the stack's share of it.
double layer_activation_bytes(const TrainingJob& job, const StackProfile& stack);

}  // namespace strata::planning
