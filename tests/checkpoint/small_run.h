// A run's state small enough to be saved thousands of times, with a value that tells its versions apart.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace strata::checkpoint {

struct SmallRun {
  std::vector<float> embedding, conv, moment;
  std::vector<int32_t> counter;

  explicit SmallRun(float value)
      : embedding(12, value), conv(6, value), moment(12, -value), counter(3, static_cast<int32_t>(value)) {
    for (size_t i = 0; i < embedding.size(); ++i) embedding[i] += static_cast<float>(i) / 16;
    for (size_t i = 0; i < conv.size(); ++i) conv[i] -= static_cast<float>(i) / 16;
  }

  std::vector<MutableTensorView> weights() {
    return {{"wte.weight", {4, 3}, DType::kF32, embedding.data()},
            {"h.0.c_attn.weight", {2, 3}, DType::kF32, conv.data(), true}};
  }
  std::vector<MutableTensorView> optimizer() {
    return {{"m/wte.weight", {4, 3}, DType::kF32, moment.data()},
            {"counter", {3}, DType::kI32, counter.data()}};
  }

  CheckpointContent content(int64_t step) {
    CheckpointContent content;
    content.step = step;
    content.model.config_json = "{\"model_type\": \"gpt2\"}\n";
    content.model.files = {{"tokenizer.json", "{\"version\": \"1.0\"}"}};
    for (const auto& view : weights()) content.model.weights.push_back(view.view());
    for (const auto& view : optimizer()) content.optimizer.push_back(view.view());
    content.state_json = "{\"step\": " + std::to_string(step) + "}";
    content.health.loss = 2.5;
    content.health.grad_norm = 0.5;
    content.program = "strata test";
    return content;
  }

  friend bool operator==(const SmallRun&, const SmallRun&) = default;
};

}  // namespace strata::checkpoint
