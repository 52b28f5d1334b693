// What all mixtures of experts are made of. Internal to moe.cpp and group_routers.cpp.
#pragma once

#include "layers/expert_ffn.h"
#include "layers/layers.h"

namespace strata::layers {

// Logits f32[N, outputs] of a router NAME.weight, with NAME.bias if it has one, in fp32 for any type of
// activations.
ValueId router_logits(Context& context, const std::string& name, int64_t outputs, int64_t width, ValueId x,
                      bool biased = false);
// The router's input, in training with noise if configured; a token's noise depends on its place in its
// sample.
ValueId jittered(Context& context, const MoeLayer& layer, ValueId x);
// Adds to the layer's counts of tokens per expert, of tokens with a target if targets are passed; and the
// squares of the logits' log Σ exp.
void count_slots(Context& context, const MoeLayer& layer, ValueId logits, ValueId ids,
                 ValueId targets = kNone);
void add_z_loss(Context& context, const MoeSpec& spec, ValueId logits);
// group_routers.cpp: routing by all tokens of a sequence, or of a rank's part of the micro-batch. Like
// experts_of, with a row per token.
ValueId experts_that_choose(Context& context, const MoeLayer& layer, ValueId x);
ValueId soft_experts(Context& context, const MoeLayer& layer, ValueId x);

}  // namespace strata::layers
