// Compares gradients of graphs of several ops with central differences of the loss along random directions of
// every parameter. For single ops see difference_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "fixtures/op_tensors.h"
#include "graph/differentiate.h"
#include "graph/sum.h"
#include "ops/activation/activation.h"
#include "ops/constant/constant.h"
#include "ops/cross_attention/cross_attention.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/loss/loss.h"
#include "ops/norm/norm.h"
#include "ops/qk_norm/qk_norm.h"
#include "ops/relative_bias/relative_bias.h"
#include "ops/rope/rope.h"

namespace strata::ops {
namespace {

using graph::kNone;
using graph::Role;

constexpr int64_t kRows = 12;
constexpr int64_t kLength = 6;
constexpr int64_t kWidth = 16;
constexpr int64_t kHeadDim = 4;

// Maps the activations x[kRows, kWidth] to those that the loss reads.
struct GradientCase {
  std::string name;
  std::function<ValueId(Graph&, ValueId x)> build;
  bool head_bias = false;
};

void PrintTo(const GradientCase& one, std::ostream* out) {
  *out << one.name;
}

ValueId parameter(Graph& graph, const char* name, Shape shape, std::vector<int64_t> segments = {}) {
  return graph.add_parameter(name, graph::ParameterRole::kFfnIn, shape, {}, {}, std::move(segments));
}
ValueId input(Graph& graph, const char* name, Shape shape, DType dtype) {
  return device::add_operand(graph, name, dtype, shape, {}, Role::kInput);
}
// Queries of four heads, keys and values of two.
ValueId qkv_of(Graph& graph, ValueId x) {
  const std::vector<int64_t> parts{4 * kHeadDim, 2 * kHeadDim, 2 * kHeadDim};
  return linear(graph, x, parameter(graph, "qkv", {8 * kHeadDim, kWidth}, parts));
}

constexpr AttentionOptions kPlain{.attrs = {.head_dim = kHeadDim, .sequence_length = kLength, .scale = 0.5}};

ValueId qk_normed(Graph& g, ValueId x, int64_t q_width, int64_t k_width) {
  const ValueId q = parameter(g, "q_norm", {q_width}), k = parameter(g, "k_norm", {k_width});
  return attention(g, qk_norm(g, qkv_of(g, x), q, k, 1e-5, 1), kNone, kPlain);
}

constexpr int64_t kEncoderLength = 9;  // tokens of the encoder's sequence

// The relative position bias of a model for all rows of a sequence.
AttentionOptions biased(Graph& g, bool causal) {
  AttentionOptions options = kPlain;
  options.attrs.causal = causal;
  options.bias = graph::add<RelativeBias>(g, {.table = parameter(g, "buckets", {8, 4})},
                                          {.max_distance = 5,
                                           .bidirectional = !causal,
                                           .first = 1 - kLength,
                                           .last = causal ? 0 : kLength - 1})
                     .bias;
  options.attrs.bias_zero = kLength - 1;
  return options;
}

// Documents of the encoder's sequence: some rows see no key, and some keys are seen by no row.
ValueId read_encoder(Graph& g, ValueId x, double softcap) {
  const int64_t sequences = kRows / kLength;
  const ValueId tokens = input(g, "encoder_tokens", {sequences * kEncoderLength}, DType::kI32);
  const ValueId encoded = embedding(g, tokens, parameter(g, "encoder_table", {9, kWidth}), DType::kF32);
  const ValueId kv =
      linear(g, encoded, parameter(g, "kv", {4 * kHeadDim, kWidth}, {2 * kHeadDim, 2 * kHeadDim}));
  const ValueId q = linear(g, x, parameter(g, "q", {4 * kHeadDim, kWidth}));
  const ValueId begin = input(g, "cross_kv_begin", {kRows}, DType::kI32);
  AttentionOptions options = kPlain;
  options.attrs.softcap = softcap;
  options.kv_end = document_ends(
      g, begin, input(g, "encoder_kv_begin", {sequences * kEncoderLength}, DType::kI32), sequences);
  return graph::add_sum(g, cross_attention(g, q, kv, begin, options), x);
}

std::vector<GradientCase> cases() {
  return {
      {"embedding", [](Graph&, ValueId x) { return x; }},
      {"embedding_positions",
       [](Graph& g, ValueId x) {
         const ValueId again =
             embedding(g, input(g, "tokens", {kRows}, DType::kI32), parameter(g, "table2", {kRows, kWidth}),
                       DType::kF32,
                       {.scale = 1.5,
                        .positions = input(g, "positions", {kRows}, DType::kI32),
                        .position_table = parameter(g, "position_table", {kLength, kWidth})});
         return graph::add_sum(g, x, again);
       }},
      {"add",
       [](Graph& g, ValueId x) { return graph::add_sum(g, x, activation(g, x, ActivationKind::kGeluTanh)); }},
      {"add_of_one_value", [](Graph& g, ValueId x) { return graph::add_sum(g, x, x); }},
      {"linear",
       [](Graph& g, ValueId x) {
         return linear(g, x, parameter(g, "w", {10, kWidth}));
       }},
      {"linear_bias",
       [](Graph& g, ValueId x) {
         const ValueId w = parameter(g, "w", {10, kWidth});
         return linear(g, x, w, parameter(g, "b", {10}));
       }},
      {"rms_norm",
       [](Graph& g, ValueId x) { return rms_norm(g, x, kNone, parameter(g, "w", {kWidth}), 1e-5).y; }},
      {"rms_norm_residual",
       [](Graph& g, ValueId x) {
         const Normed normed =
             rms_norm(g, activation(g, x, ActivationKind::kGeluTanh), x, parameter(g, "w", {kWidth}), 1e-5);
         return graph::add_sum(g, normed.y, normed.h);
       }},
      {"layer_norm",
       [](Graph& g, ValueId x) {
         const ValueId w = parameter(g, "w", {kWidth});
         return layer_norm(g, x, kNone, w, parameter(g, "b", {kWidth}), 1e-5).y;
       }},
      {"layer_norm_residual",
       [](Graph& g, ValueId x) {
         const ValueId w = parameter(g, "w", {kWidth});
         const Normed normed = layer_norm(g, activation(g, x, ActivationKind::kGeluTanh), x, w,
                                          parameter(g, "b", {kWidth}), 1e-5);
         return graph::add_sum(g, normed.y, normed.h);
       }},
      {"rope_attention",
       [](Graph& g, ValueId x) {
         const ValueId table = input(g, "angles", {kLength, kHeadDim / 2, 2}, DType::kF32);
         const ValueId positions = input(g, "positions", {kRows}, DType::kI32);
         const ValueId turned =
             graph::add<Rope>(g, {.x = qkv_of(g, x), .table = table, .positions = positions},
                              {.head_dim = kHeadDim})
                 .qkv;
         return attention(g, turned, kNone, kPlain);
       }},
      {"attention_of_documents",
       [](Graph& g, ValueId x) {
         return attention(g, qkv_of(g, x), input(g, "kv_begin", {kRows}, DType::kI32), kPlain);
       }},
      {"swiglu",
       [](Graph& g, ValueId x) {
         return gated(g, linear(g, x, parameter(g, "w", {20, kWidth}, {10, 10})), ActivationKind::kSilu);
       }},
      {"attention_window_softcap",
       [](Graph& g, ValueId x) {
         AttentionOptions options = kPlain;
         options.attrs.window = 3;
         options.attrs.softcap = 0.3;
         return attention(g, qkv_of(g, x), kNone, options);
       }},
      {"qk_norm_head", [](Graph& g, ValueId x) { return qk_normed(g, x, kHeadDim, kHeadDim); }},
      {"qk_norm_projection", [](Graph& g, ValueId x) { return qk_normed(g, x, 4 * kHeadDim, 2 * kHeadDim); }},
      {"rms_norm_offset",
       [](Graph& g, ValueId x) { return rms_norm(g, x, kNone, parameter(g, "w", {kWidth}), 1e-5, 1).y; }},
      {"layer_norm_plain",
       [](Graph& g, ValueId x) {
         return layer_norm(g, x, kNone, constant(g, "ones", kWidth, 1), constant(g, "zeros", kWidth, 0), 1e-5)
             .y;
       }},
      {"attention_biased",
       [](Graph& g, ValueId x) { return attention(g, qkv_of(g, x), kNone, biased(g, true)); }},
      // Two layers that share one bias.
      {"encoder_biased",
       [](Graph& g, ValueId x) {
         AttentionOptions options = biased(g, false);
         const ValueId begin = input(g, "kv_begin", {kRows}, DType::kI32);
         options.kv_end = document_ends(g, begin, begin, kRows / kLength);
         const ValueId once = attention(g, qkv_of(g, x), begin, options);
         return attention(g, qkv_of(g, once), begin, options);
       }},
      {"encoder",
       [](Graph& g, ValueId x) {
         AttentionOptions options = kPlain;
         options.attrs.causal = false;
         return attention(g, qkv_of(g, x), kNone, options);
       }},
      {"cross_attention", [](Graph& g, ValueId x) { return read_encoder(g, x, 0); }},
      {"cross_attention_softcap", [](Graph& g, ValueId x) { return read_encoder(g, x, 0.3); }},
      {"scale",
       [](Graph& g, ValueId x) { return scale(g, activation(g, x, ActivationKind::kGeluTanh), -1.5); }},
      {"add_row",
       [](Graph& g, ValueId x) {
         const ValueId moved =
             graph::add<AddRow>(g, {.x = x, .table = parameter(g, "rows", {3, kWidth})}, {1}).y;
         return graph::add_sum(g, moved, x);
       }},
      {"head_bias", [](Graph&, ValueId x) { return x; }, true},
      {"relu", [](Graph& g, ValueId x) { return activation(g, x, ActivationKind::kRelu); }},
      {"relu2", [](Graph& g, ValueId x) { return activation(g, x, ActivationKind::kRelu2); }},
      {"gelu_tanh", [](Graph& g, ValueId x) { return activation(g, x, ActivationKind::kGeluTanh); }},
  };
}

void fill(device::OpRun& run) {
  uint64_t stream = 0;
  for (ValueId id = 0; id < run.graph().value_count(); ++id) {
    const graph::Value& value = run.graph().value(id);
    if (value.role != Role::kInput && value.role != Role::kParameter) continue;
    ++stream;
    for (int64_t i = 0; i < value.shape.elements(); ++i) {
      if (value.dtype == DType::kI32) {
        run.data_as<int32_t>(id)[i] =
            static_cast<int32_t>(value.name == "tokens"             ? i
                                 : value.name == "positions"        ? i % kLength
                                 : value.name == "kv_begin"         ? (i % kLength >= 4 ? 4 : 0)
                                 : value.name == "encoder_kv_begin" ? (i % kEncoderLength >= 7   ? 7
                                                                       : i % kEncoderLength >= 3 ? 3
                                                                                                 : 0)
                                 : value.name == "cross_kv_begin"   ? (i % kLength >= 5   ? -1
                                                                       : i % kLength >= 2 ? 3
                                                                                          : 0)
                                                                    : (i * 5 + 2) % 9);  // targets
      } else if (value.name == "angles") {
        const int64_t pair = i / 2;
        const double angle = 0.3 * static_cast<double>(pair);
        run.data_as<float>(id)[i] = static_cast<float>(i % 2 == 0 ? std::cos(angle) : std::sin(angle));
      } else {
        run.data_as<float>(id)[i] =
            static_cast<float>(pseudo_random(stream * 7919 + static_cast<uint64_t>(i)));
      }
    }
  }
}

double loss(device::OpRun& run, ValueId sum) {
  run.encode();
  run.run();
  return *run.data_as<double>(sum);
}

class Gradients : public testing::TestWithParam<GradientCase> {};

TEST_P(Gradients, FollowTheLoss) {
  Graph graph;
  const ValueId tokens = input(graph, "tokens", {kRows}, DType::kI32);
  const ValueId x = embedding(graph, tokens, parameter(graph, "table", {kRows, kWidth}), DType::kF32);
  const ValueId y = GetParam().build(graph, x);
  const ValueId head = parameter(graph, "head", {9, graph.value(y).shape[1]});
  LossOptions options;
  if (GetParam().head_bias) options.bias = parameter(graph, "head_bias", {9});
  const ValueId targets = input(graph, "targets", {kRows}, DType::kI32);
  const ValueId sum = linear_cross_entropy(graph, y, head, targets, options).sum;
  graph::differentiate(graph, std::vector{graph::WeightedLoss{.sum = sum}});
  device::OpRun run(std::move(graph), device::cpu_bindings(), one_thread());
  fill(run);
  loss(run, sum);

  struct Checked {
    graph::Parameter parameter;
    std::vector<float> gradient;
  };
  std::vector<Checked> all;
  for (const graph::Parameter& one : run.graph().parameters()) {
    const auto* gradient = run.data_as<float>(one.gradient);
    const auto n = run.graph().value(one.value).shape.elements();
    all.push_back({one, {gradient, gradient + n}});
  }
  constexpr double kStep = 4e-3;
  for (const Checked& one : all) {
    const std::string& name = run.graph().value(one.parameter.value).name;
    auto* const weights = run.data_as<float>(one.parameter.value);
    const std::vector<float> before(weights, weights + one.gradient.size());
    for (uint64_t direction = 1; direction <= 3; ++direction) {
      double along = 0, length = 0;
      auto toward = [&](size_t i) { return pseudo_random(direction * 104729 + i); };
      for (size_t i = 0; i < before.size(); ++i) {
        along += toward(i) * static_cast<double>(one.gradient[i]);
        length += std::abs(toward(i) * static_cast<double>(one.gradient[i]));
      }
      auto at = [&](double step) {
        for (size_t i = 0; i < before.size(); ++i)
          weights[i] = before[i] + static_cast<float>(step * toward(i));
        return loss(run, sum);
      };
      const double measured = (at(kStep) - at(-kStep)) / (2 * kStep);
      std::copy(before.begin(), before.end(), weights);
      EXPECT_GT(length, 0) << name;
      EXPECT_NEAR(measured, along, 1e-3 * length + 5e-3) << name << ", direction " << direction;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Gradients, testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace strata::ops
