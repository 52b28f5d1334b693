// The mapping of each family's config.json and tensors to llama.cpp's architectures.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "interop/gguf_experts.h"
#include "tensor/activation_kind.h"

namespace strata::interop {

// Pairs of (our name, llama.cpp's name), both without ".weight" and ".bias".
using Names = std::vector<std::pair<std::string_view, std::string_view>>;

// Ends llama.cpp's name of a tensor that has neither ending there.
inline constexpr char kNoEnding = '!';

// The projections of a layer that have biases.
enum class Biases { kNone, kOfQkv, kAny, kAll };

struct GgufFamily {
  std::string_view model_type;    // of config.json
  std::string_view architecture;  // of the file
  // Prefix of a layer's tensor names, before its number.
  std::string_view layers = "model.layers.";
  Names outside = {}, inside = {};  // outside and inside layers; an empty `outside` means Llama's names
  bool rotates_pairs = false;       // q and k rows are reordered from half rotation to adjacent pairs
  bool norms_plus_one = false;      // the file stores 1 + w of a norm
  // Properties that llama.cpp fixes for the architecture.
  ActivationKind activation = ActivationKind::kSilu;
  Biases biases = Biases::kNone;
  bool rope_tables = false;        // it accepts a divisor per frequency
  bool heads_share_width = false;  // the head size is hidden_size / heads
  ExpertParts experts = {};
};

std::span<const GgufFamily> gguf_families();

}  // namespace strata::interop
