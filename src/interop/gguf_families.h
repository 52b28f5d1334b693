// How a family's config.json and tensors translate to llama.cpp's architectures.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "interop/gguf_experts.h"
#include "tensor/activation_kind.h"

namespace strata::interop {

// Theirs by ours, both without ".weight" and ".bias".
using Names = std::vector<std::pair<std::string_view, std::string_view>>;

// Which of a layer's projections have biases.
enum class Biases { kNone, kOfQkv, kAny, kAll };

struct GgufFamily {
  std::string_view model_type;    // of config.json
  std::string_view architecture;  // of the file
  // What the names of a layer's tensors begin with, before its number.
  std::string_view layers = "model.layers.";
  Names outside = {}, inside = {};  // `outside`: empty for Llama's
  bool rotates_pairs = false;       // q and k rows go from half rotation to adjacent pairs
  bool norms_plus_one = false;      // the norms of the file multiply by w where the model's do by 1 + w
  // What llama.cpp computes for the architecture, whatever a file says.
  ActivationKind activation = ActivationKind::kSilu;
  Biases biases = Biases::kNone;
  bool rope_tables = false;        // it takes a divisor for each frequency
  bool heads_share_width = false;  // a head has the width by the heads
  ExpertParts experts = {};
};

std::span<const GgufFamily> gguf_families();

}  // namespace strata::interop
