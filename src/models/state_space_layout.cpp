#include "models/state_space_layout.h"

#include <fmt/format.h>

#include <cmath>

#include "base/json.h"

namespace strata::models {

void add_state_space_rows(const layers::StateSpaceDims& dims, int64_t hidden_size, const std::string& file,
                          const std::string& ours, std::vector<TensorRow>& list) {
  const int64_t width = dims.width(), channels = width + 2 * dims.group_width(),
                all = width + channels + dims.heads;
  const auto parts = [&](const char* kind) {
    const auto add = [&](const char* parameter, int64_t first, int64_t rows) {
      list.push_back({.file_name = file + "in_proj" + kind,
                      .parameter = ours + parameter + kind,
                      .rows = rows,
                      .part = {first, rows, all}});
    };
    add("gate", 0, width);
    add("xbc", width, channels);
    add("step", width + channels, dims.heads);
  };
  const auto add = [&](const char* name, const char* parameter, int64_t rows) {
    list.push_back({.file_name = file + name, .parameter = ours + parameter, .rows = rows});
  };
  parts(".weight");
  if (dims.bias) parts(".bias");
  list.push_back({.file_name = file + "conv1d.weight",
                  .parameter = ours + "convolution.weight",
                  .rows = channels,
                  .shape = {channels, 1, dims.taps}});
  if (dims.convolution_bias) add("conv1d.bias", "convolution.bias", channels);
  add("A_log", "decay_rate", dims.heads);
  add("D", "skip", dims.heads);
  add("dt_bias", "step_bias", dims.heads);
  if (dims.norm != layers::StateSpaceDims::Norm::kAbsent) add("norm.weight", "norm.weight", width);
  add("out_proj.weight", "out.weight", hidden_size);
  if (dims.bias) add("out_proj.bias", "out.bias", hidden_size);
}

void read_step_limits(const ConfigJson& json, layers::StateSpaceDims& dims) {
  const auto limits = json.limits("time_step_limit");
  if (!limits) return;
  if (!(limits->first >= 0 && limits->first < limits->second)) {
    json.reject("time_step_limit", fmt::format("{:g} and {:g}", limits->first, limits->second),
                "two numbers from 0, the smaller one first");
  }
  dims.least_dt = limits->first;
  dims.greatest_dt = std::isinf(limits->second) ? 0 : limits->second;
}

nlohmann::ordered_json step_limits_json(const layers::StateSpaceDims& dims) {
  auto limits = nlohmann::ordered_json::array({dims.least_dt});
  if (dims.greatest_dt > 0) {
    limits.push_back(dims.greatest_dt);
  } else {
    limits.push_back({{"__float__", "Infinity"}});
  }
  return limits;
}

void require_heads_of_width(const ConfigJson& json, const char* heads_key, const layers::StateSpaceDims& dims,
                            int64_t width) {
  if (dims.width() == width) return;
  json.reject(heads_key,
              fmt::format("{} heads of {}, {} channels together", dims.heads, dims.head_dim, dims.width()),
              fmt::format("{}, the width times \"expand\"", width));
}

}  // namespace strata::models
