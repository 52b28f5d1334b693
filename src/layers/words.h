// What messages call the settings that a graph is built by.
#pragma once

#include <string_view>

namespace strata::layers {

// Plain words, unless the caller has keys for them. An empty word means that there is no such setting.
struct Words {
  std::string_view tensor = "tensor", context = "context", context_kind = "context kind";
  std::string_view sequence = "sequence parallelism", expert = "expert", expert_tensor = "expert tensor";
  std::string_view sequence_length = "sequence length", micro_batch = "micro-batch size";
  std::string_view router = "router", pool_layers = "pooled layers";
  std::string_view capacity_factor = "capacity factor", capacity_over = "capacity over";
  std::string_view min_capacity = "least capacity", prompts = {};
};

}  // namespace strata::layers
