// Experts and latent attention in GGUF files. Each matrix of a layer's experts (ffn_gate_exps, ffn_up_exps,
// ffn_down_exps) is one tensor [E, rows, columns], and each bias one tensor [E, rows]. Source: llama.cpp's
// table of tensor names.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weights.h"
#include "interop/gguf.h"

namespace strata::interop {

// A family's names of an expert's tensors in a layer: `block`, the expert's number, then `gate`, `up` or
// `down`.
struct ExpertParts {
  std::string_view block = {}, gate = {}, up = {}, down = {};
};
inline constexpr ExpertParts kExpertParts{"mlp.experts.", "gate_proj", "up_proj", "down_proj"};

// The first property of the model that llama.cpp fixes to another value for this architecture, as a noun
// phrase for a message; nullopt if there is none.
std::optional<std::string_view> inexpressible(std::string_view arch, const models::ModelConfig& model);

void add_experts(GgufFields& fields, const std::string& arch, const models::ModelConfig& model);

// For a tensor of the first expert, or of all experts, adds the GGUF tensors that begin with it; for one of a
// later expert, adds nothing. `layers`: what names of layers begin with. Returns false for tensors that do not belong to experts.
bool add_expert_tensors(std::vector<GgufTensor>& tensors, const ExpertParts& parts, std::string_view layers,
                        const checkpoint::FileTensor& tensor, const checkpoint::WeightSource& weights,
                        const models::ModelConfig& model, DType dtype);

// Granite's FFN in every layer, whose gate and up matrices are one in the file. Returns false for other tensors.
bool add_fused_ffn(std::vector<GgufTensor>& tensors, const checkpoint::FileTensor& tensor,
                   const checkpoint::WeightSource& weights, const models::ModelConfig& model, DType dtype);

// Latent attention (DeepSeek), which llama.cpp computes with one key head shared by all queries: its sizes,
// and kv_b_proj as attn_k_b [heads, rank, keys] and attn_v_b [heads, values, rank].
void add_latents(GgufFields& fields, const std::string& arch, const models::ModelConfig& model);
bool add_latent_tensors(std::vector<GgufTensor>& tensors, const checkpoint::FileTensor& tensor,
                        const checkpoint::WeightSource& weights, const models::ModelConfig& model,
                        DType dtype);

}  // namespace strata::interop
