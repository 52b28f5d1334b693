// Models with experts, and those with latent attention, in GGUF files: the experts of a layer are one tensor
// [E, rows, columns] for each of their matrices, ffn_gate_exps, ffn_up_exps and ffn_down_exps, and so are
// their biases. Source: llama.cpp's table of tensor names.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weights.h"
#include "interop/gguf.h"

namespace strata::interop {

// How a family names the parts of an expert in a layer: BLOCK, its number, and the part.
struct ExpertParts {
  std::string_view block = {}, gate = {}, up = {}, down = {};
};
inline constexpr ExpertParts kExpertParts{"mlp.experts.", "gate_proj", "up_proj", "down_proj"};

// What llama.cpp computes otherwise for this architecture, whatever a file says.
std::optional<std::string_view> inexpressible(std::string_view arch, const models::ModelConfig& model);

void add_experts(GgufFields& fields, const std::string& arch, const models::ModelConfig& model);

// Of a tensor that belongs to experts: those of the file that begin with it, none for all but the first
// expert. False for any other tensor.
bool add_expert_tensors(std::vector<GgufTensor>& tensors, const ExpertParts& parts,
                        const checkpoint::FileTensor& tensor, const checkpoint::WeightSource& weights,
                        const models::ModelConfig& model, DType dtype);

// Latent attention (DeepSeek), which llama.cpp computes as one head of keys that all queries share: sizes,
// and kv_b_proj as attn_k_b [heads, rank, keys] and attn_v_b [heads, values, rank].
void add_latents(GgufFields& fields, const std::string& arch, const models::ModelConfig& model);
bool add_latent_tensors(std::vector<GgufTensor>& tensors, const checkpoint::FileTensor& tensor,
                        const checkpoint::WeightSource& weights, const models::ModelConfig& model,
                        DType dtype);

}  // namespace strata::interop
