// Sizes of a transformer as planning formulas need them, its parameter counts, and its FLOPs for one token in
// each convention in which MFU is published.
//
// A ModelShape comes from a row of published runs (row_shape.h) or from a model's configuration.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::planning {

// DeepSeek's attention: keys and values are projected from a latent vector. All 0: not used.
struct LatentAttention {
  int64_t query_rank = 0;  // 0 with key_value_rank > 0: queries are projected directly
  int64_t key_value_rank = 0;
  int64_t rope_dim = 0;   // of the part with positions, shared by the heads
  int64_t nope_dim = 0;   // of the part without, per head
  int64_t value_dim = 0;  // per head
  bool used() const { return key_value_rank > 0; }
  friend bool operator==(const LatentAttention&, const LatentAttention&) = default;
};

// Layers with experts replace the MLP of every `every`-th layer after the first `dense_layers`.
struct ExpertShape {
  int64_t experts = 0;    // routed; 0: a dense model
  int64_t per_token = 0;  // routed experts that process a token
  int64_t shared = 0;     // experts of the same width that process all tokens
  int64_t width = 0;      // ffn of one expert
  int64_t every = 1;
  int64_t dense_layers = 0;
  int64_t node_limit = 0;  // hosts to which the router sends a token at most; 0: no limit
  friend bool operator==(const ExpertShape&, const ExpertShape&) = default;
};

class LayerCosts;

// A layer of a model whose layers differ in more than their experts.
struct LayerOfKind {
  int32_t kind = 0;  // LayerCosts'
  bool has_experts = false;
  friend bool operator==(const LayerOfKind&, const LayerOfKind&) = default;
};

struct ModelShape {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;  // of the dense layers
  int64_t vocab = 0;
  bool gated = true;  // three matrices in an MLP (SwiGLU) instead of two
  bool tied = false;  // the head is the embedding
  ExpertShape moe = {};
  LatentAttention latent = {};
  // Where formulas lack closed forms: each layer, and what these cost; the sizes above are those of attention.
  std::vector<LayerOfKind> each = {};
  std::shared_ptr<const LayerCosts> costs = {};

  bool has_experts() const { return moe.experts > 0; }
  int64_t moe_layers() const;
  int64_t dense_layers() const { return layers - moe_layers(); }
  int64_t mlp_matrices() const { return gated ? 3 : 2; }
  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

// Numbers of parameters. Those of layers are of one layer.
struct ParameterCounts {
  double attention = 0;  // projections
  double norms = 0;      // of a layer
  double mlp = 0;        // of a dense layer
  double expert = 0;     // one expert
  double router = 0;
  double embedding = 0;
  double head = 0;    // as used in the forward pass; stored once with the embedding if tied
  double stored = 0;  // the model
  double active = 0;  // those that process a token
  double matmul = 0;  // active ones in matmuls: with the head once, without the embedding
};
// N = h V (1 or 2) + L (h d_h (a + 2k) + a d_h h + n h f + 2h) + h (reference §2 of planning; GPT-2's biases
// and learned positions, below 0.1 %, are left out). With experts: E experts, shared ones and a router.
ParameterCounts count_parameters(const ModelShape& shape);

// How a publication counts FLOPs.
enum class FlopConvention {
  kModelFull,     // 6 N_matmul + 12 L a d_h s: PaLM, nanotron, torchtitan, NVIDIA dgxc 2024
  kModelCausal,   // the attention halved: Megatron since 2025, Megatron-Bridge, MaxText since July 2025
  kNoAttention,   // 6 N_matmul
  kMosaic,        // 6 N_all + 12 L h s: llm-foundry
  kSc21Hardware,  // 96 L h² (1 + s/6h + V/16Lh): Megatron-LM 2021, includes full recomputation
  kSc21Model,     // 72 L h² (1 + s/6h + V/12Lh): arXiv 2205.05198
  kMegatron2024,  // 12 L h² ((1 + k/a + s/h) q + n f K/2h + V/2Lh), full attention
};
std::string_view to_string(FlopConvention convention);
std::span<const FlopConvention> flop_conventions();

// FLOPs of the training step (forward and backward) for one token of a sequence of `sequence` tokens. With
// latent attention, 6 L s a (d_qk + d_v) for full attention.
double flops_per_token(const ModelShape& shape, int64_t sequence, FlopConvention convention);

}  // namespace strata::planning
