// The split form of the loss: bitwise comparison with the fused form, vocabulary shards, invalid input.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "device/reference/bindings.h"
#include "fixtures/op_tensors.h"
#include "graph/differentiate.h"
#include "ops/activation/activation.h"
#include "ops/embedding/embedding.h"
#include "ops/loss/loss.h"

namespace strata::ops {
namespace {

using graph::Graph;
using graph::kNone;
using graph::ParameterRole;
using graph::Role;
using graph::ValueId;

using Form = decltype(&linear_cross_entropy);

// A head over a table with one row per token of the vocabulary.
struct HeadCase {
  int64_t tokens = 24, width = 16, vocab = 12;
  DType dtype = DType::kF32;
  bool tied = false;
  bool bias = false;
  double softcap = 0;
  int64_t every = 1;  // one of `every` tokens has a target; 0: none
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

// Loss, count and gradients of the parameters.
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

TEST(SplitLoss, IsBitwiseEqualToTheFusedForm) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (HeadCase one :
         {HeadCase{}, HeadCase{.tied = true}, HeadCase{.bias = true}, HeadCase{.softcap = 1.5},
          HeadCase{.tied = true, .every = 0},
          HeadCase{.tokens = 701, .width = 9, .vocab = 33, .tied = true, .every = 2},  // ragged
          HeadCase{.tokens = 1100, .bias = true, .every = 7},  // few targets: gathered
          HeadCase{.tokens = 1100, .width = 9, .softcap = 0.7, .every = 300}}) {
      one.dtype = dtype;
      const auto fused = results_of(one, linear_cross_entropy);
      EXPECT_EQ(results_of(one, split_cross_entropy), fused) << one.tokens << " " << name_of(dtype);
      EXPECT_EQ(fused[0][0] > 0, one.every > 0);
    }
  }
}

TEST(SplitLoss, OfSeveralPartsEqualsTheWhole) {
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

// --- Shards of the vocabulary, as on ranks

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

template <typename Kind>
using TensorOf = Tensor;
template <typename Op>
using TensorsIn = typename Op::template In<TensorOf>;
template <typename Op>
using TensorsOut = typename Op::template Out<TensorOf>;

template <typename Op>
TensorsOut<Op> run(TensorsIn<Op> in, const typename Op::Attrs& attrs = {}) {
  OpCase one{.name = "shard", .op = &Op::def};
  if constexpr (!std::is_same_v<typename Op::Attrs, graph::NoAttrs>) one.attrs = attrs;
  std::vector<Tensor> operands;
  graph::visit(in, 0, [&](Tensor& tensor, auto, std::string_view name, size_t, size_t) {
    if (tensor.values.empty()) tensor.absent = true;
    Operand& operand = one.inputs.emplace_back();
    if (name == "weight_of_dx") operand.same_as = graph::position_of<Op::template In>("weight");
    operands.push_back(std::move(tensor));
  });
  const std::vector<Tensor> out = run_op(one, operands);
  return graph::detail::gather<Op::template Out, TensorOf>(out.size(), [&](size_t i) { return out[i]; });
}

// The operands of a row of the table in the fused form, with a vocabulary divisible by two and three.
TensorsIn<LinearCrossEntropyTrain> head_inputs(const OpCase& one) {
  const std::vector<Tensor> tensors = inputs_of(one);
  auto in = graph::detail::gather<LinearCrossEntropyTrain::In, TensorOf>(
      tensors.size(), [&](size_t i) { return tensors[i]; });
  in.weight = rows_of(in.weight, 0, kVocab);
  in.bias = rows_of(in.bias, 0, kVocab);
  for (double& target : in.targets.values) target = std::min(target, static_cast<double>(kVocab - 1));
  return in;
}

TEST(SplitLoss, OfShardsAddsUpToTheWhole) {
  for (const bool bias : {false, true}) {
    const OpCase& fused =
        case_of(bias ? "linear_cross_entropy_train_bias" : "linear_cross_entropy_train_softcap");
    const auto in = head_inputs(fused);
    const auto fused_attrs = fused.attrs.as<LinearCrossEntropyAttrs>();
    const auto whole = run<LinearCrossEntropyTrain>(in, fused_attrs);
    const CrossEntropyAttrs attrs{fused_attrs.softcap, kVocab};
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
        const Tensor part = run<CrossEntropyStatistics>({.x = in.x,
                                                         .weight = rows_of(in.weight, s * rows, rows),
                                                         .targets = in.targets,
                                                         .bias = rows_of(in.bias, s * rows, rows),
                                                         .vocab_start = start(s)},
                                                        attrs)
                                .statistics;
        if (s == 0) statistics = rows_of(part, 0, 0);
        statistics.values.insert(statistics.values.end(), part.values.begin(), part.values.end());
      }
      statistics.shape.set(0, shards);
      const auto loss = run<CrossEntropyLoss>({.statistics = statistics, .targets = in.targets});
      EXPECT_NEAR(loss.sum.values[0], whole.sum.values[0], 1e-6 * whole.sum.values[0]);
      EXPECT_EQ(loss.count.values, whole.count.values);
      const Tensor given =
          run<CrossEntropyLossGrad>({.statistics = statistics, .targets = in.targets}).dstatistics;
      std::vector<double> dx(in.x.values.size()), dw, dbias;
      for (int64_t s = 0; s < shards; ++s) {
        const Tensor own = rows_of(in.weight, s * rows, rows), own_bias = rows_of(in.bias, s * rows, rows);
        const Tensor of_part = rows_of(statistics, s, 1), given_to_part = rows_of(given, s, 1);
        const Tensor part = run<CrossEntropyGradInput>({.x = in.x,
                                                        .weight = own,
                                                        .weight_of_dx = {},
                                                        .targets = in.targets,
                                                        .statistics = of_part,
                                                        .dstatistics = given_to_part,
                                                        .bias = own_bias,
                                                        .vocab_start = start(s)},
                                                       attrs)
                                .dx;
        for (size_t i = 0; i < dx.size(); ++i) dx[i] += part.values[i];
        const auto weight = run<CrossEntropyGradWeight>({.x = in.x,
                                                         .weight = own,
                                                         .targets = in.targets,
                                                         .statistics = of_part,
                                                         .dstatistics = given_to_part,
                                                         .bias = own_bias,
                                                         .vocab_start = start(s)},
                                                        attrs);
        dw.insert(dw.end(), weight.dw.values.begin(), weight.dw.values.end());
        dbias.insert(dbias.end(), weight.dbias.values.begin(), weight.dbias.values.end());
      }
      expect_near(dx, whole.dx.values, 1e-6);
      expect_near(dw, whole.dw.values, 1e-6);
      expect_near(dbias, whole.dbias.values, 1e-6);
    }
  }
}

// --- Invalid input

TEST(SplitLoss, RejectsTargetsOutsideTheVocabularyInTheForward) {
  const OpCase& one = case_of("cross_entropy_statistics");
  std::vector<Tensor> inputs = inputs_of(one);
  inputs[graph::position_of<CrossEntropyStatistics::In>("targets")].values[3] = 13;
  for (const auto bindings : {device::cpu_bindings(), device::reference_bindings()})
    EXPECT_THROW(run_op(one, inputs, bindings), DataError);
}

TEST(SplitLoss, RejectsPartsThatDoNotFit) {
  Graph graph;
  const auto values = [&](DType dtype, Shape shape) {
    return device::add_operand(graph, "operand", dtype, shape, {}, Role::kParameter);
  };
  const ValueId x = values(DType::kF32, {4, 3}), w = values(DType::kF32, {10, 3});
  const ValueId targets = values(DType::kI32, {4});
  const auto statistics = [&](ValueId start, CrossEntropyAttrs attrs, ValueId bias = kNone) {
    graph::add<CrossEntropyStatistics>(
        graph, {.x = x, .weight = w, .targets = targets, .bias = bias, .vocab_start = start}, attrs);
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
