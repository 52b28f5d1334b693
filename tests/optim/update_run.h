// An update graph of a few parameters, run in isolation on given gradients.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "device/cpu/bindings.h"
#include "device/op_run.h"
#include "kernels/cpu/measure.h"
#include "optim/optimizers.h"
#include "program/narrow.h"

namespace strata::optim {

// In (-1, 1), from a counter; exact in fp32. The same as in make_optim_golden.py.
inline float number(uint64_t stream, uint64_t i) {
  uint64_t x = (i + stream * 1000003 + 1) * 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 32;
  return static_cast<float>(static_cast<double>(x >> 40) / 8388608.0 - 1.0);
}

struct TestParameter {
  std::string name;
  Shape shape;
  std::vector<int64_t> segments = {};
};

class UpdateRun {
 public:
  // `loss_scale`: if not 0, the factor in the gradients, which then follows its rule.
  UpdateRun(const std::vector<TestParameter>& parameters, const RuleOf& rule_of, float loss_scale = 0) {
    graph::Graph graph;
    for (const TestParameter& one : parameters) {
      graph.add_parameter(one.name, graph::ParameterRole::kFfnIn, one.shape, {}, {}, one.segments);
      graph.parameters().back().gradient = device::add_operand(graph, "gradient." + one.name, DType::kF32,
                                                               one.shape, {}, graph::Role::kGradient);
    }
    const graph::ValueId count =
        device::add_operand(graph, "token_count", DType::kI64, {1}, {}, graph::Role::kMetric);
    const graph::ValueId loss =
        device::add_operand(graph, "loss_sum", DType::kF64, {1}, {}, graph::Role::kMetric);
    const graph::ValueId scale =
        loss_scale == 0 ? graph::kNone
                        : device::add_operand(graph, "loss_scale", DType::kF32, {1}, {}, graph::Role::kStep);
    update = add_update(graph, count, loss, rule_of, scale);
    program::narrow_pass(graph, rule_of, false);
    run_ = std::make_unique<device::OpRun>(std::move(graph), device::cpu_bindings(),
                                           cpu::describe_device(compute_threads()));
    for (graph::ValueId id = 0; id < run_->graph().value_count(); ++id) {
      const graph::Value& value = run_->graph().value(id);
      // Only states have initial values; a step must not read its results before it computes them.
      std::memset(run_->data(id),
                  value.role == graph::Role::kState || value.name == "guard_history" ? 0 : 0xff,
                  static_cast<size_t>(value.bytes()));
    }
    *at<int64_t>("token_count") = 1;
    *at<double>("loss_sum") = 1;
    if (loss_scale == 0) return;
    *at<float>("loss_scale") = loss_scale;
    GuardHistory history;
    history.loss_scale = first_loss_scale();
    history.loss_scale.scale = loss_scale;
    std::memcpy(at<std::byte>("guard_history"), &history, sizeof history);
  }

  template <typename T>
  T* at(const std::string& name) {
    const graph::ValueId id = run_->graph().find_value(name);
    EXPECT_NE(id, graph::kNone) << name;
    return run_->data_as<T>(id);
  }
  float* values(const std::string& name) { return at<float>(name); }
  float* gradient(const std::string& name) { return at<float>("gradient." + name); }

  void step(double lr, double max_grad_norm = 0) {
    UpdateHyper hyper;
    hyper.lr = static_cast<float>(lr);
    hyper.max_grad_norm = max_grad_norm;
    std::memcpy(at<std::byte>("hyper"), &hyper, sizeof hyper);
    run_->run();
  }

  // Parameters and states as bytes.
  std::string bits() const {
    std::string out;
    for (graph::ValueId id = 0; id < graph().value_count(); ++id) {
      const graph::Value& value = graph().value(id);
      if (value.role == graph::Role::kParameter || value.role == graph::Role::kState)
        out.append(reinterpret_cast<const char*>(run_->data(id)), static_cast<size_t>(value.bytes()));
    }
    return out;
  }

  const graph::Graph& graph() const { return run_->graph(); }
  UpdateGraph update;

 private:
  std::unique_ptr<device::OpRun> run_;
};

}  // namespace strata::optim
