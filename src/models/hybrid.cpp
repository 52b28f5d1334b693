#include "models/hybrid.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace strata::models {
namespace {

std::string shown_names(std::span<const KindName> names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += fmt::format("\"{}\"", names[i].name);
  }
  return text;
}

class Limits {
 public:
  Limits(std::vector<std::string>& errors, const char* mixer) : errors_(errors), mixer_(mixer) {}

  bool within(int64_t value, int64_t most, const char* what) const {
    if (value >= 1 && value <= most) return true;
    errors_.push_back(fmt::format("{} of {} is {}: expected 1 to {}", what, mixer_, value, most));
    return false;
  }
  void multiple(int64_t value, int64_t of, const char* what, const char* of_what) const {
    if (value % of == 0) return;
    errors_.push_back(fmt::format("{} have {} {}, not a multiple of {} {}: expected {}", mixer_, value, what,
                                  of, of_what, (value + of - 1) / of * of));
  }

 private:
  std::vector<std::string>& errors_;
  const char* mixer_;
};

constexpr int64_t kMostTaps = 16;  // the kernel of convolutions

void add_delta_errors(const layers::DeltaDims& dims, std::vector<std::string>& errors) {
  const Limits limits(errors, "gated delta nets");
  bool fits = limits.within(dims.key_heads, kMostHeads, "the number of key heads");
  fits = limits.within(dims.value_heads, kMostHeads, "the number of value heads") && fits;
  limits.within(dims.key_dim, kMostHeadDim, "the size of a key");
  limits.within(dims.value_dim, kMostHeadDim, "the size of a value");
  limits.within(dims.taps, kMostTaps, "the convolution's kernel size");
  if (dims.gate_rank != 0) limits.within(dims.gate_rank, kMostWidth, "the rank of gates");
  if (fits) limits.multiple(dims.value_heads, dims.key_heads, "value heads", "key heads");
}

void add_state_space_errors(const layers::StateSpaceDims& dims, std::vector<std::string>& errors) {
  const Limits limits(errors, "state spaces");
  bool fits = limits.within(dims.heads, kMostHeads, "the number of heads");
  fits = limits.within(dims.groups, kMostHeads, "the number of groups") && fits;
  limits.within(dims.head_dim, kMostHeadDim, "the head size");
  limits.within(dims.state_dim, kMostHeadDim, "the state size");
  limits.within(dims.taps, kMostTaps, "the convolution's kernel size");
  if (fits) limits.multiple(dims.heads, dims.groups, "heads", "groups");
  if (dims.greatest_dt > 0 && dims.least_dt > dims.greatest_dt) {
    errors.push_back(fmt::format("the limits of time steps are {:g} and {:g}: expected the smaller one first",
                                 dims.least_dt, dims.greatest_dt));
  }
  if (dims.least_step > dims.most_step) {
    errors.push_back(fmt::format("initial time steps are {:g} to {:g}: expected the smaller one first",
                                 dims.least_step, dims.most_step));
  }
}

}  // namespace

std::vector<layers::LayerKind> read_kinds(const ConfigJson& json, int64_t layers,
                                          std::span<const KindName> names, int64_t period,
                                          layers::Mixer other) {
  std::vector<layers::LayerKind> kinds;
  const std::vector<std::string> types = json.texts("layer_types");
  if (types.empty()) {
    for (int64_t i = 0; i < layers; ++i)
      kinds.push_back({(i + 1) % period == 0 ? layers::Mixer::kAttention : other});
    return kinds;
  }
  if (static_cast<int64_t>(types.size()) != layers)
    json.reject("layer_types", fmt::format("{} entries", types.size()),
                fmt::format("one for each of {} layers", layers));
  for (size_t i = 0; i < types.size(); ++i) {
    const auto* const found = std::find_if(names.data(), names.data() + names.size(),
                                           [&](const KindName& name) { return name.name == types[i]; });
    if (found == names.data() + names.size())
      json.reject("layer_types", fmt::format("\"{}\" for layer {}", types[i], i), shown_names(names));
    kinds.push_back(found->kind);
  }
  return kinds;
}

nlohmann::ordered_json kinds_json(const ModelConfig& config, std::span<const KindName> names) {
  auto types = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < config.layers; ++i) {
    const layers::LayerKind kind = config.kind(i);
    for (const KindName& name : names) {
      if (name.kind != kind) continue;
      types.push_back(name.name);
      break;
    }
  }
  return types;
}

void add_mixer_errors(const ModelConfig& config, std::vector<std::string>& errors) {
  if (config.delta) add_delta_errors(*config.delta, errors);
  if (config.state_space) add_state_space_errors(*config.state_space, errors);
  if (config.short_convolution)
    Limits(errors, "short convolutions").within(config.short_convolution->taps, kMostTaps, "the kernel size");
  if (!config.layer_kinds.empty() && static_cast<int64_t>(config.layer_kinds.size()) != config.layers) {
    errors.push_back(fmt::format("layer_types has {} entries: expected one for each of {} layers",
                                 config.layer_kinds.size(), config.layers));
  }
}

namespace {

// Of a token, by chunks of C (ops/recurrence): a value head decays, reads, writes and asks its state, 6KV, or 4KV without
// the delta rule, and does the same among the tokens of the chunk.
constexpr double kChunk = 64;

double delta_flops(const layers::DeltaDims& dims) {
  const auto k = static_cast<double>(dims.key_dim), v = static_cast<double>(dims.value_dim);
  return static_cast<double>(dims.value_heads) *
         (6 * k * v + 4 * kChunk * k + 2 * kChunk * v + kChunk * (k + v));
}
double state_space_flops(const layers::StateSpaceDims& dims) {
  const auto k = static_cast<double>(dims.state_dim), v = static_cast<double>(dims.head_dim);
  return static_cast<double>(dims.heads) * (4 * k * v + 2 * kChunk * v) +
         static_cast<double>(dims.groups) * 2 * kChunk * k;
}

}  // namespace

double recurrence_flops_per_token(const ModelConfig& config, layers::Mixer mixer) {
  if (mixer == layers::Mixer::kDelta) return delta_flops(config.delta.value());
  if (mixer == layers::Mixer::kStateSpace || mixer == layers::Mixer::kParallel)
    return state_space_flops(config.state_space.value());
  return 0;
}

double recurrence_flops_per_token(const ModelConfig& config) {
  double flops = 0;
  for (const layers::LayerKind& kind : config.layer_kinds)
    flops += recurrence_flops_per_token(config, kind.mixer);
  return flops;
}

}  // namespace strata::models
