#include "interop/gguf_experts.h"

#include <algorithm>

#include "base/error.h"

namespace strata::interop {
namespace {

constexpr std::string_view kLayers = "model.layers.";

// Reads a file's tensor in the graph's layout: outputs first.
void read_weights(const checkpoint::WeightSource& weights, const checkpoint::FileTensor& tensor,
                  const std::string& file_name, float* out) {
  const auto& entry = weights.entry(file_name);
  checkpoint::read_tensor(*entry.file, *entry.tensor,
                          {.name = entry.tensor->name,
                           .shape = tensor.shape,
                           .storage = checkpoint::in_memory(out),
                           .transposed = tensor.row.transposed,
                           .interleave = tensor.row.interleave,
                           .blocks = tensor.row.blocks});
}

// One matrix of all experts, read from one tensor per expert.
GgufTensor of_every_expert(const std::string& name, const checkpoint::FileTensor& first,
                           const checkpoint::WeightSource& weights, int64_t experts, DType dtype) {
  const std::string& of_first = first.row.file_name;
  const size_t number = of_first.find(".experts.0.") + std::string_view(".experts.").size();
  const auto fill = [&weights, first, of_first, number, experts](float* out) {
    for (int64_t e = 0; e < experts; ++e) {
      const std::string file_name =
          of_first.substr(0, number) + std::to_string(e) + of_first.substr(number + 1);
      read_weights(weights, first, file_name, out + e * first.shape.elements());
    }
  };
  return {name, {experts, first.shape[0], first.shape[1]}, dtype, fill};
}

// Rows [first, first + rows) of each expert's `all` rows in a tensor that holds all experts. A bias has one
// column and is stored in fp32.
GgufTensor of_one_tensor(const std::string& name, const checkpoint::FileTensor& tensor,
                         const checkpoint::WeightSource& weights, int64_t all, int64_t first, int64_t rows,
                         DType dtype) {
  const int64_t experts = tensor.row.blocks, columns = tensor.shape.elements() / (experts * all);
  const bool is_bias = tensor.shape.rank() == 2;
  const auto fill = [&weights, tensor, experts, columns, all, first, rows](float* out) {
    std::vector<float> whole(static_cast<size_t>(tensor.shape.elements()));
    read_weights(weights, tensor, tensor.row.file_name, whole.data());
    for (int64_t e = 0; e < experts; ++e)
      std::copy_n(whole.data() + (e * all + first) * columns, rows * columns, out + e * rows * columns);
  };
  const Shape shape = is_bias ? Shape{experts, rows} : Shape{experts, rows, columns};
  return {name, shape, is_bias ? DType::kF32 : dtype, fill};
}

}  // namespace

namespace {

constexpr std::string_view kDenseLater = "dense layers after a layer with experts";

bool is_dense_later(const models::Experts& experts) {
  return !experts.dense.empty() || experts.period > 1;
}

std::optional<std::string_view> inexpressible_deepseek(const models::ModelConfig& model) {
  const models::Experts& experts = model.experts;
  if (is_dense_later(experts)) return kDenseLater;
  if (!model.adjacent_rotary_pairs) return "rotary pairs of dimensions that are not adjacent";
  if (experts.route.groups > 1 && experts.route.group_score == ops::RouteAttrs::GroupScore::kBest)
    return "group scores from the best expert of a group, not from its best two";
  if (model.indexer) return std::nullopt;
  // llama.cpp recognizes V2-Lite and Moonlight by these numbers.
  const bool lite =
      model.layers == 26 || model.layers == 27 || (model.layers == 48 && model.vocab_size == 128256);
  if (lite != (model.latent->query_rank == 0)) {
    return lite ? "a query latent (q_lora_rank) in a model with this number of layers"
                : "queries without a latent (q_lora_rank) in a model that does not have 26 or 27 layers";
  }
  return std::nullopt;
}

std::optional<std::string_view> inexpressible_glm(const models::ModelConfig& model) {
  const models::Experts& experts = model.experts;
  if (is_dense_later(experts)) return kDenseLater;
  if (!model.qkv_bias) return "q, k and v projections without biases";
  return std::nullopt;
}

std::optional<std::string_view> inexpressible_llama4(const models::ModelConfig& model) {
  const models::Experts& experts = model.experts;
  if (!experts.dense.empty()) return "an arbitrary list of layers with experts, only every n-th layer";
  if (model.sliding_window.size != 8192 || model.temper.floor != 8192 || model.temper.scale != 0.1)
    return "attention chunks or a query temperature other than Llama 4's (8192 and 0.1)";
  for (int64_t i = 0; i < model.layers; ++i)
    if (model.sliding_window.at(i) != ((i + 1) % 4 != 0))
      return "rotary layers other than three of every four";
  if (model.plain_qk_norm != (experts.count != 128))
    return "this normalization of q and k: only models with 128 experts have none";
  return std::nullopt;
}

}  // namespace

std::optional<std::string_view> inexpressible(std::string_view arch, const models::ModelConfig& model) {
  const models::Experts& experts = model.experts;
  if (arch == "kimi-linear") {
    if (is_dense_later(experts)) return kDenseLater;
    if (experts.route.groups > 1) return "groups of experts";
    return experts.route.normalize ? std::nullopt
                                   : std::optional("weights of experts that are not normalized");
  }
  if (arch == "nemotron_h_moe") return std::nullopt;  // its layers and constants have keys
  if (model.latent) return inexpressible_deepseek(model);
  if (arch == "glm4moe") return inexpressible_glm(model);
  if (arch == "llama4") return inexpressible_llama4(model);
  if (arch == "lfm2moe") {
    if (is_dense_later(experts)) return kDenseLater;
  } else {
    for (int64_t i = 0; i < model.layers; ++i)
      if (!experts.at(i)) return "layers without experts";
  }
  if (arch == "gpt-oss") {
    if (experts.clamp.alpha != 1.702 || experts.clamp.limit != 7)
      return "gates clamped other than with alpha 1.702 and limit 7";
    if (!model.qkv_bias || !model.out_bias) return "attention projections without biases";
    for (int64_t i = 0; i < model.layers; ++i)
      if (model.sliding_window.at(i) != (i % 2 == 0))
        return "sliding windows other than in every other layer";
    return std::nullopt;
  }
  if (arch == "olmoe" && model.clip_qkv > 0) return "clipped q, k and v (clip_qkv)";
  if (arch == "olmoe" && (model.q_width() != model.hidden_size || model.kv_width() != model.hidden_size))
    return "fewer key heads than query heads, or heads whose total width is not hidden_size";
  if (arch == "lfm2moe" && experts.route.scale != 1) return "a scale of the experts' weights";
  const bool normalizes = arch != "olmoe" && arch != "qwen2moe";
  if (experts.route.normalize != normalizes) return "this norm_topk_prob, which the architecture fixes";
  return std::nullopt;
}

namespace {

// For DeepSeek and GLM.
void add_shared_experts(GgufFields& fields, const std::string& arch, const models::Experts& experts) {
  const auto count = [&](const char* key, int64_t value) {
    fields.push_back({arch + key, static_cast<uint32_t>(value)});
  };
  const bool sigmoid = experts.route.score == ops::RouteAttrs::Score::kSigmoid;
  const bool kimi = arch == "kimi-linear";  // which fixes groups and normalization
  if ((experts.route.groups > 1 || sigmoid) && !kimi) {
    count(".expert_group_count", experts.route.groups);
    count(".expert_group_used_count", experts.route.kept_groups);
  }
  if (kimi) count(".expert_group_used_count", 1);
  count(".expert_gating_func", sigmoid ? 2 : 1);
  count(".leading_dense_block_count", experts.first);
  count(".expert_feed_forward_length", experts.intermediate_size);
  count(".expert_shared_count", experts.shared_size / experts.intermediate_size);
  fields.push_back({arch + ".expert_weights_scale", static_cast<float>(experts.route.scale)});
  if (experts.route.normalize && !kimi) fields.push_back({arch + ".expert_weights_norm", true});
}

}  // namespace

void add_experts(GgufFields& fields, const std::string& arch, const models::ModelConfig& model) {
  const models::Experts& experts = model.experts;
  const auto count = [&](const char* key, int64_t value) {
    fields.push_back({arch + key, static_cast<uint32_t>(value)});
  };
  count(".expert_count", experts.count);
  count(".expert_used_count", experts.route.k);
  if (arch == "nemotron_h_moe") {
    count(".expert_feed_forward_length", experts.intermediate_size);
    count(".expert_shared_feed_forward_length", experts.shared_size);
    count(".expert_shared_count", 1);
    fields.push_back({arch + ".expert_weights_norm", experts.route.normalize});
    fields.push_back({arch + ".expert_weights_scale", static_cast<float>(experts.route.scale)});
    count(".expert_group_count", experts.route.groups);
    count(".expert_group_used_count", experts.route.kept_groups);
    if (experts.latent_size > 0) count(".moe_latent_size", experts.latent_size);
    return;
  }
  if (arch == "llama4") count(".interleave_moe_layer_step", std::max<int64_t>(experts.period, 1));
  if (model.latent || arch == "glm4moe") return add_shared_experts(fields, arch, experts);
  if (arch != "llama" && arch != "olmoe" && arch != "granitehybrid")
    count(".expert_feed_forward_length", experts.intermediate_size);
  if (arch == "qwen2moe" || arch == "qwen3next" || arch == "qwen35moe")
    count(".expert_shared_feed_forward_length", experts.shared_size);
  if (arch == "minimax-m2" || arch == "lfm2moe") count(".expert_gating_func", 2);  // sigmoid
  if (arch == "lfm2moe") count(".leading_dense_block_count", experts.first);
}

bool add_expert_tensors(std::vector<GgufTensor>& tensors, const ExpertParts& parts, std::string_view layers,
                        const checkpoint::FileTensor& tensor, const checkpoint::WeightSource& weights,
                        const models::ModelConfig& model, DType dtype) {
  const std::string& file_name = tensor.row.file_name;
  if (parts.block.empty() || !file_name.starts_with(layers)) return false;
  const size_t dot = file_name.find('.', layers.size());
  if (file_name.compare(dot + 1, parts.block.size(), parts.block) != 0) return false;
  const std::string prefix = "blk." + file_name.substr(layers.size(), dot - layers.size()) + ".ffn_";
  std::string_view part = std::string_view(file_name).substr(dot + 1 + parts.block.size());
  if (tensor.row.blocks > 0) {
    const int64_t ffn = model.experts.intermediate_size, width = model.hidden_size;
    const std::string kind = part.ends_with("_bias") ? "_exps.bias" : "_exps.weight";
    if (part.starts_with("down_proj") || part.starts_with(parts.down)) {
      tensors.push_back(of_one_tensor(prefix + "down" + kind, tensor, weights, width, 0, width, dtype));
    } else {
      tensors.push_back(of_one_tensor(prefix + "gate" + kind, tensor, weights, 2 * ffn, 0, ffn, dtype));
      tensors.push_back(of_one_tensor(prefix + "up" + kind, tensor, weights, 2 * ffn, ffn, ffn, dtype));
    }
    return true;
  }
  if (part.empty() || part.front() < '0' || part.front() > '9') return false;
  if (!part.starts_with("0.")) return true;
  part = part.substr(2, part.size() - 2 - std::string_view(".weight").size());
  const char* const which = part == parts.gate ? "gate" : part == parts.up ? "up" : "down";
  tensors.push_back(
      of_every_expert(prefix + which + "_exps.weight", tensor, weights, model.experts.count, dtype));
  return true;
}

bool add_fused_ffn(std::vector<GgufTensor>& tensors, const checkpoint::FileTensor& tensor,
                   const checkpoint::WeightSource& weights, const models::ModelConfig& model, DType dtype) {
  constexpr std::string_view kBlock = ".shared_mlp.";
  const std::string& file_name = tensor.row.file_name;
  const size_t at = file_name.find(kBlock);
  if (at == file_name.npos) return false;
  const std::string layer = "blk." + file_name.substr(kLayers.size(), at - kLayers.size());
  const char* const ending = model.experts.count > 0 ? "_shexp.weight" : ".weight";
  const auto rows = [&](const char* name, int64_t first, int64_t count) {
    const int64_t columns = tensor.shape[1];
    tensors.push_back({layer + ".ffn_" + name + ending,
                       {count, columns},
                       dtype,
                       [&weights, tensor, first, count, columns](float* out) {
                         std::vector<float> whole(static_cast<size_t>(tensor.shape.elements()));
                         read_weights(weights, tensor, tensor.row.file_name, whole.data());
                         std::copy_n(whole.data() + first * columns, count * columns, out);
                       }});
  };
  if (file_name.find("input_linear") != file_name.npos) {
    rows("gate", 0, tensor.shape[0] / 2);
    rows("up", tensor.shape[0] / 2, tensor.shape[0] / 2);
  } else {
    rows("down", 0, tensor.shape[0]);
  }
  return true;
}

void add_latents(GgufFields& fields, const std::string& arch, const models::ModelConfig& model) {
  const layers::LatentDims& dims = *model.latent;
  const auto count = [&](const char* key, int64_t value) {
    fields.push_back({arch + key, static_cast<uint32_t>(value)});
  };
  if (dims.query_rank > 0) count(".attention.q_lora_rank", dims.query_rank);
  count(".attention.kv_lora_rank", dims.rank);
  count(".attention.key_length", dims.rank + dims.rotary_dim);
  count(".attention.value_length", dims.rank);
  count(".attention.key_length_mla", dims.head_dim());
  count(".attention.value_length_mla", dims.value_dim);
  if (model.indexer) {
    count(".attention.indexer.head_count", model.indexer->heads);
    count(".attention.indexer.key_length", model.indexer->dim);
    count(".attention.indexer.top_k", model.indexer->count);
  }
  if (!model.without_indexer.empty()) {
    std::vector<bool> own;
    for (int64_t i = 0; i < model.layers; ++i) own.push_back(model.has_own_indexer(i));
    fields.push_back({arch + ".attention.indexer.types", own});
  }
  if (model.rope.kind == ops::RopeScaling::Kind::kYarn)
    fields.push_back(
        {arch + ".rope.scaling.yarn_log_multiplier", static_cast<float>(0.1 * model.rope.mscale_all_dim)});
}

bool add_latent_tensors(std::vector<GgufTensor>& tensors, const checkpoint::FileTensor& tensor,
                        const checkpoint::WeightSource& weights, const models::ModelConfig& model,
                        DType dtype) {
  constexpr std::string_view kEnding = ".self_attn.kv_b_proj.weight";
  const std::string& file_name = tensor.row.file_name;
  if (!file_name.ends_with(kEnding)) return false;
  const std::string layer =
      "blk." + file_name.substr(kLayers.size(), file_name.size() - kEnding.size() - kLayers.size());
  const layers::LatentDims dims = *model.latent;
  const int64_t heads = model.heads, keys = heads * dims.plain_dim;
  // The graph stores the keys of all heads first, then their values.
  const auto read = [&weights, tensor] {
    std::vector<float> whole(static_cast<size_t>(tensor.shape.elements()));
    read_weights(weights, tensor, tensor.row.file_name, whole.data());
    return whole;
  };
  tensors.push_back(
      {layer + ".attn_k_b.weight", {heads, dims.rank, dims.plain_dim}, dtype, [read, dims, keys](float* out) {
         const std::vector<float> whole = read();
         for (int64_t row = 0; row < keys; ++row) {
           float* const head = out + row / dims.plain_dim * dims.rank * dims.plain_dim;
           for (int64_t c = 0; c < dims.rank; ++c)
             head[c * dims.plain_dim + row % dims.plain_dim] =
                 whole[static_cast<size_t>(row * dims.rank + c)];
         }
       }});
  tensors.push_back(
      {layer + ".attn_v_b.weight", {heads, dims.value_dim, dims.rank}, dtype, [read, dims, keys](float* out) {
         const std::vector<float> whole = read();
         std::copy(whole.begin() + static_cast<std::ptrdiff_t>(keys * dims.rank), whole.end(), out);
       }});
  return true;
}

}  // namespace strata::interop
