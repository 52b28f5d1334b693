#include "interop/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "interop/gguf_experts.h"
#include "interop/gguf_families.h"
#include "interop/gguf_mixers.h"

namespace strata::interop {
namespace {

using Json = nlohmann::json;

const GgufFamily& family_of(const models::ModelConfig& model) {
  std::string known;
  const GgufFamily* found = nullptr;
  for (const GgufFamily& family : gguf_families()) {
    // If a family has two rows, the second is of models without experts.
    if (family.model_type == model.family->model_type && (found == nullptr || model.experts.count == 0))
      found = &family;
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  }
  if (found != nullptr) return *found;
  throw DataError("[--format gguf] {} models are not supported: expected one of {}", model.family->model_type,
                  known);
}

std::string gguf_name(const GgufFamily& family, const std::string& file_name) {
  // GGUF names all end in .weight or .bias.
  const bool ends = file_name.ends_with(".weight") || file_name.ends_with(".bias");
  const size_t dot = ends ? file_name.rfind('.') : file_name.size();
  const std::string extension = ends ? file_name.substr(dot) : ".weight";
  std::string base = file_name.substr(0, dot), prefix;
  const Names* names = &family.outside;
  if (base.starts_with(family.layers)) {
    const size_t number = family.layers.size(), end = base.find('.', number);
    prefix = "blk." + base.substr(number, end - number) + ".";
    base.erase(0, end + 1);
    names = &family.inside;
  }
  const auto found =
      std::find_if(names->begin(), names->end(), [&](const auto& each) { return each.first == base; });
  if (found == names->end())
    throw DataError("[--format gguf] tensor '{}' has no name in {} files", file_name, family.architecture);
  // Tensors without an ending, such as attention sinks, get .weight; some keep none.
  if (found->second.ends_with(kNoEnding))
    return prefix + std::string(found->second.substr(0, found->second.size() - 1));
  return prefix + std::string(found->second) + (found->second.ends_with(".bias") ? "" : extension);
}

// The value of config.json under the first of these keys that it has; nullptr if it has none.
const Json* find(const Json& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto found = config.find(key);
    if (found != config.end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

// The RoPE section, under its name in transformers 5 or in older files; empty if there is none.
Json rope_of(const Json& config) {
  const Json* rope = find(config, {"rope_parameters", "rope_scaling"});
  return rope != nullptr && rope->is_object() ? *rope : Json::object();
}

// GGUF has no keys for YaRN's other parameters.
void check_yarn(const std::string& arch, const models::ModelConfig& model, const Json& rope) {
  const double grown = 0.1 * std::log(rope.at("factor").get<double>()) + 1;
  const bool whole = rope.value("truncate", true);
  // DeepSeek scales the attention scores instead of the cosines and sines.
  const double usual = model.latent && rope.value("mscale_all_dim", 0.0) != 0 ? 1 : grown;
  if (arch == "gpt-oss" && !whole)
    log_warning("llama.cpp rounds the YaRN ramp to whole pairs of dimensions, gpt-oss does not");
  if (rope.value("beta_fast", 32.0) != 32 || rope.value("beta_slow", 1.0) != 1 ||
      (!whole && arch != "gpt-oss") || std::abs(rope.value("attention_factor", usual) - usual) > 1e-6)
    throw DataError(
        "[--format gguf] YaRN has its own beta_fast, beta_slow, truncate or attention_factor: expected "
        "the defaults, others cannot be expressed");
}

void add_rope(GgufFields& fields, const std::string& arch, const models::ModelConfig& model,
              const Json& config) {
  const Json rope = rope_of(config);
  const Json* theta = find(config, {"rope_theta", "rotary_emb_base"});
  if (theta == nullptr) theta = find(rope, {"rope_theta"});
  if (theta != nullptr) fields.push_back({arch + ".rope.freq_base", theta->get<float>()});
  if (arch == "olmo2" && model.sliding_window.size > 0 && theta != nullptr)
    fields.push_back({arch + ".rope.freq_base_swa", model.window_rope
                                                        ? static_cast<float>(model.window_rope->theta)
                                                        : theta->get<float>()});
  if (arch.starts_with("qwen35"))  // of positions in pictures, which text does not have
    fields.push_back({arch + ".rope.dimension_sections", std::vector<int32_t>{11, 11, 10, 0}});
  if (model.window_rope && arch != "olmo2")
    fields.push_back({arch + ".rope.freq_base_swa", static_cast<float>(model.window_rope->theta)});
  if (arch == "llama" || arch == "llama4" || arch == "gptneox" || arch == "phi3" || arch == "stablelm" ||
      arch == "glm4moe" || arch == "smollm3" || arch == "granitehybrid" || arch.starts_with("nemotron_h") ||
      model.latent || model.partial_rotary_factor < 1)
    fields.push_back({arch + ".rope.dimension_count", static_cast<uint32_t>(model.rotary_dim())});
  const Json* kind = find(rope, {"rope_type", "type"});
  const std::string type = kind != nullptr ? kind->get<std::string>() : "default";
  if (type == "linear" || type == "yarn") {
    fields.push_back({arch + ".rope.scaling.type", type});
    fields.push_back({arch + ".rope.scaling.factor", rope.at("factor").get<float>()});
    if (type == "yarn")
      fields.push_back({arch + ".rope.scaling.original_context_length",
                        rope.at("original_max_position_embeddings").get<uint32_t>()});
    if (type == "yarn") check_yarn(arch, model, rope);
  } else if (type == "longrope") {
    if (arch != "phi3") fields.push_back({arch + ".rope.scaling.type", type});
    fields.push_back({arch + ".rope.scaling.original_context_length",
                      rope.at("original_max_position_embeddings").get<uint32_t>()});
    fields.push_back({arch + ".rope.scaling.attn_factor", rope.at("attention_factor").get<float>()});
  } else if (type != "default" && type != "llama3") {
    throw DataError(
        "[--format gguf] rope scaling \"{}\" cannot be expressed: expected linear, yarn, longrope or llama3",
        type);
  }
}

// Whether the layers with a window are llama.cpp's default ones.
bool usual_sliding_windows(std::string_view arch, const models::ModelConfig& model) {
  for (int64_t i = 0; i < model.layers; ++i) {
    if (model.sliding_window.at(i) != (arch == "gemma2" ? i % 2 == 0 : (i + 1) % 6 != 0)) return false;
  }
  return true;
}

// Checks the properties that an architecture fixes and that have no key.
void check_expressible(const GgufFamily& family, const models::ModelConfig& model) {
  using Rope = ops::RopeScaling::Kind;
  const auto refuse = [&](std::string_view what) {
    throw DataError("[--format gguf] {} files cannot express {}; export with --format hf instead",
                    family.architecture, what);
  };
  const bool gemma2 = family.architecture == "gemma2", gemma3 = family.architecture == "gemma3";
  if (model.activation != family.activation) refuse("an activation other than the family's default");
  const bool others = model.out_bias || model.ffn_bias;
  if ((family.biases == Biases::kNone && (model.qkv_bias || others)) ||
      (family.biases == Biases::kOfQkv && others) ||
      (family.biases == Biases::kAll && !(model.qkv_bias && model.out_bias && model.ffn_bias)))
    refuse("biases on other projections than the family's default ones");
  if (!family.rope_tables && (model.rope.kind == Rope::kLlama3 || model.rope.kind == Rope::kLongRope))
    refuse("a RoPE scaling per frequency");
  if (family.architecture == "llama" && model.rotary_dim() != model.head_dim)
    refuse("partial rotary embeddings");
  if (family.heads_share_width && model.q_width() != model.hidden_size)
    refuse("a head size other than hidden_size / num_attention_heads");
  if (family.architecture == "stablelm" && model.tied) refuse("tied embeddings");
  if (family.architecture == "smollm3")
    for (int64_t i = 0; i < model.layers; ++i)
      if (model.unrotated.at(i) != ((i + 1) % 4 == 0))
        refuse("layers without positions other than every fourth");
  if (family.architecture == "falcon-h1" && model.tied &&
      std::abs(model.embedding_multiplier * model.logits_divisor - 1) > 1e-6)
    refuse("tied embeddings with different multipliers of the embedding and of the logits");
  if (family.architecture == "lfm2moe" && !model.tied) refuse("a head apart from the embedding");
  if (family.architecture == "granitehybrid" && model.positions != models::Positions::kAbsent)
    refuse("attention with positions between layers of Mamba-2");
  if (family.architecture == "olmo2" && model.window_rope && model.window_rope->kind != Rope::kUnscaled)
    refuse("RoPE scaling in layers with a sliding window");
  if (model.state_space && model.state_space->bias) refuse("biases of Mamba-2's projections");
  if (model.state_space && model.state_space->norm == layers::StateSpaceDims::Norm::kNormFirst)
    refuse("norms of Mamba-2 before its gate");
  const bool nemotron = family.architecture.starts_with("nemotron_h");
  if (model.state_space &&
      (model.state_space->greatest_dt > 0 || (model.state_space->least_dt > 0 && !nemotron)))
    refuse("limits of Mamba-2's steps");
  if (nemotron && model.state_space && model.state_space->least_dt > 0)
    log_warning("llama.cpp ignores time_step_min: steps of Mamba-2 may be below {}",
                model.state_space->least_dt);
  if (!family.experts.block.empty() && family.architecture != "granitehybrid") {
    if (model.experts.count == 0) refuse("a model without experts");
    if (const auto what = inexpressible(family.architecture, model)) refuse(*what);
  }
  if (family.architecture == "gpt-oss" || family.architecture == "llama4") return;
  if (!gemma2 && !gemma3) {
    if (model.sliding_window.size > 0 && model.sliding_window.size < model.max_positions)
      log_warning(
          "llama.cpp ignores the sliding window of {} models: tokens will also attend beyond {} tokens",
          model.family->model_type, model.sliding_window.size);
    return;
  }
  const double scalar =
      model.attention_scalar > 0 ? model.attention_scalar : static_cast<double>(model.head_dim);
  const bool largest = model.layers == (gemma2 ? 46 : 62);
  const int64_t expected = largest ? model.hidden_size / model.heads : model.head_dim;
  if (scalar != static_cast<double>(expected))
    refuse(
        "a query_pre_attn_scalar other than the head size (in the 27B model: hidden_size / "
        "num_attention_heads)");
  if (gemma2 && (model.attention_softcap <= 0 || model.logits_softcap <= 0))
    refuse("attention scores or logits without a softcap");
  if (model.window_rope && model.window_rope->kind != Rope::kUnscaled)
    refuse("RoPE scaling in layers with a sliding window");
}

void add_architecture(GgufFields& fields, const GgufFamily& family, const models::ModelConfig& model,
                      const Json& config) {
  const std::string arch(family.architecture);
  const auto count = [&](const char* key, std::initializer_list<const char*> names) {
    if (const Json* value = find(config, names)) fields.push_back({arch + key, value->get<uint32_t>()});
  };
  const auto real = [&](const char* key, std::initializer_list<const char*> names) {
    if (const Json* value = find(config, names)) fields.push_back({arch + key, value->get<float>()});
  };
  count(".block_count", {"num_hidden_layers", "n_layer"});
  if (arch == "mamba2" || arch == "granitehybrid" || arch.starts_with("nemotron_h")) {
    fields.push_back({arch + ".context_length", uint32_t{1} << 20});  // any: states have no limit
  } else {
    count(".context_length", {"max_position_embeddings", "n_positions", "model_max_length"});
  }
  count(".embedding_length", {"hidden_size", "n_embd"});
  if (arch == "mamba2") {
    fields.push_back({arch + ".feed_forward_length", uint32_t{0}});
  } else if (arch.starts_with("nemotron_h")) {
    std::vector<int32_t> lengths;
    for (int64_t i = 0; i < model.layers; ++i)
      lengths.push_back(static_cast<int32_t>(!model.kind(i).has_ffn ? 0
                                             : model.experts.at(i)  ? model.experts.intermediate_size
                                                                    : model.intermediate_size));
    fields.push_back({arch + ".feed_forward_length", lengths});
  } else if (find(config, {"intermediate_size_mlp"}) != nullptr) {
    count(".feed_forward_length", {"intermediate_size_mlp"});
  } else if (find(config, {"intermediate_size", "n_inner"}) != nullptr) {
    count(".feed_forward_length", {"intermediate_size", "n_inner"});
  } else if (config.contains("n_embd")) {
    fields.push_back({arch + ".feed_forward_length", 4 * config.at("n_embd").get<uint32_t>()});
  }
  if (arch == "mamba2") {
    fields.push_back({arch + ".attention.head_count", uint32_t{0}});
  } else {
    count(".attention.head_count", {"num_attention_heads", "n_head"});
  }
  const bool kimi = arch == "kimi-linear", nemotron = arch == "nemotron_h" || arch == "nemotron_h_moe";
  if (arch == "lfm2moe" || arch == "granitehybrid" || kimi || nemotron) {  // 0: the layer has a state
    std::vector<int32_t> heads;
    for (int64_t i = 0; i < model.layers; ++i)
      heads.push_back(!model.has_attention(i) ? 0 : kimi ? 1 : static_cast<int32_t>(model.kv_heads));
    fields.push_back({arch + ".attention.head_count_kv", heads});
  } else if (model.latent) {
    fields.push_back({arch + ".attention.head_count_kv", uint32_t{1}});
  } else {
    count(".attention.head_count_kv", {"num_key_value_heads"});
  }
  add_rope(fields, arch, model, config);
  real(".attention.layer_norm_rms_epsilon", {"rms_norm_eps"});
  if (model.has_states() && !nemotron && find(config, {"rms_norm_eps"}) == nullptr) {
    real(".attention.layer_norm_rms_epsilon", {"norm_eps", "layer_norm_epsilon"});
  } else {
    real(".attention.layer_norm_epsilon", {"layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"});
  }
  if (arch == "olmo") fields.push_back({arch + ".attention.layer_norm_epsilon", 1e-5f});
  if (arch != "olmoe") real(".attention.clamp_kqv", {"clip_qkv"});
  if (model.latent) {
    add_latents(fields, arch, model);
  } else if (arch != "mamba2" && find(config, {"head_dim"}) != nullptr) {
    count(".attention.key_length", {"head_dim"});
    count(".attention.value_length", {"head_dim"});
  }
  if (arch == "llama" || arch == "llama4" || arch == "smollm3" || arch == "granitehybrid" || model.latent)
    count(".vocab_size", {"vocab_size"});
  if (model.experts.count > 0) add_experts(fields, arch, model);
  if (model.has_states()) add_mixers(fields, arch, model);
  if (arch == "gptneox" || arch == "stablelm")
    fields.push_back({arch + ".use_parallel_residual", config.value("use_parallel_residual", true)});
  if (arch == "gemma2") real(".attn_logit_softcapping", {"attn_logit_softcapping"});
  if (arch == "gemma2" || arch == "gemma3") real(".final_logit_softcapping", {"final_logit_softcapping"});
  if (arch == "gemma2" || arch == "gemma3" || arch == "phi3" || arch == "gpt-oss")
    count(".attention.sliding_window", {"sliding_window"});
  const bool own_windows = arch == "olmo2" && model.sliding_window.size > 0;
  if (own_windows) count(".attention.sliding_window", {"sliding_window"});
  if (own_windows || ((arch == "gemma2" || arch == "gemma3") && !usual_sliding_windows(arch, model))) {
    std::vector<bool> windows;
    for (int64_t i = 0; i < model.layers; ++i) windows.push_back(model.sliding_window.at(i));
    fields.push_back({arch + ".attention.sliding_window_pattern", windows});
  }
}

// Llama 3.1's scaling in llama.cpp's form: the divisor of each frequency.
std::vector<float> llama3_factors(const models::ModelConfig& model, const Json& config) {
  const Json rope = rope_of(config);
  const Json* kind = find(rope, {"rope_type", "type"});
  if (kind == nullptr || *kind != "llama3") return {};
  const Json* theta = find(config, {"rope_theta"});
  if (theta == nullptr) theta = find(rope, {"rope_theta"});
  const double base = theta != nullptr ? theta->get<double>() : 10000.0;
  const double factor = rope.at("factor").get<double>(), low = rope.at("low_freq_factor").get<double>(),
               high = rope.at("high_freq_factor").get<double>(),
               original = rope.at("original_max_position_embeddings").get<double>();
  const int64_t dim = model.head_dim;
  std::vector<float> factors;
  for (int64_t i = 0; i < dim / 2; ++i) {
    const double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    const double wavelength = 2 * std::numbers::pi / frequency;
    double divisor = factor;
    if (wavelength < original / high) {
      divisor = 1;
    } else if (wavelength <= original / low) {
      const double smooth = (original / wavelength - low) / (high - low);
      divisor = 1 / ((1 - smooth) / factor + smooth);
    }
    factors.push_back(static_cast<float>(divisor));
  }
  return factors;
}

// Reorders the rows of each head from (first halves, second halves) to adjacent pairs.
void to_pairs(float* matrix, int64_t rows, int64_t columns, int64_t head_dim) {
  std::vector<float> head(static_cast<size_t>(head_dim * columns));
  for (int64_t first = 0; first < rows; first += head_dim) {
    float* from = matrix + first * columns;
    for (int64_t row = 0; row < head_dim; ++row) {
      const int64_t to = row < head_dim / 2 ? 2 * row : 2 * (row - head_dim / 2) + 1;
      std::copy_n(from + row * columns, columns, head.data() + to * columns);
    }
    std::copy(head.begin(), head.end(), from);
  }
}

GgufTensor tensor_of(const GgufFamily& family, const checkpoint::FileTensor& tensor,
                     const checkpoint::WeightSource& weights, const models::ModelConfig& model, DType dtype) {
  const std::string name = gguf_name(family, tensor.row.file_name);
  const int64_t head_dim = model.head_dim;
  // The format stores vectors and position tables in fp32.
  const bool matrix = tensor.shape.rank() > 1 && name != "position_embd.weight" &&
                      name.find(".ffn_gate_inp") == name.npos && name.find(".indexer.proj.") == name.npos;
  // The graph's layout: outputs first, fused segments consecutive.
  const Shape shape = tensor.row.transposed ? Shape{tensor.shape[1], tensor.shape[0]} : tensor.shape;
  const bool pairs =
      family.rotates_pairs && (name.find(".attn_q.") != name.npos || name.find(".attn_k.") != name.npos);
  const bool plus_one = family.norms_plus_one && name.find("norm.weight") != name.npos;
  const std::vector<float> factors = constants_of(family.architecture, model, name);
  const auto fill = [&weights, tensor, shape, pairs, plus_one, head_dim, factors](float* out) {
    if (!tensor.row.part.whole()) {
      const std::vector<float> values = values_in_file(weights, tensor.row.file_name);
      std::copy(values.begin(), values.end(), out);
    } else {
      const auto& entry = weights.entry(tensor.row.file_name);
      checkpoint::read_tensor(*entry.file, *entry.tensor,
                              {.name = entry.tensor->name,
                               .shape = tensor.shape,
                               .storage = checkpoint::in_memory(out),
                               .transposed = tensor.row.transposed,
                               .interleave = tensor.row.interleave});
    }
    if (pairs) to_pairs(out, shape[0], shape.elements() / shape[0], head_dim);
    if (plus_one) std::for_each(out, out + shape.elements(), [](float& value) { value += 1; });
    for (const float factor : factors)
      std::for_each(out, out + shape.elements(), [factor](float& value) { value *= factor; });
  };
  return {name, shape, matrix ? dtype : DType::kF32, fill};
}

uint32_t file_type_of(DType dtype) {
  return dtype == DType::kF32 ? 0 : dtype == DType::kF16 ? 1 : 32;
}

}  // namespace

void write_gguf_model(FileSystem& files, const Path& path, const std::string& name,
                      const models::ModelConfig& model, const checkpoint::WeightSource& weights,
                      const Path& folder, DType dtype) {
  const GgufFamily& family = family_of(model);
  check_expressible(family, model);
  const Json config = parse_json<Json>(model.family->write(model, dtype));
  GgufFields fields{{"general.architecture", std::string(family.architecture)},
                    {"general.type", std::string("model")},
                    {"general.name", name}};
  add_architecture(fields, family, model, config);
  fields.push_back({"general.file_type", file_type_of(dtype)});
  fields.push_back({"general.quantization_version", uint32_t{2}});
  add_tokenizer(fields, folder, model);

  std::vector<GgufTensor> tensors;
  const auto constant = [&](const char* tensor, const std::vector<float>& values) {
    if (values.empty()) return;
    tensors.push_back({tensor, {static_cast<int64_t>(values.size())}, DType::kF32, [values](float* out) {
                         std::copy(values.begin(), values.end(), out);
                       }});
  };
  constant("rope_freqs.weight", llama3_factors(model, config));
  const Json rope = rope_of(config);
  constant("rope_factors_long.weight", rope.value("long_factor", std::vector<float>{}));
  constant("rope_factors_short.weight", rope.value("short_factor", std::vector<float>{}));
  for (const checkpoint::FileTensor& tensor : checkpoint::file_tensors(model)) {
    if (add_expert_tensors(tensors, family.experts, family.layers, tensor, weights, model, dtype)) continue;
    if (add_fused_ffn(tensors, tensor, weights, model, dtype)) continue;
    if (model.latent && add_latent_tensors(tensors, tensor, weights, model, dtype)) continue;
    if (add_mixer_tensors(tensors, family.architecture, family.layers, tensor, weights, model, dtype))
      continue;
    tensors.push_back(tensor_of(family, tensor, weights, model, dtype));
  }
  write_gguf(files, path, fields, tensors);
}

}  // namespace strata::interop
