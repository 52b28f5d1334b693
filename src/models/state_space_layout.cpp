#include "models/state_space_layout.h"

#include <fmt/format.h>

#include <cmath>

#include "base/json.h"

namespace strata::models {

void add_state_space_rows(const layers::StateSpaceDims& dims, int64_t hidden_size, const std::string& file,
                          const std::string& ours, std::vector<TensorRow>& list) {
  const int64_t width = dims.width(), channels = width + 2 * dims.group_width(),
                all = width + channels + dims.heads;
  const int64_t keys = 2 * dims.group_width();
  // B and C are apart from x, since ranks may hold them otherwise.
  const auto part = [&](const std::string& name, const std::string& parameter, int64_t row, int64_t first,
                        int64_t rows, int64_t of) {
    list.push_back({.file_name = file + name,
                    .parameter = ours + parameter,
                    .row = row,
                    .rows = rows,
                    .part = {first, rows, of}});
  };
  const auto projections = [&](const std::string& kind) {
    part("in_proj" + kind, "gate" + kind, 0, 0, width, all);
    part("in_proj" + kind, "xbc" + kind, 0, width, width, all);
    part("in_proj" + kind, "xbc" + kind, width, 2 * width, keys, all);
    part("in_proj" + kind, "step" + kind, 0, width + channels, dims.heads, all);
  };
  const auto convolution = [&](const std::string& kind) {
    part("conv1d" + kind, "convolution" + kind, 0, 0, width, channels);
    part("conv1d" + kind, "convolution" + kind, width, width, keys, channels);
  };
  const auto add = [&](const char* name, const char* parameter, int64_t rows) {
    list.push_back({.file_name = file + name, .parameter = ours + parameter, .rows = rows});
  };
  projections(".weight");
  if (dims.bias) projections(".bias");
  convolution(".weight");
  for (size_t i = list.size() - 2; i < list.size(); ++i) list[i].shape = {channels, 1, dims.taps};
  if (dims.convolution_bias) convolution(".bias");
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
