// Transformer families: how a model's graph is built, how its config.json reads, how Hugging Face names its
// tensors. Adding a family is one file with one function of each and one row in models/families.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layers/layers.h"
#include "tensor/interleave.h"

namespace strata::models {

struct Family;

// Sizes and constants of one decoder. What a family does not use keeps its default.
struct ModelConfig {
  const Family* family = nullptr;
  int64_t vocab_size = 0;
  int64_t width = 0;  // d
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t max_positions = 0;
  bool tied = true;
  double norm_eps = 1e-5;
  double init_std = 0.02;
  ops::RopeScaling rope;
  std::optional<int64_t> bos_id, eos_id;
};

// What a family's graph gives to the head.
struct Hidden {
  graph::ValueId values = graph::kNone;  // [N, d], after the last norm
  graph::ValueId head = graph::kNone;    // [V, d]; the embedding table when tied
};

// One tensor of a Hugging Face file and where it lies in our parameters: rows [row, row + rows) of
// `parameter` (dimension 0). `transposed`: the file holds it inputs first, as GPT-2's Conv1D does.
// `interleave`: the file holds the rows of a fused projection head by head, as GPT-NeoX does; never together
// with `transposed`.
struct TensorRow {
  std::string file_name;
  std::string parameter;
  int64_t row = 0;
  int64_t rows = 0;
  bool transposed = false;
  Interleave interleave = {};
};

struct Family {
  std::string_view name;        // "llama3", as presets and `model.family` say
  std::string_view model_type;  // config.json's model_type
  // The graph from tokens to the last norm. Call layers::add_batch first.
  Hidden (*build)(const ModelConfig&, layers::Context&);
  // From config.json's text; throws DataError naming `where`, the field, what was found and what is
  // supported.
  ModelConfig (*read)(const std::string& json, const std::string& where);
  std::string (*write)(const ModelConfig&, DType dtype);
  std::vector<TensorRow> (*tensors)(const ModelConfig&);
  // Names in files that are no parameters and are passed over (mask buffers, a tied head's copy).
  bool (*ignored)(const ModelConfig&, std::string_view file_name);
  // What the names of tensors() begin with and a file of the bare model class (LlamaModel, GPT2Model) leaves
  // out: "model.", "transformer.".
  std::string_view optional_prefix = {};
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

// The preset to begin with on a machine of this many cores and bytes of memory. A step's time is arithmetic,
// so the cores say what a night can train well; weights, gradients and moments (16 bytes a parameter) are to
// take at most a quarter of the memory, since activations, encodings and everybody else need room too.
std::string_view preset_for_machine(int cores, int64_t memory_bytes);

// Any config.json: the family is found by its model_type. DataError for unknown ones, naming what is known.
ModelConfig read_config_json(const std::string& json, const std::string& where);
// `config` with fields of its config.json replaced, as [model.override] gives them: pairs of key and JSON
// value.
ModelConfig with_overrides(const ModelConfig& config,
                           const std::vector<std::pair<std::string, std::string>>& overrides,
                           const std::string& where);

// Everything that is wrong with the sizes, one sentence each, empty when they are possible.
std::vector<std::string> faults_of(const ModelConfig& config);

int64_t parameter_count(const ModelConfig& config);
// Floating-point operations of a training step per token, forward and backward: 6 × matmul parameters (head
// included, embedding look-up not) + attention, causal by half (interface.md).
double training_flops_per_token(const ModelConfig& config, int64_t sequence_length);

}  // namespace strata::models
