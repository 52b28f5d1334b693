// Several losses with separate denominators, and gradients provided from outside.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "fixtures/op_tensors.h"
#include "graph/differentiate.h"
#include "ops/activation/activation.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/loss/loss.h"

namespace strata::ops {
namespace {

using graph::GivenGradient;
using graph::Graph;
using graph::ParameterRole;
using graph::Role;
using graph::ValueId;
using graph::WeightedLoss;

constexpr int64_t kTokens = 12, kWidth = 16, kVocab = 9;

// Builds a loss in one of its two forms.
using Form = decltype(&linear_cross_entropy);
constexpr Form kForms[] = {linear_cross_entropy, split_cross_entropy};

ValueId parameter(Graph& graph, const char* name, Shape shape) {
  return graph.add_parameter(name, ParameterRole::kFfnIn, shape, {});
}
ValueId input(Graph& graph, const char* name, Shape shape, DType dtype) {
  return device::add_operand(graph, name, dtype, shape, {}, Role::kInput);
}

// Fills parameters and inputs; the second loss has fewer targets.
void fill(device::OpRun& run) {
  uint64_t stream = 0;
  for (ValueId id = 0; id < run.graph().value_count(); ++id) {
    const graph::Value& value = run.graph().value(id);
    if (value.role != Role::kInput && value.role != Role::kParameter) continue;
    ++stream;
    for (int64_t i = 0; i < value.shape.elements(); ++i) {
      const int64_t target = (i * 5 + 2) % kVocab;
      const bool left_out = value.name == "targets" ? i % 6 == 5 : i % 4 != 0;
      double number = pseudo_random(stream * 7919 + static_cast<uint64_t>(i));
      if (value.dtype == DType::kI32)
        number = static_cast<double>(value.name == "tokens" ? i : left_out ? -1 : target);
      device::put_element(value.dtype, run.data(id), i, number);
    }
  }
}

// Two heads over one trunk, each with its own weight, because no writer adds to another when ops run in
// isolation. The numbers of terms are per-step values, as a loader writes them.
struct TwoLosses {
  Graph graph;
  ValueId main = graph::kNone, second = graph::kNone, main_terms = graph::kNone, second_terms = graph::kNone;

  explicit TwoLosses(double weight, Form main_form = linear_cross_entropy,
                     Form second_form = linear_cross_entropy) {
    const ValueId tokens = input(graph, "tokens", {kTokens}, DType::kI32);
    const ValueId x = embedding(graph, tokens, parameter(graph, "table", {kTokens, kWidth}), DType::kF32);
    const ValueId y = activation(graph, x, ActivationKind::kGeluTanh);
    const ValueId head = parameter(graph, "head", {kVocab, kWidth});
    main = main_form(graph, y, head, input(graph, "targets", {kTokens}, DType::kI32), {}).sum;
    const ValueId between = linear(graph, y, parameter(graph, "between", {kWidth, kWidth}));
    second = second_form(graph, between, parameter(graph, "second_head", {kVocab, kWidth}),
                         input(graph, "second_targets", {kTokens}, DType::kI32), {.prefix = "second."})
                 .sum;
    main_terms = device::add_operand(graph, "terms", DType::kI64, {1}, {}, Role::kStep);
    second_terms = device::add_operand(graph, "second.terms", DType::kI64, {1}, {}, Role::kStep);
    graph::differentiate(graph,
                         std::vector<WeightedLoss>{{.sum = main, .terms = main_terms},
                                                   {.sum = second, .weight = weight, .terms = second_terms}});
  }
};

// Ten of twelve tokens have a first target and three have a second. In the step's loss, which is divided by
// ten, a term of the second loss counts weight / 3.
TEST(SeveralLosses, AreDividedByTheirOwnDenominators) {
  constexpr double kWeight = 0.3;
  constexpr int64_t kMainTerms = 10, kSecondTerms = 3;
  TwoLosses losses(kWeight);
  device::OpRun run(std::move(losses.graph), device::cpu_bindings(), one_thread());
  fill(run);
  *run.data_as<int64_t>(losses.main_terms) = kMainTerms;
  *run.data_as<int64_t>(losses.second_terms) = kSecondTerms;
  const auto objective = [&] {
    run.encode();
    run.run();
    return *run.data_as<double>(losses.main) +
           kWeight * kMainTerms / kSecondTerms * *run.data_as<double>(losses.second);
  };
  objective();
  constexpr double kStep = 4e-3;
  for (const graph::Parameter& one : run.graph().parameters()) {
    const graph::Value& value = run.graph().value(one.value);
    auto* const weights = run.data_as<float>(one.value);
    const auto n = static_cast<size_t>(value.shape.elements());
    const std::vector<float> before(weights, weights + n);
    objective();
    const std::vector<float> gradient(run.data_as<float>(one.gradient), run.data_as<float>(one.gradient) + n);
    for (uint64_t direction = 1; direction <= 3; ++direction) {
      const auto toward = [&](size_t i) { return pseudo_random(direction * 104729 + i); };
      double along = 0, length = 0;
      for (size_t i = 0; i < n; ++i) {
        along += toward(i) * static_cast<double>(gradient[i]);
        length += std::abs(toward(i) * static_cast<double>(gradient[i]));
      }
      const auto at = [&](double step) {
        for (size_t i = 0; i < n; ++i) weights[i] = before[i] + static_cast<float>(step * toward(i));
        return objective();
      };
      const double measured = (at(kStep) - at(-kStep)) / (2 * kStep);
      std::copy(before.begin(), before.end(), weights);
      EXPECT_GT(length, 0) << value.name;
      EXPECT_NEAR(measured, along, 1e-3 * length + 2e-3) << value.name << ", direction " << direction;
    }
  }
}

// For each combination of forms.
TEST(SeveralLosses, AreBitwiseEqualInBothForms) {
  std::vector<std::vector<std::vector<double>>> results;  // of each pair of forms: sums, then gradients
  for (const Form main_form : kForms) {
    for (const Form second_form : kForms) {
      TwoLosses losses(0.3, main_form, second_form);
      device::OpRun run(std::move(losses.graph), device::cpu_bindings(), one_thread());
      fill(run);
      *run.data_as<int64_t>(losses.main_terms) = 10;
      *run.data_as<int64_t>(losses.second_terms) = 3;
      run.encode();
      run.run();
      std::vector<std::vector<double>>& found = results.emplace_back();
      found.push_back({*run.data_as<double>(losses.main), *run.data_as<double>(losses.second)});
      for (const graph::Parameter& one : run.graph().parameters())
        found.push_back(load(run.graph().value(one.gradient), run.data(one.gradient)).values);
    }
  }
  ASSERT_EQ(results.size(), 4u);
  for (const auto& found : results) EXPECT_EQ(found, results[0]);
}

// A loss without a term in the whole batch adds nothing and does not divide by zero.
TEST(SeveralLosses, LossWithoutTermsAddsNothing) {
  std::vector<std::vector<float>> gradients;
  for (const auto& [form, weight] : {std::pair{kForms[0], 0.3}, {kForms[0], 0.0}, {kForms[1], 0.3}}) {
    TwoLosses losses(weight, form, form);
    device::OpRun run(std::move(losses.graph), device::cpu_bindings(), one_thread());
    fill(run);
    *run.data_as<int64_t>(losses.main_terms) = 10;
    *run.data_as<int64_t>(losses.second_terms) = weight > 0 ? 0 : 3;
    run.encode();
    run.run();
    for (const graph::Parameter& one : run.graph().parameters()) {
      const graph::Value& value = run.graph().value(one.value);
      const auto* gradient = run.data_as<float>(one.gradient);
      if (value.name == "table") gradients.emplace_back(gradient, gradient + value.shape.elements());
    }
  }
  ASSERT_EQ(gradients.size(), 3u);
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_EQ(gradients[0], gradients[2]);
  for (const float number : gradients[0]) ASSERT_TRUE(std::isfinite(number));
}

TEST(SeveralLosses, RequireTheirNumbersOfTerms) {
  Graph graph;
  const ValueId x = parameter(graph, "x", {kTokens, kWidth}),
                head = parameter(graph, "head", {kVocab, kWidth});
  const ValueId targets = input(graph, "targets", {kTokens}, DType::kI32);
  const ValueId main = linear_cross_entropy(graph, x, head, targets).sum;
  const ValueId second = linear_cross_entropy(graph, x, head, targets, {.prefix = "second."}).sum;
  EXPECT_THROW(graph::differentiate(graph, std::vector<WeightedLoss>{{.sum = main}, {.sum = second}}),
               InternalError);
  EXPECT_THROW(graph::differentiate(graph, std::vector<WeightedLoss>{{.sum = main, .weight = 2}}),
               InternalError);
}

// --- Two stages of a pipeline

ValueId first_stage(Graph& graph) {
  const ValueId tokens = input(graph, "tokens", {kTokens}, DType::kI32);
  const ValueId x = embedding(graph, tokens, parameter(graph, "table", {kTokens, kWidth}), DType::kF32);
  return activation(graph, linear(graph, x, parameter(graph, "w1", {kWidth, kWidth})),
                    ActivationKind::kGeluTanh);
}
ValueId second_stage(Graph& graph, ValueId x, Form form = linear_cross_entropy) {
  const ValueId y = linear(graph, x, parameter(graph, "w2", {kWidth, kWidth}));
  return form(graph, y, parameter(graph, "head", {kVocab, kWidth}),
              input(graph, "targets", {kTokens}, DType::kI32), {})
      .sum;
}

Tensor read(const device::OpRun& run, ValueId id) {
  return load(run.graph().value(id), run.data(id));
}

// Every parameter's gradient after a run, by name.
std::map<std::string, std::vector<double>> gradients_of(const device::OpRun& run) {
  std::map<std::string, std::vector<double>> gradients;
  for (const graph::Parameter& one : run.graph().parameters())
    gradients[run.graph().value(one.value).name] = read(run, one.gradient).values;
  return gradients;
}

// Sets the operands of a run to `content`, by name.
void set(device::OpRun& run, const std::map<std::string, Tensor>& content) {
  for (ValueId id = 0; id < run.graph().value_count(); ++id) {
    const auto found = content.find(run.graph().value(id).name);
    if (found != content.end()) store(found->second, run.data(id));
  }
}

TEST(GivenGradients, MakeStagesEqualTheWholeModel) {
  Graph whole;
  const ValueId sum = second_stage(whole, first_stage(whole));
  graph::differentiate(whole, std::vector<WeightedLoss>{{.sum = sum}});
  device::OpRun all(std::move(whole), device::cpu_bindings(), one_thread());
  fill(all);
  std::map<std::string, Tensor> content;
  for (ValueId id = 0; id < all.graph().value_count(); ++id) {
    const graph::Value& value = all.graph().value(id);
    if (value.role == Role::kInput || value.role == Role::kParameter) content[value.name] = read(all, id);
  }
  all.encode();
  all.run();

  // The first stage sends its output, the second returns the gradient. The loss is in the split form.
  Graph sender;
  const ValueId sent = first_stage(sender);
  device::OpRun forward(std::move(sender), device::cpu_bindings(), one_thread());
  set(forward, content);
  forward.encode();
  forward.run();
  Graph last;
  const ValueId received = device::add_operand(last, "received", DType::kF32, {kTokens, kWidth});
  const ValueId loss = second_stage(last, received, split_cross_entropy);
  const ValueId back =
      graph::differentiate(last, std::vector<WeightedLoss>{{.sum = loss}})[static_cast<size_t>(received)];
  ASSERT_NE(back, graph::kNone);
  device::OpRun second(std::move(last), device::cpu_bindings(), one_thread());
  set(second, content);
  store(read(forward, sent), second.data(received));
  second.encode();
  second.run();
  Graph first_graph;
  const ValueId out = first_stage(first_graph);
  const ValueId given = input(first_graph, "given", {kTokens, kWidth}, DType::kF32);
  graph::differentiate(first_graph, {}, std::vector<GivenGradient>{{out, given}});
  device::OpRun first(std::move(first_graph), device::cpu_bindings(), one_thread());
  set(first, content);
  store(read(second, back), first.data(given));
  first.encode();
  first.run();

  auto stages = gradients_of(second);
  stages.merge(gradients_of(first));
  EXPECT_EQ(stages, gradients_of(all));
  EXPECT_EQ(read(second, loss).values, read(all, sum).values);
}

}  // namespace
}  // namespace strata::ops
