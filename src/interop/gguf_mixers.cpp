#include "interop/gguf_mixers.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace strata::interop {
namespace {

using layers::DeltaDims;
using layers::Mixer;
using layers::StateSpaceDims;

// A GGUF tensor that is made of one tensor of the file.
struct Made {
  std::string name;  // within its layer
  Shape shape;
  bool is_matrix = true;  // of the export's dtype; otherwise of fp32
  std::function<void(const std::vector<float>&, float*)> make =
      [](const std::vector<float>& values, float* out) { std::copy(values.begin(), values.end(), out); };
};

std::vector<int64_t> range(int64_t first, int64_t count) {
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

void append(std::vector<int64_t>& rows, const std::vector<int64_t>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
}

// These rows of a matrix with `width` columns.
Made taking_rows(std::string name, int64_t width, std::vector<int64_t> rows, bool is_matrix = true) {
  const Shape shape{static_cast<int64_t>(rows.size()), width};
  return {std::move(name), shape, is_matrix,
          [width, rows = std::move(rows)](const std::vector<float>& values, float* out) {
            for (size_t i = 0; i < rows.size(); ++i)
              std::copy_n(values.data() + rows[i] * width, width, out + static_cast<int64_t>(i) * width);
          }};
}

// These elements of a vector, each as the function has it.
Made taking_elements(
    std::string name, Shape shape, std::vector<int64_t> from,
    std::function<float(float)> of = [](float value) { return value; }) {
  return {std::move(name), shape, false,
          [from = std::move(from), of = std::move(of)](const std::vector<float>& values, float* out) {
            for (size_t i = 0; i < from.size(); ++i) out[i] = of(values[static_cast<size_t>(from[i])]);
          }};
}

float decay_of(float log_rate) {
  return -std::exp(log_rate);
}

// --- Gated delta nets

// Value heads by key head, each of `size` rows, in the order of the file or assigned to key heads in turn.
std::vector<int64_t> value_rows(const DeltaDims& dims, int64_t size, bool in_turn) {
  const int64_t keys = dims.key_heads, each = dims.value_heads / keys;
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < dims.value_heads; ++i)
    append(rows, range((in_turn ? i % keys * each + i / keys : i) * size, size));
  return rows;
}

std::vector<int64_t> shifted(std::vector<int64_t> rows, int64_t by) {
  for (int64_t& row : rows) row += by;
  return rows;
}

// Qwen3-Next has q, k, v and gate of a key head together; the later ones have them apart, and llama.cpp then assigns value
// heads to key heads in turn.
std::vector<Made> of_delta(const std::string& part, const models::ModelConfig& model, bool in_turn) {
  const DeltaDims& dims = *model.delta;
  const int64_t width = model.hidden_size, keys = dims.key_width();
  const auto values = [&](int64_t size) { return value_rows(dims, size, in_turn); };
  if (part == "in_proj_qkvz.weight") {
    const int64_t of_values = dims.value_width() / dims.key_heads;
    std::vector<int64_t> q, k, v, gate;
    for (int64_t head = 0, at = 0; head < dims.key_heads; ++head) {
      for (const auto& [rows, count] : {std::pair{&q, dims.key_dim}, std::pair{&k, dims.key_dim},
                                        std::pair{&v, of_values}, std::pair{&gate, of_values}}) {
        append(*rows, range(at, count));
        at += count;
      }
    }
    append(q, k);
    append(q, v);
    return {taking_rows("attn_qkv.weight", width, q), taking_rows("attn_gate.weight", width, gate)};
  }
  if (part == "in_proj_qkv.weight" || part == "conv1d.weight") {
    std::vector<int64_t> rows = range(0, 2 * keys);
    append(rows, shifted(values(dims.value_dim), 2 * keys));
    if (part == "conv1d.weight") return {taking_rows("ssm_conv1d.weight", dims.taps, rows, false)};
    return {taking_rows("attn_qkv.weight", width, rows)};
  }
  if (part == "in_proj_z.weight") return {taking_rows("attn_gate.weight", width, values(dims.value_dim))};
  if (part == "in_proj_a.weight") return {taking_rows("ssm_alpha.weight", width, values(1))};
  if (part == "in_proj_b.weight") return {taking_rows("ssm_beta.weight", width, values(1))};
  if (part == "in_proj_ba.weight") return {{"ssm_ba.weight", {2 * dims.value_heads, width}}};
  if (part == "A_log") return {taking_elements("ssm_a", {dims.value_heads}, values(1), decay_of)};
  if (part == "dt_bias") return {taking_elements("ssm_dt.bias", {dims.value_heads}, values(1))};
  if (part == "norm.weight") return {{"ssm_norm.weight", {dims.value_dim}, false}};
  if (part != "out_proj.weight") return {};
  const std::vector<int64_t> columns = values(dims.value_dim);
  return {{"ssm_out.weight",
           {width, dims.value_width()},
           true,
           [columns](const std::vector<float>& file, float* out) {
             for (size_t i = 0; i < file.size(); ++i) {
               const size_t row = i / columns.size(),
                            column = static_cast<size_t>(columns[i % columns.size()]);
               out[i] = file[row * columns.size() + column];
             }
           }}};
}

// Kimi's, whose names begin like those of attention.
std::vector<Made> of_channel_delta(const std::string& part, const models::ModelConfig& model) {
  const DeltaDims& dims = *model.delta;
  const int64_t width = model.hidden_size, keys = dims.key_width(), values = dims.value_width();
  const int64_t rank = dims.gate_rank;
  struct Name {
    std::string_view ours;
    const char* theirs;
    Shape shape;
    bool is_matrix = true;
  };
  const Name names[] = {{"q_proj.weight", "attn_q.weight", {keys, width}},
                        {"k_proj.weight", "attn_k.weight", {keys, width}},
                        {"v_proj.weight", "attn_v.weight", {values, width}},
                        {"o_proj.weight", "attn_output.weight", {width, values}},
                        {"f_a_proj.weight", "ssm_f_a.weight", {rank, width}},
                        {"f_b_proj.weight", "ssm_f_b.weight", {keys, rank}},
                        {"g_a_proj.weight", "ssm_g_a.weight", {rank, width}},
                        {"g_b_proj.weight", "ssm_g_b.weight", {values, rank}},
                        {"b_proj.weight", "ssm_beta.weight", {dims.value_heads, width}},
                        {"q_conv1d.weight", "ssm_conv1d_q.weight", {1, keys, 1, dims.taps}, false},
                        {"k_conv1d.weight", "ssm_conv1d_k.weight", {1, keys, 1, dims.taps}, false},
                        {"v_conv1d.weight", "ssm_conv1d_v.weight", {1, values, 1, dims.taps}, false},
                        {"dt_bias", "ssm_dt.bias", {keys}, false},
                        {"o_norm.weight", "ssm_norm.weight", {dims.value_dim}, false}};
  for (const Name& name : names)
    if (part == name.ours) return {{name.theirs, name.shape, name.is_matrix}};
  if (part != "A_log") return {};
  return {taking_elements("ssm_a", {1, 1, dims.value_heads, 1}, range(0, dims.value_heads), decay_of)};
}

// --- Mamba-2

std::vector<Made> of_state_space(const std::string& part, const models::ModelConfig& model) {
  const StateSpaceDims& dims = *model.state_space;
  const int64_t width = model.hidden_size, inner = dims.width(), mixed = inner + 2 * dims.group_width();
  if (part == "in_proj.weight") {
    const std::vector<int64_t> ends{inner, 2 * inner, 2 * inner + dims.group_width(), inner + mixed,
                                    inner + mixed + dims.heads};
    const auto all = static_cast<float>(model.mixer_multipliers.mixer_in);
    const std::vector<float> factors(dims.multipliers.begin(), dims.multipliers.end());
    return {{"ssm_in.weight",
             {ends.back(), width},
             true,
             [width, ends, factors, all](const std::vector<float>& file, float* out) {
               for (size_t i = 0; i < file.size(); ++i) {
                 const int64_t row = static_cast<int64_t>(i) / width;
                 const auto segment = std::upper_bound(ends.begin(), ends.end(), row) - ends.begin();
                 out[i] = file[i] * all * factors[static_cast<size_t>(segment)];
               }
             }}};
  }
  if (part == "conv1d.weight") return {{"ssm_conv1d.weight", {mixed, dims.taps}, false}};
  if (part == "conv1d.bias") return {{"ssm_conv1d.bias", {mixed}, false}};
  if (part == "A_log") return {taking_elements("ssm_a", {dims.heads, 1}, range(0, dims.heads), decay_of)};
  if (part == "D") return {{"ssm_d", {dims.heads, 1}, false}};
  if (part == "dt_bias") return {{"ssm_dt.bias", {dims.heads}, false}};
  if (part == "norm.weight") return {{"ssm_norm.weight", {dims.groups, inner / dims.groups}, false}};
  if (part != "out_proj.weight") return {};
  return {{"ssm_out.weight",
           {width, inner},
           true,
           [all = static_cast<float>(model.mixer_multipliers.mixer_out)](const std::vector<float>& file,
                                                                         float* out) {
             std::transform(file.begin(), file.end(), out, [all](float value) { return value * all; });
           }}};
}

// --- Short convolutions

std::vector<Made> of_convolution(const std::string& part, const models::ModelConfig& model) {
  const int64_t width = model.hidden_size;
  if (part == "conv.weight")
    return {{"shortconv.conv.weight", {width, model.short_convolution->taps}, false}};
  if (part == "in_proj.weight") return {{"shortconv.in_proj.weight", {3 * width, width}}};
  if (part == "out_proj.weight") return {{"shortconv.out_proj.weight", {width, width}}};
  return {};
}

}  // namespace

std::vector<float> values_in_file(const checkpoint::WeightSource& weights, const std::string& file_name) {
  const auto& entry = weights.entry(file_name);
  std::vector<float> values(static_cast<size_t>(entry.tensor->shape.elements()));
  checkpoint::read_tensor(*entry.file, *entry.tensor,
                          {.name = entry.tensor->name,
                           .shape = entry.tensor->shape,
                           .storage = checkpoint::in_memory(values.data())});
  return values;
}

bool add_mixer_tensors(std::vector<GgufTensor>& tensors, std::string_view arch, std::string_view layers,
                       const checkpoint::FileTensor& tensor, const checkpoint::WeightSource& weights,
                       const models::ModelConfig& model, DType dtype) {
  const std::string& file_name = tensor.row.file_name;
  if (!model.has_states() || !file_name.starts_with(layers)) return false;
  const size_t number = file_name.find('.', layers.size());
  const std::string_view digits = std::string_view(file_name).substr(layers.size(), number - layers.size());
  const std::string within = file_name.substr(number + 1);
  const int64_t layer = std::stoll(std::string(digits));
  std::vector<Made> made;
  if (within.starts_with("linear_attn.")) {
    made =
        of_delta(within.substr(std::string_view("linear_attn.").size()), model, arch.starts_with("qwen35"));
  } else if (within.starts_with("self_attn.") && model.kind(layer).mixer == Mixer::kDelta) {
    made = of_channel_delta(within.substr(std::string_view("self_attn.").size()), model);
  } else if (within.starts_with("mamba.")) {
    made = of_state_space(within.substr(std::string_view("mamba.").size()), model);
  } else if (within.starts_with("mixer.") && model.kind(layer).mixer == Mixer::kStateSpace) {
    made = of_state_space(within.substr(std::string_view("mixer.").size()), model);
  } else if (within.starts_with("conv.")) {
    made = of_convolution(within.substr(std::string_view("conv.").size()), model);
  } else {
    return false;
  }
  if (made.empty()) throw DataError("[--format gguf] tensor '{}' has no name in {} files", file_name, arch);
  for (Made& one : made) {
    tensors.push_back({fmt::format("blk.{}.{}", digits, one.name), one.shape,
                       one.is_matrix ? dtype : DType::kF32,
                       [&weights, file_name, make = std::move(one.make)](float* out) {
                         make(values_in_file(weights, file_name), out);
                       }});
  }
  return true;
}

void add_mixers(GgufFields& fields, const std::string& arch, const models::ModelConfig& model) {
  const auto count = [&](const char* key, int64_t value) {
    fields.push_back({arch + key, static_cast<uint32_t>(value)});
  };
  if (model.delta) {
    const DeltaDims& dims = *model.delta;
    count(".ssm.conv_kernel", dims.taps);
    if (dims.decays_by_channel) {
      count(".kda.head_dim", dims.key_dim);
      return;
    }
    count(".ssm.state_size", dims.key_dim);
    count(".ssm.group_count", dims.key_heads);
    count(".ssm.time_step_rank", dims.value_heads);
    count(".ssm.inner_size", dims.value_width());
    std::vector<bool> has_state;
    for (int64_t i = 0; i < model.layers; ++i) has_state.push_back(!model.has_attention(i));
    fields.push_back({arch + ".attention.recurrent_layers", has_state});
    count(".full_attention_interval", 4);  // what llama.cpp assumes without the list
  }
  if (model.state_space) {
    const StateSpaceDims& dims = *model.state_space;
    count(".ssm.conv_kernel", dims.taps);
    count(".ssm.state_size", dims.state_dim);
    count(".ssm.group_count", dims.groups);
    count(".ssm.time_step_rank", dims.heads);
    count(".ssm.inner_size", dims.width());
  }
  if (arch == "granitehybrid" || arch.starts_with("nemotron_h"))
    fields.push_back({arch + ".rope.scaling.finetuned", false});  // attention has no positions
  if (arch == "granitehybrid") {
    const auto real = [&](const char* key, double value) {
      fields.push_back({arch + key, static_cast<float>(value)});
    };
    real(".attention.scale", 1 / std::sqrt(model.attention_scalar));
    real(".embedding_scale", model.embedding_multiplier);
    real(".residual_scale", model.residual_multiplier);
    real(".logit_scale", model.logits_divisor);
    // The FFN of all tokens counts as a shared expert, also in models without others.
    const bool routes = model.experts.count > 0;
    count(".expert_shared_feed_forward_length", routes ? model.experts.shared_size : model.intermediate_size);
    if (!routes) {
      count(".expert_count", 0);
      count(".expert_used_count", 0);
    }
  }
  if (model.short_convolution) count(".shortconv.l_cache", model.short_convolution->taps);
}

std::vector<float> constants_of(std::string_view arch, const models::ModelConfig& model,
                                std::string_view name) {
  if (arch != "falcon-h1") return {};
  const auto is = [name](std::string_view part) { return name.find(part) != name.npos; };
  const auto each = [](std::initializer_list<double> factors) {
    return std::vector<float>(factors.begin(), factors.end());
  };
  const auto& times = model.mixer_multipliers;
  if (is("token_embd.")) return each({model.embedding_multiplier});
  if (name == "output.weight") return each({1 / model.logits_divisor});
  if (is(".ffn_down.")) return each({model.ffn_out_multiplier});
  if (is(".ffn_gate.")) return each({model.ffn_gate_multiplier});
  if (is(".attn_q.") || is(".attn_v.")) return each({times.attention_in});
  // The scores' scale is a multiplier of keys in the file.
  if (is(".attn_k."))
    return each(
        {std::sqrt(static_cast<double>(model.head_dim) / model.attention_scalar), times.attention_in});
  return is(".attn_output.") ? each({times.attention_out}) : std::vector<float>{};
}

}  // namespace strata::interop
