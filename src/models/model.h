// Transformer families: how a model's graph is built, how its config.json reads, how Hugging Face names its
// tensors. Adding a family is one file with one function of each, and its line in models/families.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layers/latent_attention.h"
#include "layers/layers.h"
#include "layers/mixers.h"
#include "ops/rope/rope.h"
#include "tensor/interleave.h"

namespace strata::models {

struct Family;

// Layers that see only the last `size` keys: those from `first` on, except every `period`-th one (0: no
// exceptions); `layers`, if not empty, lists them instead.
struct SlidingWindow {
  int64_t size = 0;  // 0: no layer has a window
  int64_t first = 0;
  int64_t period = 0;
  std::vector<bool> layers = {};
  bool chunked = false;  // keys of the row's own chunk of `size` tokens, not the last ones

  bool at(int64_t layer) const;
};

// Layers without positions: every `period`-th (0: none); `layers`, if not empty, lists them instead.
struct UnrotatedLayers {
  int64_t period = 0;
  std::vector<bool> layers = {};

  bool at(int64_t layer) const;
  bool any(int64_t of_layers) const;
};

// How weights start (parametrization.h). A family reads as its reference does it.
enum class InitScheme : uint8_t { kPlain, kScaledResidual, kSmallWang, kTruncatedNormal, kMitchell, kT5 };
std::string_view name_of(InitScheme scheme);  // "normal", "scaled_residual", …, values of model.init_scheme

// µP (parametrization.h): the sizes that the run's settings were tuned at.
struct Mup {
  int64_t base_hidden_size = 0;  // 0: no µP
  int64_t base_head_dim = 0;     // 0: the model's own
};

// The tokens that a token sees: in a decoder the earlier ones, in an encoder all. An encoder-decoder reads
// one sequence with its encoder and generates another with its decoder.
enum class Architecture : uint8_t { kDecoder, kEncoder, kEncoderDecoder };

// How the model represents positions.
enum class Positions : uint8_t {
  kRotary,
  kLearned,   // a table of positions next to the embedding: GPT-2, BERT
  kRelative,  // a bias of scores by distance, from one table for all layers of a stack: T5
  kAbsent,    // not at all: layers with a state know the order of tokens
};

// Layers with a mixture of experts instead of an FFN.
using Experts = layers::MoeSpec;

// Sizes and constants of one model. Fields that a family does not use keep their defaults.
struct ModelConfig {
  const Family* family = nullptr;
  Architecture architecture = Architecture::kDecoder;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;     // d
  int64_t layers = 0;          // of an encoder-decoder: its decoder's
  int64_t encoder_layers = 0;  // kEncoderDecoder only
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  int64_t max_positions = 0;
  bool tied = true;
  // Blocks and norms.
  layers::NormPlacement norm_placement = layers::NormPlacement::kPreNorm;
  layers::NormSpec::Kind norm = layers::NormSpec::Kind::kRms;
  double norm_eps = 1e-5;
  double norm_weight_offset = 0;
  // Embedding and head.
  Positions positions = Positions::kRotary;
  int64_t distance_buckets = 0, max_distance = 0;  // kRelative
  int64_t token_types = 0;                         // rows of a table; row 0 is added to every token (BERT)
  bool embedding_norm = false;                     // of tokens, positions and types together (BERT)
  bool scaled_embedding = false;                   // by √d
  double embedding_multiplier = 1;
  double logits_divisor = 1;
  bool scaled_head = false;  // scales the head's input by 1/√d (T5 with a tied head)
  bool head_transform =
      false;  // a dense layer, activation and norm before the head, whose logits have a bias (BERT)
  double logits_softcap = 0;
  // Layers: empty, if all have attention and an FFN; the sizes of other mixers, and where their norms are, if elsewhere.
  std::vector<layers::LayerKind> layer_kinds = {};
  std::optional<layers::DeltaDims> delta;
  std::optional<layers::StateSpaceDims> state_space;
  std::optional<layers::ShortConvolutionDims> short_convolution;
  std::optional<layers::NormPlacement> other_mixer_norms;
  double residual_multiplier = 1;  // of what each block adds to the residual stream
  layers::StackSpec::Multipliers mixer_multipliers = {};
  double ffn_gate_multiplier = 1, ffn_out_multiplier = 1;
  // Attention.
  bool attention_gate = false;  // layers::AttentionSpec::output_gate
  bool qkv_bias = false, out_bias = false;
  layers::AttentionSpec::QkNorm qk_norm = layers::AttentionSpec::QkNorm::kAbsent;
  bool sinks = false;               // layers::AttentionSpec
  bool plain_qk_norm = false;       // the same, of layers that rotate
  bool rotates_in_windows = false;  // layers without a window have no positions, and
  ops::TemperAttrs temper = {};     //   queries scaled by position
  double clip_qkv = 0;              // q, k and v are clipped to ± this; 0: not clipped
  double attention_scalar = 0;      // scores are scaled by its power of -1/2; 0: the head size
  double attention_softcap = 0;
  // Keys and values are computed from a latent; head_dim is the size of queries and keys.
  std::optional<layers::LatentDims> latent;
  // Latent attention to the keys that an indexer chooses. Layers listed here have none of their own and take the choice
  // of the last layer before them that has one.
  std::optional<layers::IndexerDims> indexer;
  std::vector<bool> without_indexer = {};
  SlidingWindow sliding_window;
  double partial_rotary_factor = 1;  // of a head's dimensions that rotate
  ops::RopeScaling rope;
  std::optional<ops::RopeScaling> window_rope;  // of layers with a window, if it differs
  UnrotatedLayers unrotated;
  bool adjacent_rotary_pairs = false;  // (2i, 2i + 1), not (i, i + half)
  // Feed-forward.
  ActivationKind activation = ActivationKind::kSilu;
  bool gated = true;
  bool ffn_bias = false;

  Experts experts;

  // Layers after the others that predict further tokens (multi-token prediction, decoder.h); they are trained
  // and exported, and generation does not use them. The weight of the mean of their losses.
  int64_t predict_layers = 0;
  double predict_weight = 0.3;

  double init_std = 0.02;
  InitScheme init = InitScheme::kPlain;
  Mup mup;
  std::optional<int64_t> bos_id, eos_id;
  // Further ids that end a text: those that config.json lists after the first, and all of
  // generation_config.json if it exists, which then takes precedence in generation.
  std::vector<int64_t> more_eos_ids = {}, generation_eos_ids = {};
  // Its embedding row gets no gradient from the look-up, as in transformers (T5: none).
  std::optional<int64_t> pad_id;
  std::optional<int64_t> start_id;  // kEncoderDecoder: the first token of the decoder's text
  // Keys of config.json by which transformers drops values during training (attention_dropout, resid_pdrop,
  // …) if they are not 0: saved for training the exported model further. Nothing here drops any.
  std::vector<std::pair<std::string, double>> dropout = {};

  // All ids that end a generated text.
  std::vector<int64_t> stop_ids() const {
    if (!generation_eos_ids.empty() || !eos_id) return generation_eos_ids;
    std::vector<int64_t> ids = {*eos_id};
    ids.insert(ids.end(), more_eos_ids.begin(), more_eos_ids.end());
    return ids;
  }

  int64_t blocks() const { return layers + encoder_layers; }
  layers::LayerKind kind(int64_t layer) const {
    return layer < static_cast<int64_t>(layer_kinds.size()) ? layer_kinds[static_cast<size_t>(layer)]
                                                            : layers::LayerKind{};
  }
  bool has_attention(int64_t layer) const {
    const layers::Mixer mixer = kind(layer).mixer;
    return mixer == layers::Mixer::kAttention || mixer == layers::Mixer::kParallel;
  }
  // Whether the layer scores keys itself; of models with an indexer.
  bool has_own_indexer(int64_t layer) const {
    return layer >= static_cast<int64_t>(without_indexer.size()) ||
           !without_indexer[static_cast<size_t>(layer)];
  }
  // Layers that do, further tokens' too.
  int64_t indexers() const {
    return indexer
               ? layers + predict_layers - std::count(without_indexer.begin(), without_indexer.end(), true)
               : 0;
  }
  // Whether some layers keep a state from token to token in place of keys and values.
  bool has_states() const { return delta || state_space || short_convolution; }
  // Tokens of the longest text; unlimited for relative positions.
  int64_t max_sequence_length() const {
    return positions == Positions::kRelative ? std::numeric_limits<int64_t>::max() : max_positions;
  }
  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t value_width() const { return heads * (latent ? latent->value_dim : head_dim); }  // of all heads
  int64_t rotary_dim() const {
    if (latent) return latent->rotary_dim;
    return static_cast<int64_t>(partial_rotary_factor * static_cast<double>(head_dim));
  }
};

// The graph of a family up to its head.
struct Hidden {
  graph::ValueId values = graph::kNone;  // [N, d], after the last norm
  graph::ValueId head = graph::kNone;    // [V, d]; the embedding table when tied
  graph::ValueId bias = graph::kNone;    // [V], of the logits
  double softcap = 0;                    // of the logits, 0: none
  // For layers that predict further tokens, in order: the input of the same head, and the tokens to predict,
  // for all rows as in the batch.
  struct Predicted {
    graph::ValueId values, targets;
  };
  std::vector<Predicted> predicted = {};
  double predict_weight = 0;  // of the mean of their losses
};

// Maps one tensor of a Hugging Face file to our parameters: rows [row, row + rows) of `parameter` (dimension
// 0). `transposed`: the file stores inputs first, like GPT-2's Conv1D. `interleave`: the file stores the rows
// of a fused projection head by head, like GPT-NeoX. `blocks`: the file has an additional first dimension of
// this size, for equal blocks of rows (the experts of a layer), each transposed and interleaved separately;
// 0: it does not.
// `part`: the tensor has rows of several parameters, or of one that are not consecutive, and these are some of
// them; there is a TensorRow of the same name for each. Qwen3-Next's in_proj_qkvz has for each key head K rows
// of q, K of k, V·r of v and V·r of the gate: the part of k is {K, K, 2K + 2V·r}. Without interleave and blocks.
// `shape`: its shape in the file if that has other dimensions than [rows] or [rows, columns].
struct TensorRow {
  std::string file_name;
  std::string parameter;
  int64_t row = 0;
  int64_t rows = 0;
  bool transposed = false;
  Interleave interleave = {};
  int64_t blocks = 0;
  PartRows part = {};
  Shape shape = {};
};

// A preset: sizes, and in `more` the rest of its config.json, as JSON without the braces.
struct PresetRow {
  const char* name;
  const char* note;
  int64_t width, layers, heads, kv_heads, head_dim, ffn, vocab, positions;
  const char* more;
};

// The names of the sizes in config.json; nullptr if it has none. Without kv_heads there are as many as heads,
// without head_dim it is the width by the heads.
struct SizeKeys {
  const char* width = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* kv_heads = "num_key_value_heads";
  const char* head_dim = "head_dim";
  const char* ffn = "intermediate_size";
  const char* positions = "max_position_embeddings";
};

struct Family {
  std::string_view name;        // "llama3", in presets and `model.family`
  std::string_view model_type;  // config.json's model_type
  // The graph from tokens to the last norm; in layers::Mode::kEncoderPrefill nothing. Call layers::add_batch
  // first.
  Hidden (*build)(const ModelConfig&, layers::Context&);
  // From config.json's text; throws DataError with `where`, the field, the value found and those supported.
  ModelConfig (*read)(const std::string& json, const std::string& where);
  std::string (*write)(const ModelConfig&,
                       DType dtype);  // write_config_json adds the remaining stored fields
  std::vector<TensorRow> (*tensors)(const ModelConfig&);
  // Names in files that are not parameters and are ignored (mask buffers, a tied head's copy).
  bool (*ignored)(const ModelConfig&, std::string_view file_name);
  // Prefix of the names of tensors() that a file of the bare model class (LlamaModel, GPT2Model) omits:
  // "model.", "transformer.".
  std::string_view optional_prefix = {};
  // How names of tensors() end, and how they do in older files.
  struct OldEnding {
    std::string_view today, before;
  };
  std::span<const OldEnding> old_endings = {};
  SizeKeys size_keys = {};
  std::span<const PresetRow> presets = {};
};

std::span<const Family* const> families();
const Family* find_family(std::string_view name_or_model_type);  // nullptr: unknown

struct Preset {
  std::string_view name;
  std::string_view note;
  ModelConfig config;
};
const std::vector<Preset>& presets();
// Throws ConfigError with the nearest name.
ModelConfig preset(std::string_view name);

// The preset of a family with the fewest parameters.
ModelConfig smallest_preset(const Family& family);

// The preset to begin with on a machine of this many cores and bytes of memory. A step's time is arithmetic,
// so the cores decide what a night can train well; weights, gradients and moments (16 bytes per parameter)
// take at most a quarter of the memory, since activations, packed weights and other processes need memory
// too.
std::string_view preset_for_machine(int cores, int64_t memory_bytes);

// Reads any config.json: model_type selects the family. Throws DataError with the known types for others.
ModelConfig read_config_json(const std::string& json, const std::string& where);
// Its config.json, for weights of this type.
std::string write_config_json(const ModelConfig& config, DType dtype);
// `config` with fields of its config.json replaced, from [model.override]: pairs of key and JSON value.
ModelConfig with_overrides(const ModelConfig& config,
                           const std::vector<std::pair<std::string, std::string>>& overrides,
                           const std::string& where);

// The largest sizes: beyond every published model, and small enough that multiplying these sizes does not
// overflow 64 bits.
inline constexpr int64_t kMostLayers = 4096;
inline constexpr int64_t kMostHeads = int64_t{1} << 14;
inline constexpr int64_t kMostWidth = int64_t{1} << 20;
inline constexpr int64_t kMostFfnWidth = int64_t{1} << 22;
inline constexpr int64_t kMostExperts = 1 << 16;
inline constexpr int64_t kMostHeadDim = 256;  // attention's kernels
inline constexpr int64_t kMostLatent = 1024;  // attention's kernels, of a row of a cache of latents
inline constexpr int64_t kMostIds = std::numeric_limits<int32_t>::max();
inline constexpr double kMostTheta = 1e15;

// How its routing lets tokens influence earlier ones or other sequences, one sentence each; empty: it does
// not (routing.cpp).
std::vector<std::string> routing_leaks(const ModelConfig& config);
// Values of moe.router: "top_k", "hash", …
std::string_view name_of(Experts::Router router);
// How config.json represents a router that the family does not have: its model_type is "strata_" and the
// family's, so that it is not mistaken for the family's own, and "strata_router" has the details.
inline constexpr std::string_view kOwnRouterPrefix = "strata_";
void read_own_router(const std::string& json, const std::string& where, Experts& experts);
std::string with_own_router(const std::string& json, const Experts& experts);

// The errors in the sizes, one sentence each; empty if they are valid.
std::vector<std::string> errors_of(const ModelConfig& config);

// Why transformers would refuse to load the model, one sentence each; empty: it would load it.
std::vector<std::string> transformers_errors(const ModelConfig& config);

// Describes its blocks for people: "RMSNorm before blocks", "rotary (llama3)", …
struct Blocks {
  std::string norms, positions, attention, ffn, tables;
};
Blocks blocks_of(const ModelConfig& config);
// "12", of an encoder-decoder "6 + 6".
std::string layers_of(const ModelConfig& config);

int64_t parameter_count(const ModelConfig& config);
// The parameters used per token: k of `count` experts; tables are included whole.
int64_t active_parameter_count(const ModelConfig& config);
// Both, for people: "30.5B parameters, 3.35B of them for each token".
std::string parameters_in_words(const ModelConfig& config);
// Elements of a parameter used per token, by its role and shape.
double elements_for_a_token(const ModelConfig& config, graph::ParameterRole role, const Shape& shape);
// The shape of every parameter by its name, from the graph that the family builds.
std::map<std::string, Shape> parameter_shapes(const ModelConfig& config);
// The role of every parameter by its name.
std::map<std::string, graph::ParameterRole> parameter_roles(const ModelConfig& config);
// Floating-point operations of a training step per token, forward and backward: 6 × matmul parameters (head
// included, embedding look-up not) + attention, causal by half. Of an encoder-decoder per
// token of the encoder, whose text of `sequence_length` tokens goes with `target_length` of the decoder. Only
// the share of the tokens that have a target passes the head.
double training_flops_per_token(const ModelConfig& config, int64_t sequence_length, int64_t target_length = 0,
                                double target_share = 1);

}  // namespace strata::models
