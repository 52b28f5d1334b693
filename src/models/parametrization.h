// Initialization and learning rates of a decoder's parameters: initialization schemes, and µP.
//
// Schemes and their sources (s is ModelConfig::init_std, d the width, f the FFN's, L the layers, l a layer from
// 0; "output projections" are those of attention and FFN; biases are 0, norm weights 1):
//   kPlain            N(0, s²) everywhere: transformers' _init_weights with initializer_range, the only scheme
//                     published for Mistral, Qwen, Gemma and Phi
//   kScaledResidual   the same, s / √2L for output projections: GPT-2 (Radford et al. 2019, 2.3;
//                     transformers), Megatron-LM (init_method_std and scaled_init_method_normal)
//   kSmallWang        √(2/5d), also for embedding and head, and 2 / (L√d) for output projections: GPT-NeoX and
//                     Pythia ("small_init", "wang_init" of megatron/model/init_functions.py; Black et al. 2022)
//   kTruncatedNormal  N(0, s²) cut at 3 s everywhere: OLMo 2 (init_fn normal, init_std 0.02,
//                     init_cutoff_factor 3 of configs/official-1124 and -0425 in allenai/OLMo;
//                     InitMethod.normal of OLMo-core)
//   kMitchell         1/√d, and 1/√(2d(l+1)) and 1/√(2f(l+1)) for the output projections of attention and FFN,
//                     all cut at 3 standard deviations: OLMo 1 (init_fn mitchell of configs/official-0724,
//                     olmo/model.py)
//   kT5               s (T5's initializer_factor, 1) for the embedding, s/√(d · head size) for queries, whose
//                     scores are not scaled, s/√(heads · head size) and s/√f for output projections, s/√d for
//                     everything else, an untied head included: T5 (Raffel et al. 2020; mesh_tensorflow, T5X).
//                     transformers initializes such a head with s, so that a loss begins at eight times ln V.
//
// µP (Yang et al. 2022, "Tensor Programs V", tables 3, 8 and 9): settings that were tuned at a base width
// hold at any other. With m = width / base width and h = head size / base head size, relative to the scheme
// at the base width:
//                                    standard deviation   learning rate
//   hidden matrices                  1/√m                 1/m
//   embedding, biases, norm weights  1                    1
//   head (untied)                    1/m                  1/m
//   routers                          1/m                  1/m
//   scores                           × 1/√h, so that they are scaled by 1 / head size
//   logits (tied)                    × 1/m
// The last two multiply values, which config.json cannot express. A multiplier a on a matmul with W is
// equivalent to a·W in its place, initialized at a and updated at a times the rate: Adam's steps do not depend
// on the gradient's scale, except for its eps. So the scores' multiplier is in the rows of q (or in the norm of
// q, if there is one), and the logits' in the last norm's weight and bias. An exported model needs nothing that
// its class does not have. If the embedding is multiplied by √d (Gemma), it is initialized and learns at 1/√m,
// and the logits' multiplier is 1/√m. Weight decay: learning rate times decay stays as at the base width for
// every parameter, as in the authors' package (MuAdamW of microsoft/mup multiplies a matrix's decay by m).
// All widths are assumed to grow with the model's: q, k, v and FFN, including those of experts, in proportion.
// The number of experts and of experts per token stays: a router's logits are outputs, the same number at any
// width, and its matrix scales like a head's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"

namespace strata::models {

// Initializes every parameter of the graph.
void apply_init(const ModelConfig& config, graph::Graph& graph);

// µP's factor on a parameter's learning rate, and further ones for its segments (empty: all 1).
struct RateScale {
  double whole = 1;
  std::vector<double> parts = {};
};
RateScale rate_scale(const ModelConfig& config, graph::ParameterRole role);

// Matrices decay, vectors (biases and the weights of norms) do not. Tables are matrices that are looked up,
// not multiplied; a tied head is one too.
bool is_matrix(graph::ParameterRole role);
// Whether it may be stored in bf16 between steps: matrices and tables whose readers compute in bf16 if a device has
// it. Routers, distances between positions and decays decide, norms, convolutions and biases are few: all of these
// stay fp32 (DeepSeek-V3, Megatron-LM).
bool may_be_low(graph::ParameterRole role);
bool is_table(graph::ParameterRole role);

// Whether a parameter is a matrix (or several, its segments) that maps hidden values to hidden values: what
// Muon is for. No embedding, table, head, norm or bias is.
bool is_hidden_matrix(graph::ParameterRole role);
// Whether recipes in 8 and 4 bits take its matmuls: hidden matrices but those that give decays, of which a few
// numbers a token decide what a state keeps.
bool takes_recipe(graph::ParameterRole role);

// How many times wider than the base the model is; 1 without µP.
double width_mult(const ModelConfig& config);

// Why µP does not support this model, one sentence each; empty if it does or is not requested.
std::vector<std::string> mup_errors(const ModelConfig& config);

}  // namespace strata::models
