#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/config_json.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "models/model.h"

namespace strata::models {
namespace {

constexpr std::array<const Family*, 2> kFamilies{&kLlama, &kGpt2};

std::string known_model_types() {
  std::string text;
  for (const Family* family : kFamilies) text += (text.empty() ? "" : ", ") + std::string(family->model_type);
  return text;
}

}  // namespace

std::span<const Family* const> families() {
  return kFamilies;
}

const Family* find_family(std::string_view name) {
  for (const Family* family : kFamilies) {
    if (family->name == name || family->model_type == name) return family;
  }
  return nullptr;
}

ModelConfig read_config_json(const std::string& text, const std::string& where) {
  const std::string model_type = ConfigJson(text, where).text_or("model_type", "");
  const Family* family = find_family(model_type);
  if (family == nullptr) {
    throw DataError("[{}] model_type \"{}\" is not known; known are {}", where, model_type,
                    known_model_types());
  }
  return family->read(text, where);
}

ModelConfig with_overrides(const ModelConfig& config,
                           const std::vector<std::pair<std::string, std::string>>& overrides,
                           const std::string& where) {
  if (overrides.empty()) return config;
  auto json = nlohmann::json::parse(config.family->write(config, DType::kF32));
  for (const auto& [key, value] : overrides) {
    if (!json.contains(key)) {
      throw ConfigError("[{}] model.override.{} is no field of a {} config.json", where, key,
                        config.family->model_type);
    }
    json[key] = nlohmann::json::parse(value);
  }
  return config.family->read(json.dump(), where);
}

std::vector<std::string> faults_of(const ModelConfig& config) {
  std::vector<std::string> faults;
  auto positive = [&](int64_t value, const char* what) {
    if (value <= 0) faults.push_back(fmt::format("{} is {}; it must be at least 1", what, value));
  };
  positive(config.vocab_size, "the vocabulary size");
  positive(config.width, "the model width");
  positive(config.layers, "the number of layers");
  positive(config.heads, "the number of heads");
  positive(config.kv_heads, "the number of key-value heads");
  positive(config.head_dim, "the head size");
  positive(config.ffn, "the FFN width");
  positive(config.max_positions, "the number of positions");
  if (!faults.empty()) return faults;
  if (config.heads % config.kv_heads != 0) {
    faults.push_back(
        fmt::format("{} heads cannot share {} key-value heads; the first must be a multiple of the second",
                    config.heads, config.kv_heads));
  }
  if (config.family == &kGpt2 && config.width % config.heads != 0) {
    faults.push_back(fmt::format("a width of {} does not divide among {} heads", config.width, config.heads));
  }
  if (config.family == &kLlama && config.head_dim % 2 != 0) {
    faults.push_back(
        fmt::format("a head size of {} is odd; rotary embedding needs an even one", config.head_dim));
  }
  if (config.head_dim > 256)
    faults.push_back(fmt::format("a head size of {} is too large; at most 256", config.head_dim));
  return faults;
}

namespace {

// Every parameter's shape, from the graph itself, so that no formula can drift from it.
template <typename Visit>
void visit_parameters(const ModelConfig& config, Visit visit) {
  graph::Graph graph;
  layers::Context context{.graph = graph, .sequence_length = 1, .sequences = 1};
  layers::add_batch(context);
  const Hidden hidden = config.family->build(config, context);
  for (const auto& parameter : graph.parameters())
    visit(graph.value(parameter.value), parameter.value == hidden.head);
}

}  // namespace

int64_t parameter_count(const ModelConfig& config) {
  int64_t count = 0;
  visit_parameters(config, [&](const graph::Value& value, bool) { count += value.shape.elements(); });
  return count;
}

double training_flops_per_token(const ModelConfig& config, int64_t sequence_length) {
  double matmul = 0;
  visit_parameters(config, [&](const graph::Value& value, bool is_head) {
    const bool table = value.name == "embedding.weight" || value.name == "positions.weight";
    if (value.shape.rank() >= 2 && (!table || is_head)) matmul += static_cast<double>(value.shape.elements());
  });
  // Forward: two products of T · hd · heads multiply-adds a token, half of them masked; backward twice that.
  const double attention =
      2.0 * static_cast<double>(sequence_length * config.heads * config.head_dim * config.layers);
  return 6 * matmul + 3 * attention;
}

}  // namespace strata::models
