// What all mixtures of experts are made of. Internal to moe.cpp and group_routers.cpp.
#pragma once

#include "layers/layers.h"

namespace strata::layers {

// Logits f32[N, outputs] of a router NAME.weight, in fp32 whatever the activations are.
ValueId router_logits(Context& context, const std::string& name, int64_t outputs, int64_t width, ValueId x);
// Adds to the layer's counts of slots that went to each expert.
void count_slots(Context& context, const MoeSpec& spec, ValueId ids);
void add_z_loss(Context& context, const MoeSpec& spec, ValueId logits);
// The experts' FFNs: a row of x for each row of ids[N, k], the sums of its slots by their weights; weights
// kNone: all 1.
ValueId experts_of(Context& context, const MoeSpec& spec, ValueId x, ValueId ids, ValueId weights);

// group_routers.cpp: what is made of all tokens of a sequence, or of a rank's part of the micro-batch. As
// experts_of, with a row a token.
ValueId experts_that_choose(Context& context, const MoeSpec& spec, ValueId x);
ValueId soft_experts(Context& context, const MoeSpec& spec, ValueId x);

}  // namespace strata::layers
