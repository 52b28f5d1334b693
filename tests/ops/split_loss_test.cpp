// The split form of the loss: its bits beside the fused form's, shards of the vocabulary, and what is
// refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "device/reference/bindings.h"
#include "fixtures/op_tensors.h"
#include "graph/differentiate.h"
#include "ops/ops.h"

namespace strata::ops {
namespace {

using graph::Graph;
using graph::kNone;
using graph::ParameterRole;
using graph::Role;
using graph::ValueId;

using Form = decltype(&linear_cross_entropy);

// A head over a table of one row a token of the vocabulary.
struct HeadCase {
  int64_t tokens = 24, width = 16, vocab = 12;
  DType dtype = DType::kF32;
  bool tied = false;
  bool bias = false;
  double softcap = 0;
  int64_t every = 1;  // one of so many tokens has a target; 0: none has
  int64_t parts = 0;  // of the vocabulary; 0: no vocab_start
};

struct HeadGraph {
  Graph graph;
  Loss loss = {};
  ValueId vocab_start = kNone;
};

HeadGraph graph_of(const HeadCase& one, Form form) {
  HeadGraph made;
  Graph& graph = made.graph;
  const auto parameter = [&](const char* name, Shape shape) {
    return graph.add_parameter(name, ParameterRole::kHead, shape, {});
  };
  const auto input = [&](const char* name, Shape shape) {
    return device::add_operand(graph, name, DType::kI32, shape, {}, Role::kInput);
  };
  const ValueId table = parameter("table", {one.vocab, one.width});
  const ValueId x = activation(graph, embedding(graph, input("tokens", {one.tokens}), table, one.dtype),
                               ActivationKind::kGeluTanh);
  LossOptions options{.softcap = one.softcap};
  if (one.bias) options.bias = parameter("bias", {one.vocab});
  if (one.parts > 0) options.vocab_start = made.vocab_start = input("vocab_start", {one.parts});
  made.loss = form(graph, x, one.tied ? table : parameter("head", {one.vocab, one.width}),
                   input("targets", {one.tokens}), options);
  graph::differentiate(graph, std::vector{graph::WeightedLoss{.sum = made.loss.sum}});
  return made;
}

// Loss, count and the gradients of the parameters.
std::vector<std::vector<double>> results_of(
    const HeadCase& one, Form form, std::span<const device::Binding> bindings = device::cpu_bindings()) {
  HeadGraph made = graph_of(one, form);
  device::OpRun run(std::move(made.graph), bindings, one_thread());
  const graph::Graph& graph = run.graph();
  const double rows_of_part =
      static_cast<double>(one.vocab) / static_cast<double>(std::max<int64_t>(one.parts, 1));
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const graph::Value& value = graph.value(id);
    if (value.role != Role::kInput && value.role != Role::kParameter) continue;
    for (int64_t i = 0; i < value.shape.elements(); ++i) {
      double number = pseudo_random(static_cast<uint64_t>(id * 7919 + i));
      if (value.name == "tokens") number = static_cast<double>(i * 5 % one.vocab);
      if (value.name == "targets")
        number = one.every > 0 && i % one.every == 0 ? static_cast<double>(i * 7 % one.vocab) : -1;
      if (id == made.vocab_start) number = static_cast<double>(i) * rows_of_part;
      device::put_element(value.dtype, run.data(id), i, number);
    }
  }
  run.encode();
  run.run();
  std::vector<std::vector<double>> results;
  for (const ValueId id : {made.loss.sum, made.loss.count})
    results.push_back(load(graph.value(id), run.data(id)).values);
  for (const graph::Parameter& parameter : graph.parameters())
    results.push_back(load(graph.value(parameter.gradient), run.data(parameter.gradient)).values);
  return results;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& wanted, double tolerance) {
  ASSERT_EQ(found.size(), wanted.size());
  double largest = 0;
  for (const double number : wanted) largest = std::max(largest, std::abs(number));
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(found[i], wanted[i], tolerance * largest) << i;
}

TEST(SplitLoss, GivesTheBitsOfTheFusedForm) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (HeadCase one :
         {HeadCase{}, HeadCase{.tied = true}, HeadCase{.bias = true}, HeadCase{.softcap = 1.5},
          HeadCase{.tied = true, .every = 0},
          HeadCase{.tokens = 701, .width = 9, .vocab = 33, .tied = true, .every = 2},  // ragged
          HeadCase{.tokens = 1100, .bias = true, .every = 7},  // so few targets: gathered
          HeadCase{.tokens = 1100, .width = 9, .softcap = 0.7, .every = 300}}) {
      one.dtype = dtype;
      const auto fused = results_of(one, linear_cross_entropy);
      EXPECT_EQ(results_of(one, split_cross_entropy), fused) << one.tokens << " " << name_of(dtype);
      EXPECT_EQ(fused[0][0] > 0, one.every > 0);
    }
  }
}

TEST(SplitLoss, OfSeveralPartsGivesWhatTheWholeGives) {
  for (const bool bias : {false, true}) {
    HeadCase one{.tied = true, .bias = bias, .softcap = bias ? 0 : 1.5};
    const auto whole = results_of(one, linear_cross_entropy);
    for (const int64_t parts : {1, 2, 3, 12}) {
      one.parts = parts;
      for (const auto bindings : {device::cpu_bindings(), device::reference_bindings()}) {
        const auto found = results_of(one, split_cross_entropy, bindings);
        ASSERT_EQ(found.size(), whole.size());
        for (size_t i = 0; i < whole.size(); ++i) expect_near(found[i], whole[i], 1e-6);
      }
    }
  }
}

// --- Shards of the vocabulary, as ranks run them

const OpCase& case_of(const std::string& name) {
  for (const OpCase& one : op_cases()) {
    if (one.name == name) return one;
  }
  throw std::out_of_range(name);
}

Tensor rows_of(const Tensor& tensor, int64_t begin, int64_t rows) {
  if (tensor.absent) return tensor;
  const int64_t width = tensor.shape.elements() / tensor.shape[0];
  Tensor part = tensor;
  part.shape.set(0, rows);
  part.values.assign(tensor.values.begin() + begin * width, tensor.values.begin() + (begin + rows) * width);
  return part;
}

constexpr int64_t kVocab = 12;

// The rows of the table with the fused form's operands, of a vocabulary that two and three divide.
OpCase head_case(const OpDef& op, std::vector<Tensor>& inputs, bool bias) {
  OpCase one = case_of(bias ? "linear_cross_entropy_train_bias" : "linear_cross_entropy_train_softcap");
  inputs = inputs_of(one);
  inputs[1] = rows_of(inputs[1], 0, kVocab);
  inputs[LinearCrossEntropyTrain::kBias] = rows_of(inputs[LinearCrossEntropyTrain::kBias], 0, kVocab);
  for (double& target : inputs[LinearCrossEntropyTrain::kTargets].values)
    target = std::min(target, static_cast<double>(kVocab - 1));
  one.op = &op;
  return one;
}

TEST(SplitLoss, OfShardsAddsUpToTheWhole) {
  for (const bool bias : {false, true}) {
    std::vector<Tensor> inputs;
    const OpCase fused = head_case(kLinearCrossEntropyTrain, inputs, bias);
    const auto whole = run_op(fused, inputs);
    const Tensor x = inputs[0], w = inputs[1], targets = inputs[LinearCrossEntropyTrain::kTargets],
                 b = inputs[LinearCrossEntropyTrain::kBias];
    const Tensor none{.dtype = DType::kF32, .shape = {}, .segments = {}, .values = {}, .absent = true};
    const auto run = [&](const OpDef& op, const std::vector<Tensor>& operands) {
      OpCase one{.name = "shard", .op = &op, .inputs = std::vector<Operand>(operands.size())};
      if (&op != &kCrossEntropyLoss && &op != &kCrossEntropyLossGrad)
        one.attrs = CrossEntropyAttrs{fused.attrs.as<LinearCrossEntropyAttrs>().softcap, kVocab};
      if (&op == &kCrossEntropyGradInput) one.inputs[CrossEntropyGradInput::kWeightOfDx].same_as = 1;
      return run_op(one, operands);
    };
    for (const int64_t shards : {2, 3}) {
      const int64_t rows = kVocab / shards;
      const auto start = [&](int64_t shard) {
        return Tensor{.dtype = DType::kI32,
                      .shape = {1},
                      .segments = {},
                      .values = {static_cast<double>(shard * rows)}};
      };
      Tensor statistics;
      for (int64_t s = 0; s < shards; ++s) {
        const Tensor part = run(kCrossEntropyStatistics, {x, rows_of(w, s * rows, rows), targets,
                                                          rows_of(b, s * rows, rows), start(s)})[0];
        if (s == 0) statistics = rows_of(part, 0, 0);
        statistics.values.insert(statistics.values.end(), part.values.begin(), part.values.end());
      }
      statistics.shape.set(0, shards);
      const auto loss = run(kCrossEntropyLoss, {statistics, targets});
      EXPECT_NEAR(loss[0].values[0], whole[0].values[0], 1e-6 * whole[0].values[0]);
      EXPECT_EQ(loss[1].values, whole[1].values);
      const Tensor given = run(kCrossEntropyLossGrad, {statistics, targets, none})[0];
      std::vector<double> dx(x.values.size()), dw, dbias;
      for (int64_t s = 0; s < shards; ++s) {
        const Tensor own = rows_of(w, s * rows, rows), own_bias = rows_of(b, s * rows, rows);
        const Tensor of_part = rows_of(statistics, s, 1), given_to_part = rows_of(given, s, 1);
        const auto part = run(kCrossEntropyGradInput,
                              {x, own, none, targets, of_part, given_to_part, own_bias, start(s)})[0];
        for (size_t i = 0; i < dx.size(); ++i) dx[i] += part.values[i];
        const auto weight =
            run(kCrossEntropyGradWeight, {x, own, targets, of_part, given_to_part, own_bias, start(s)});
        dw.insert(dw.end(), weight[0].values.begin(), weight[0].values.end());
        dbias.insert(dbias.end(), weight[1].values.begin(), weight[1].values.end());
      }
      expect_near(dx, whole[LinearCrossEntropyTrain::kDx].values, 1e-6);
      expect_near(dw, whole[LinearCrossEntropyTrain::kDweight].values, 1e-6);
      expect_near(dbias, whole[LinearCrossEntropyTrain::kDbias].values, 1e-6);
    }
  }
}

// --- What is refused

TEST(SplitLoss, RefusesTargetsOutsideTheVocabularyInItsForward) {
  const OpCase& one = case_of("cross_entropy_statistics");
  std::vector<Tensor> inputs = inputs_of(one);
  inputs[CrossEntropyStatistics::kTargets].values[3] = 13;
  for (const auto bindings : {device::cpu_bindings(), device::reference_bindings()})
    EXPECT_THROW(run_op(one, inputs, bindings), DataError);
}

TEST(SplitLoss, RefusesPartsThatDoNotFit) {
  Graph graph;
  const auto values = [&](DType dtype, Shape shape) {
    return device::add_operand(graph, "operand", dtype, shape, {}, Role::kParameter);
  };
  const ValueId x = values(DType::kF32, {4, 3}), w = values(DType::kF32, {10, 3});
  const ValueId targets = values(DType::kI32, {4});
  const auto statistics = [&](ValueId start, CrossEntropyAttrs attrs, ValueId bias = kNone) {
    graph.add_node(kCrossEntropyStatistics, {x, w, targets, bias, start}, attrs);
  };
  statistics(kNone, {.vocabulary = 10});
  statistics(values(DType::kI32, {5}), {.vocabulary = 10});
  statistics(values(DType::kI32, {1}), {.vocabulary = 30});
  EXPECT_THROW(statistics(kNone, {.vocabulary = 30}), ConfigError);
  EXPECT_THROW(statistics(values(DType::kI32, {3}), {.vocabulary = 30}), ConfigError);
  EXPECT_THROW(statistics(values(DType::kI32, {1}), {.vocabulary = 9}), ConfigError);
  EXPECT_THROW(statistics(values(DType::kI64, {1}), {.vocabulary = 10}), ConfigError);
  EXPECT_THROW(statistics(kNone, {.softcap = 2, .vocabulary = 10}, values(DType::kF32, {10})), ConfigError);
  EXPECT_THROW(linear_cross_entropy(graph, x, w, targets, {.vocab_start = values(DType::kI32, {1})}),
               InternalError);
}

}  // namespace
}  // namespace strata::ops
