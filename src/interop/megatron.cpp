#include "interop/megatron.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/names.h"
#include "checkpoint/tensor_io.h"

namespace strata::interop {
namespace {

using Kind = PickleValue::Kind;
using Json = nlohmann::ordered_json;

constexpr const char* kRankFile = "model_optim_rng.pt";
constexpr int kMaxNesting = 8;
constexpr size_t kMaxTensors = 1'000'000;

// Whether a global is one of the classes and functions that Megatron's data uses.
bool is_record(std::string_view name) {
  for (const std::string_view prefix :
       {"argparse.", "megatron.", "numpy.", "transformer_engine.", "torch.", "enum.", "_codecs.encode",
        "_io.BytesIO", "signal.", "types.SimpleNamespace", "pathlib.", "collections.defaultdict",
        "__builtin__.set", "__builtin__.bytearray", "builtins.set", "builtins.bytearray"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

// Collects the tensors of nested dicts, with their keys joined by dots. `_extra_state` is not part of the
// model.
void gather(const PickleValue& dict, const std::string& prefix, int depth, NamedValues& named,
            const std::string& where) {
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue &key = *dict.items[i], &value = *dict.items[i + 1];
    if (key.kind != Kind::kText) continue;
    const std::string name = prefix + std::string(key.text);
    if (value.kind == Kind::kTensor && !name.ends_with("_extra_state")) named.emplace_back(name, &value);
    if (value.kind == Kind::kDict && depth < kMaxNesting) gather(value, name + ".", depth + 1, named, where);
    if (named.size() > kMaxTensors) throw DataError("[{}] has more than {} tensors", where, kMaxTensors);
  }
}

NamedValues model_tensors(const PickleValue& root, const std::string& where) {
  const PickleValue* model = root.at("model");
  if (model == nullptr || model->kind != Kind::kDict)
    throw DataError("[{}] has no \"model\": expected a Megatron-LM checkpoint{}", where,
                    root.at("model0") != nullptr ? " without interleaved pipeline stages" : "");
  NamedValues named;
  gather(*model, "", 0, named, where);
  return named;
}

// The arguments that the checkpoint was trained with.
class Arguments {
 public:
  Arguments(const PickleValue& root, std::string where) : where_(std::move(where)) {
    const PickleValue* args = root.at("args");
    if (args == nullptr || args->kind != Kind::kRecord || args->items[1] == nullptr)
      throw DataError("[{}] has no \"args\": expected a Megatron-LM checkpoint", where_);
    state_ = args->items[1];
  }
  const PickleValue* find(std::string_view key) const {
    const PickleValue* value = state_->at(key);
    return value == nullptr || value->kind == Kind::kNone ? nullptr : value;
  }
  int64_t count(std::string_view key) const {
    const PickleValue* value = find(key);
    if (value == nullptr || value->kind != Kind::kInt || value->integer <= 0)
      throw DataError("[{}] args.{} is not a positive integer", where_, key);
    return value->integer;
  }
  int64_t count_or(std::string_view key, int64_t fallback) const {
    return find(key) == nullptr ? fallback : count(key);
  }
  double real_or(std::string_view key, double fallback) const {
    const PickleValue* value = find(key);
    if (value == nullptr) return fallback;
    return value->kind == Kind::kFloat ? value->real : static_cast<double>(value->integer);
  }
  bool flag(std::string_view key, bool fallback = false) const {
    const PickleValue* value = find(key);
    return value == nullptr ? fallback : value->integer != 0;
  }
  std::string text_or(std::string_view key, const std::string& fallback) const {
    const PickleValue* value = find(key);
    return value == nullptr || value->kind != Kind::kText ? fallback : std::string(value->text);
  }
  template <typename T>
  void require(bool condition, std::string_view key, const T& found) const {
    if (!condition) throw DataError("[{}] args.{} is {}, which is not supported", where_, key, found);
  }

 private:
  std::string where_;
  const PickleValue* state_ = nullptr;
};

// The equivalent config.json.
std::string config_of(const Arguments& args) {
  args.require(args.count_or("pipeline_model_parallel_size", 1) == 1, "pipeline_model_parallel_size",
               args.count_or("pipeline_model_parallel_size", 1));
  args.require(args.find("num_experts") == nullptr, "num_experts", "set");
  args.require(!args.flag("multi_latent_attention"), "multi_latent_attention", "true");
  args.require(!args.flag("qk_layernorm"), "qk_layernorm", "true");
  args.require(!args.flag("apply_residual_connection_post_layernorm"),
               "apply_residual_connection_post_layernorm", "true");
  args.require(!args.flag("apply_layernorm_1p"), "apply_layernorm_1p", "true");
  const std::string positions = args.text_or("position_embedding_type", "learned_absolute");
  const std::string norm = args.text_or("normalization", "LayerNorm");
  const bool swiglu = args.flag("swiglu"), biases = args.flag("add_bias_linear", true),
             tied = !args.flag("untie_embeddings_and_output_weights");
  const bool llama = positions == "rope" && norm == "RMSNorm" && swiglu && !biases;
  const bool gpt = positions == "learned_absolute" && norm == "LayerNorm" && !swiglu && biases && tied;
  if (!llama && !gpt)
    throw DataError(
        "[args] found position_embedding_type {}, normalization {}, swiglu {}, add_bias_linear {}: expected "
        "Llama's (rope, RMSNorm, true, false) or GPT's (learned_absolute, LayerNorm, false, true, tied)",
        positions, norm, swiglu, biases);
  args.require(!args.flag("add_qkv_bias") || gpt, "add_qkv_bias", "true");
  const double eps = args.real_or("norm_epsilon", args.real_or("layernorm_epsilon", 1e-5));
  const int64_t width = args.count("hidden_size"), heads = args.count("num_attention_heads");
  Json json;
  json["vocab_size"] = args.count("padded_vocab_size");
  json["initializer_range"] = args.real_or("init_method_std", 0.02);
  json["tie_word_embeddings"] = tied;
  if (gpt) {
    args.require(!args.flag("group_query_attention"), "group_query_attention", "true");
    json["model_type"] = "gpt2";
    json["n_embd"] = width;
    json["n_head"] = heads;
    json["n_layer"] = args.count("num_layers");
    json["n_inner"] = args.count_or("ffn_hidden_size", 4 * width);
    json["n_positions"] = args.count("max_position_embeddings");
    json["layer_norm_epsilon"] = eps;
    return dump_json(json);
  }
  args.require(args.real_or("rotary_percent", 1.0) == 1.0, "rotary_percent",
               args.real_or("rotary_percent", 1.0));
  args.require(!args.flag("rotary_interleaved"), "rotary_interleaved", "true");
  json["model_type"] = "llama";
  json["hidden_size"] = width;
  json["num_attention_heads"] = heads;
  json["num_key_value_heads"] = args.flag("group_query_attention") ? args.count("num_query_groups") : heads;
  json["head_dim"] = args.count_or("kv_channels", width / heads);
  json["num_hidden_layers"] = args.count("num_layers");
  json["intermediate_size"] = args.count("ffn_hidden_size");
  json["max_position_embeddings"] = args.count("max_position_embeddings");
  json["rms_norm_eps"] = eps;
  json["rope_theta"] = args.real_or("rotary_base", 10000);
  if (args.flag("use_rope_scaling"))
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", args.real_or("rope_scaling_factor", 8.0)},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192}};
  return dump_json(json);
}

// Resolves any folder that a user may name to the folder with the ranks' files.
Path folder_of_ranks(const Path& folder) {
  std::error_code error;
  const Path tracker = folder / "latest_checkpointed_iteration.txt";
  if (!std::filesystem::exists(tracker, error)) return folder;
  std::string text = read_file(tracker);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  if (text == "release") return folder / text;
  if (text.empty() || text.size() > 12 || text.find_first_not_of("0123456789") != text.npos)
    throw DataError("[{}] found \"{}\", expected a number of steps", tracker.string(), text.substr(0, 40));
  return folder / fmt::format("iter_{:07}", std::stoll(text));
}

Path rank_file(const Path& folder, int64_t rank) {
  return folder / fmt::format("mp_rank_{:02}", rank) / kRankFile;
}

// How a tensor is sharded over the ranks.
enum class Split { kNone, kRows, kColumns };

struct Part {
  std::vector<std::string> names;  // one per version of Megatron
  std::string parameter;
  Split split = Split::kNone;
  Interleave interleave = {};  // of the concatenated shards
};

// All tensors of the model.
std::vector<Part> parts_of(const MegatronCheckpoint& checkpoint) {
  const models::ModelConfig& model = checkpoint.model;
  const auto ranks = static_cast<int64_t>(checkpoint.ranks.size());
  const bool llama = model.family->model_type == "llama";
  const Interleave qkv{{model.heads / model.kv_heads * model.head_dim, model.head_dim, model.head_dim}};
  const Interleave up =
      llama ? Interleave{{model.intermediate_size / ranks, model.intermediate_size / ranks}} : Interleave{};
  std::vector<Part> parts{
      {{checkpoint.embedding + "word_embeddings.weight"}, "embedding.weight", Split::kRows}};
  if (!llama) parts.push_back({{checkpoint.embedding + "position_embeddings.weight"}, "positions.weight"});
  const auto norm = [&](const std::vector<std::string>& names, const std::string& ours) {
    for (const char* kind : {"weight", "bias"}) {
      if (llama && std::string_view(kind) == "bias") continue;
      Part part{{}, ours + "." + kind};
      // A norm fused into the next projection has a name ending in _weight.
      for (const auto& name : names)
        part.names.push_back(name + (name.ends_with("layer_norm") ? "_" : ".") + kind);
      parts.push_back(std::move(part));
    }
  };
  const auto linear = [&](const std::vector<std::string>& names, const std::string& ours, Split split,
                          const Interleave& interleave) {
    for (const char* kind : {".weight", ".bias"}) {
      const bool bias = std::string_view(kind) == ".bias";
      if (llama && bias) continue;
      Part part{{}, ours + kind, bias && split == Split::kColumns ? Split::kNone : split, interleave};
      for (const auto& name : names) part.names.push_back(name + kind);
      parts.push_back(std::move(part));
    }
  };
  for (int64_t i = 0; i < model.layers; ++i) {
    const std::string theirs = checkpoint.layers + std::to_string(i) + ".";
    const std::string ours = "layers." + std::to_string(i) + ".";
    norm({theirs + "input_layernorm", theirs + "self_attention.linear_qkv.layer_norm"},
         ours + "attention_norm");
    linear({theirs + "self_attention.linear_qkv", theirs + "self_attention.query_key_value"},
           ours + "attention.qkv", Split::kRows, qkv);
    linear({theirs + "self_attention.linear_proj", theirs + "self_attention.dense"}, ours + "attention.out",
           Split::kColumns, {});
    norm({theirs + "pre_mlp_layernorm", theirs + "post_attention_layernorm", theirs + "post_attention_norm",
          theirs + "mlp.linear_fc1.layer_norm"},
         ours + "ffn_norm");
    linear({theirs + "mlp.linear_fc1", theirs + "mlp.dense_h_to_4h"}, ours + "ffn.up", Split::kRows, up);
    linear({theirs + "mlp.linear_fc2", theirs + "mlp.dense_4h_to_h"}, ours + "ffn.down", Split::kColumns, {});
  }
  norm({checkpoint.final_norm + "final_layernorm", checkpoint.final_norm + "final_norm"}, "final_norm");
  if (!model.tied) parts.push_back({{checkpoint.head}, "head.weight", Split::kRows});
  return parts;
}

// The whole tensor [rows, columns], concatenated from the ranks' shards.
std::vector<float> whole_of(const MegatronCheckpoint& checkpoint, const std::string& name, const Part& part,
                            int64_t rows, int64_t columns, int rank_of_shape) {
  const auto ranks = part.split == Split::kNone ? 1 : static_cast<int64_t>(checkpoint.ranks.size());
  const bool by_rows = part.split != Split::kColumns;
  const int64_t part_rows = by_rows ? rows / ranks : rows, part_columns = by_rows ? columns : columns / ranks;
  std::vector<float> whole(static_cast<size_t>(rows * columns));
  std::vector<float> shard(by_rows ? 0 : static_cast<size_t>(part_rows * part_columns));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const TorchFile& file = *checkpoint.ranks[static_cast<size_t>(rank)];
    const TensorInfo* tensor = file.find(name);
    if (tensor == nullptr) throw DataError("[{}] '{}' is missing", file.path().string(), name);
    float* to = by_rows ? whole.data() + rank * part_rows * columns : shard.data();
    const Shape shape = rank_of_shape == 1 ? Shape{part_rows} : Shape{part_rows, part_columns};
    checkpoint::read_tensor(file, *tensor,
                            {.name = name, .shape = shape, .storage = checkpoint::in_memory(to)},
                            {.check_finite = true});
    for (int64_t row = 0; !by_rows && row < rows; ++row)
      std::copy_n(shard.data() + row * part_columns, part_columns,
                  whole.data() + row * columns + rank * part_columns);
  }
  return whole;
}

// Refuses checkpoints of models other than GPT and Llama.
void require_decoder(const TorchFile& file) {
  constexpr std::pair<std::string_view, const char*> kParts[] = {{"tokentype_embeddings", "BERT"},
                                                                 {"lm_head.", "BERT"},
                                                                 {"cross_attention.", "T5"},
                                                                 {"inter_attention.", "T5"}};
  for (const auto& tensor : file.tensors()) {
    for (const auto& [part, model] : kParts) {
      if (tensor.name.find(part) == tensor.name.npos) continue;
      throw DataError(
          "[{}] is a {} model ('{}'): expected GPT or Llama. Convert it to a Hugging Face directory and "
          "import that",
          file.path().string(), model, tensor.name);
    }
  }
}

}  // namespace

bool is_megatron(const Path& folder) {
  std::error_code error;
  return std::filesystem::exists(folder / "latest_checkpointed_iteration.txt", error) ||
         std::filesystem::exists(rank_file(folder, 0), error);
}

MegatronCheckpoint open_megatron(const Path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw ConfigError("[{}] does not exist: expected the folder of a Megatron-LM checkpoint",
                      folder.string());
  const Path ranks = folder_of_ranks(folder);
  if (!std::filesystem::exists(rank_file(ranks, 0), error))
    throw DataError("[{}] has no mp_rank_00/{}: expected Megatron-LM's torch format without pipeline stages",
                    ranks.string(), kRankFile);
  MegatronCheckpoint checkpoint;
  checkpoint.where = ranks.string();
  const auto open = [&](int64_t rank) {
    if (!std::filesystem::exists(rank_file(ranks, rank), error))
      throw DataError("[{}] is missing: expected a file for each tensor-parallel rank",
                      rank_file(ranks, rank).string());
    checkpoint.ranks.push_back(
        std::make_unique<TorchFile>(rank_file(ranks, rank), PickleUse{is_record, model_tensors}));
  };
  open(0);
  require_decoder(*checkpoint.ranks[0]);
  const PickleValue& root = checkpoint.ranks[0]->root();
  const Arguments args(root, rank_file(ranks, 0).string());
  const PickleValue* version = root.at("checkpoint_version");
  if (version == nullptr || (version->kind == Kind::kFloat ? version->real : 0) < 2.0)
    throw DataError(
        "[{}] checkpoint_version is below 2.0, which orders heads differently. Convert it with Megatron-LM "
        "first",
        ranks.string());
  const int64_t split = args.count_or("tensor_model_parallel_size", 1);
  for (int64_t rank = 1; rank < split; ++rank) open(rank);
  checkpoint.model = models::read_config_json(config_of(args), ranks.string());
  const auto errors = models::errors_of(checkpoint.model);
  if (!errors.empty()) throw DataError("[{}] {}", ranks.string(), errors.front());
  for (const int64_t size :
       {checkpoint.model.vocab_size, checkpoint.model.kv_heads, checkpoint.model.intermediate_size}) {
    if (size % split != 0)
      throw DataError("[{}] found a size of {}: expected a multiple of the {} tensor-parallel ranks",
                      ranks.string(), size, split);
  }
  // Older versions nest their dicts, under one of two names.
  const bool nested = checkpoint.ranks[0]->find("embedding.word_embeddings.weight") == nullptr;
  const bool transformer =
      checkpoint.ranks[0]->find("language_model.transformer.final_layernorm.weight") != nullptr;
  const std::string prefix = !nested       ? "decoder."
                             : transformer ? "language_model.transformer."
                                           : "language_model.encoder.";
  checkpoint.embedding = nested ? "language_model.embedding." : "embedding.";
  checkpoint.layers = prefix + "layers.";
  checkpoint.final_norm = prefix;
  checkpoint.head = nested ? "language_model.output_layer.weight" : "output_layer.weight";
  return checkpoint;
}

namespace {

// The name of a part in the files; DataError if it is missing or has the wrong size.
std::string found_part(const MegatronCheckpoint& checkpoint, const Part& part, const Shape& shape) {
  const auto name = std::find_if(part.names.begin(), part.names.end(), [&](const std::string& each) {
    return checkpoint.ranks[0]->find(each) != nullptr;
  });
  if (name == part.names.end()) throw DataError("[{}] '{}' is missing", checkpoint.where, part.names.front());
  const int64_t ranks = part.split == Split::kNone ? 1 : std::ssize(checkpoint.ranks);
  const Shape& held = checkpoint.ranks[0]->find(*name)->shape;
  if (held.elements() != shape.elements() / ranks) {
    throw DataError("[{}] '{}' has shape {} on a rank: expected a shard of {} over {} ranks",
                    checkpoint.where, *name, held.str(), shape.str(), ranks);
  }
  return *name;
}

}  // namespace

void check_megatron(const MegatronCheckpoint& checkpoint) {
  const auto shapes = models::parameter_shapes(checkpoint.model);
  for (const Part& part : parts_of(checkpoint)) found_part(checkpoint, part, shapes.at(part.parameter));
}

void load_megatron(const MegatronCheckpoint& checkpoint, program::Executor& executor) {
  std::set<std::string> used;
  for (const Part& part : parts_of(checkpoint)) {
    const Shape& shape = executor.set().at(part.parameter).shape;
    const std::string name = found_part(checkpoint, part, shape);
    used.insert(name);
    const int64_t rows = shape[0], columns = shape.rank() == 2 ? shape[1] : 1;
    const auto whole = whole_of(checkpoint, name, part, rows, columns, shape.rank());
    for (int64_t row = 0; row < rows;) {
      const RowRun run = run_at(part.interleave, rows, row);
      const int64_t row_bytes = columns * size_of(DType::kF32);
      executor.upload(part.parameter, whole.data() + row * columns, run.rows * row_bytes,
                      run.memory_row * row_bytes);
      row += run.rows;
    }
  }
  std::vector<std::string> unexpected;
  for (const auto& tensor : checkpoint.ranks[0]->tensors()) {
    if (!used.contains(tensor.name) && !tensor.name.ends_with("inv_freq")) unexpected.push_back(tensor.name);
  }
  if (!unexpected.empty())
    throw DataError("[{}] has tensors that are not part of this model: {}", checkpoint.where,
                    checkpoint::list_names(unexpected));
}

}  // namespace strata::interop
