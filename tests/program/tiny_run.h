// Small models compiled and filled, for tests of programs.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "program/executor.h"

namespace strata::program {

inline models::ModelConfig tiny_model(const std::string& preset) {
  models::ModelConfig model = models::preset(preset);
  model.vocab_size = 211;
  model.width = 48;
  model.layers = 3;
  model.heads = 3;
  model.kv_heads = model.kv_heads == model.heads || preset.starts_with("gpt2") ? 3 : 1;
  model.head_dim = 16;
  model.ffn = 80;
  model.max_positions = 64;
  return model;
}

inline CompileOptions tiny_options(const std::string& preset) {
  CompileOptions options;
  options.model = tiny_model(preset);
  options.rule_of = [](const std::string&, const Shape&) { return optim::ParameterRule{0.1, 1.0}; };
  options.threads = compute_threads();
  return options;
}

inline Request tiny_request(int64_t micro_batches = 1) {
  return {.kind = Kind::kTrain, .sequences = 2, .sequence_length = 24, .micro_batches = micro_batches};
}

// Numbers in (-1, 1) from a counter.
inline float pseudo_random(uint64_t i) {
  uint64_t x = i * 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 32;
  return static_cast<float>(x >> 40) / 8388608.0f - 1.0f;
}

class TinyRun {
 public:
  explicit TinyRun(std::shared_ptr<const ProgramSet> set) : executor(std::move(set)) {
    const ProgramSet& programs = executor.set();
    uint64_t counter = 0;
    for (const Persistent& entry : programs.persistent) {
      if (entry.role != graph::Role::kParameter) continue;
      auto* const values = executor.data_as<float>(entry.name);
      for (int64_t i = 0; i < entry.shape.elements(); ++i)
        values[i] = 0.3f * pseudo_random(++counter) + (entry.shape.rank() == 1 ? 1.0f : 0.0f);
    }
    executor.run(0, Segment::kEncode);
    const Request& request = executor.program(0).request;
    const int64_t length = request.sequence_length;
    for (int64_t micro = 0; micro < request.micro_batches; ++micro) {
      for (const std::string name : {"tokens", "targets", "positions", "kv_begin"}) {
        auto* const values = reinterpret_cast<int32_t*>(executor.batch_input(0, name, micro));
        if (values == nullptr) continue;
        for (int64_t i = 0; i < request.sequences * length; ++i) {
          const int64_t at = i % length;
          const int64_t document = at < length / 3 ? 0 : length / 3;
          values[i] = name == "positions"  ? static_cast<int32_t>(at - document)
                      : name == "kv_begin" ? static_cast<int32_t>(document)
                                           : static_cast<int32_t>((i * 37 + micro * 11 + (name[1] == 'a')) %
                                                                  programs.options.model.vocab_size);
        }
      }
    }
  }

  void step(float lr = 1e-2f) {
    const int64_t micro_batches = executor.program(0).request.micro_batches;
    for (int64_t i = 0; i < micro_batches; ++i)
      executor.run(0, i == 0 ? Segment::kFirst : Segment::kLater, i);
    optim::UpdateHyper hyper;
    hyper.lr = lr;
    hyper.max_grad_norm = 1;
    ++steps;
    hyper.bias_correction1 = static_cast<float>(1 - std::pow(hyper.beta1, steps));
    hyper.bias_correction2 = static_cast<float>(1 - std::pow(hyper.beta2, steps));
    std::memcpy(executor.data("hyper"), &hyper, sizeof hyper);
    executor.run(0, Segment::kUpdate);
    executor.run(0, Segment::kEncode);
  }

  // Parameters, gradients, moments and the loss, as bytes by name.
  std::vector<std::pair<std::string, std::string>> state() const {
    std::vector<std::pair<std::string, std::string>> out;
    for (const Persistent& entry : executor.set().persistent) {
      if (entry.role == graph::Role::kParameter || entry.role == graph::Role::kGradient ||
          entry.role == graph::Role::kState || entry.role == graph::Role::kMetric) {
        out.emplace_back(entry.name, std::string(reinterpret_cast<const char*>(executor.data(entry.name)),
                                                 static_cast<size_t>(entry.bytes)));
      }
    }
    return out;
  }

  Executor executor;
  int steps = 0;
};

}  // namespace strata::program
