// Experts distributed over ranks, on one rank that has all of them: results in several passes equal those in
// one pass bit for bit, and those equal the results of the ops of undistributed experts.
#include "program/expert_passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "base/error.h"
#include "device/cpu/bindings.h"
#include "device/op_run.h"
#include "graph/differentiate.h"
#include "hardware/device_spec.h"
#include "kernels/cpu/measure.h"
#include "ops/activation/activation.h"
#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/experts/experts.h"
#include "ops/router/router.h"

namespace strata::program {
namespace {

using graph::Graph;
using graph::kNone;
using graph::ParameterRole;
using graph::ValueId;
using ops::pass_capacity;
using ops::PassCapacity;

constexpr int64_t kTokens = 37, kK = 3, kExperts = 8, kWidth = 24, kFfn = 20;

ValueId experts(Graph& graph, ValueId x, ValueId ids, ValueId weights, ValueId offsets) {
  const ValueId of_up = graph.add_parameter("up", ParameterRole::kExpertIn, {kExperts * 2 * kFfn, kWidth}, {},
                                            {}, std::vector(static_cast<size_t>(2 * kExperts), kFfn));
  const ValueId of_down =
      graph.add_parameter("down", ParameterRole::kExpertOut, {kExperts * kWidth, kFfn}, {});
  const auto up = graph::add<ops::ExpertsIn>(graph, {.x = x, .ids = ids, .weight = of_up, .offsets = offsets},
                                             {kExperts});
  const ValueId hidden = ops::scale_rows(graph, ops::gated(graph, up.y, ActivationKind::kSilu), weights);
  return graph::add<ops::ExpertsOut>(graph, {.x = hidden, .ids = ids, .weight = of_down, .offsets = offsets},
                                     {kExperts})
      .y;
}

// Assignments of tokens to experts.
enum class Routing { kRandom, kOneExpert, kSomeNowhere, kBeyond };

std::vector<int32_t> ids_of(Routing routing) {
  std::vector<int32_t> ids;
  uint32_t state = 1;
  for (int64_t token = 0; token < kTokens; ++token) {
    std::vector<int32_t> all(kExperts);
    std::iota(all.begin(), all.end(), 0);
    for (int64_t s = 0; s < kK; ++s) {
      state = state * 1664525 + 1013904223;
      std::swap(all[static_cast<size_t>(s)], all[static_cast<size_t>(s + (state >> 16) % (kExperts - s))]);
      int32_t id = all[static_cast<size_t>(s)];
      if (routing == Routing::kOneExpert) id = 5;
      if (routing == Routing::kSomeNowhere && (token % 4 == 1 || (token + s) % 5 == 0)) id = -1;
      if (routing == Routing::kBeyond && token == kTokens - 1) id = kExperts;
      ids.push_back(id);
    }
  }
  return ids;
}

using Bytes = std::vector<std::byte>;
// By name: the result and all gradients.
using Results = std::map<std::string, Bytes>;

Results run(DType dtype, Routing routing, const PassCapacity* capacity, int threads = 2,
            Backward backward = Backward::kCombined) {
  Graph graph;
  const auto operand = [&](const char* name, DType type, Shape shape) {
    return device::add_operand(graph, name, type, shape);
  };
  const ValueId x = operand("x", dtype, {kTokens, kWidth}), ids = operand("ids", DType::kI32, {kTokens, kK});
  const ValueId weights = operand("weights", DType::kF32, {kTokens, kK});
  ValueId y = kNone;
  if (capacity == nullptr) {
    y = experts(graph, x, ids, weights, kNone);
  } else {
    const ops::DispatchAttrs attrs{.tokens = kTokens, .k = kK, .experts = kExperts, .capacity = *capacity};
    const auto plan = graph::add<ops::PlanDispatch>(graph, {.ids = ids, .weights = weights}, attrs);
    const ValueId rows = graph::add<ops::DispatchRows>(graph, {.x = x, .way = plan.way}, attrs).rows;
    const ValueId made = experts(graph, rows, plan.ids, plan.weights, plan.offsets);
    y = graph::add<ops::CombineRows>(graph, {.rows = made, .way = plan.way}, attrs).y;
  }
  const ValueId dy = operand("dy", dtype, {kTokens, kWidth});
  const auto gradients = graph::differentiate(graph, {}, std::vector<graph::GivenGradient>{{y, dy}});
  std::map<std::string, ValueId> wanted{{"y", y},
                                        {"dx", gradients[static_cast<size_t>(x)]},
                                        {"dweights", gradients[static_cast<size_t>(weights)]}};
  for (const graph::Parameter& one : graph.parameters())
    wanted["grad." + graph.value(one.value).name] = one.gradient;
  std::map<std::string, ValueId> parameters;
  for (const graph::Parameter& one : graph.parameters()) parameters[graph.value(one.value).name] = one.value;
  add_expert_passes(graph, PassesOf::kBackward, backward);
  add_expert_passes(graph, PassesOf::kForward, backward);
  hardware::DeviceSpec spec = cpu::describe_device(threads);
  device::OpRun op(std::move(graph), device::cpu_bindings(), spec);
  // The result must not depend on earlier contents of memory.
  for (ValueId value = 0; value < op.graph().value_count(); ++value)
    std::memset(op.data(value), 0xff, static_cast<size_t>(op.graph().value(value).bytes()));
  std::memset(op.scratch().data(), 0xff, op.scratch().size());
  const auto fill = [&](ValueId value, uint32_t seed) {
    const graph::Value& of = op.graph().value(value);
    for (int64_t i = 0; i < of.shape.elements(); ++i) {
      const double number = std::sin(0.7 * static_cast<double>(i) + seed) * 0.8;
      if (of.dtype == DType::kBF16) {
        op.data_as<BF16>(value)[i] = BF16(static_cast<float>(number));
      } else {
        op.data_as<float>(value)[i] = static_cast<float>(number);
      }
    }
  };
  fill(x, 1);
  fill(weights, 2);
  fill(parameters.at("up"), 3);
  fill(parameters.at("down"), 4);
  fill(dy, 5);
  const auto chosen = ids_of(routing);
  std::copy(chosen.begin(), chosen.end(), op.data_as<int32_t>(ids));
  op.run();
  Results results;
  for (const auto& [name, value] : wanted)
    results[name] = Bytes(op.data(value), op.data(value) + op.graph().value(value).bytes());
  return results;
}

void expect_same(const Results& found, const Results& wanted) {
  for (const auto& [name, bytes] : wanted) EXPECT_TRUE(found.at(name) == bytes) << name;
}

// For sums of floats in another order.
void expect_near(const Bytes& found, const Bytes& wanted) {
  std::vector<float> a(found.size() / sizeof(float)), b(a.size());
  std::memcpy(a.data(), found.data(), found.size());
  std::memcpy(b.data(), wanted.data(), found.size());
  float most = 0;
  for (const float x : b) most = std::max(most, std::abs(x));
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5f * most) << i;
}

struct Given {
  DType dtype;
  Routing routing;
};
class ExpertPasses : public testing::TestWithParam<Given> {};

TEST_P(ExpertPasses, ChangeNoBit) {
  const auto [dtype, routing] = GetParam();
  const PassCapacity all{kTokens, kTokens * kK};
  const Results wanted = run(dtype, routing, &all);
  for (const PassCapacity capacity :
       {PassCapacity{kTokens, 40}, PassCapacity{20, kTokens * kK}, PassCapacity{7, 15}, PassCapacity{1, kK},
        PassCapacity{kTokens - 1, kTokens * kK - 1}}) {
    SCOPED_TRACE(testing::Message() << capacity.rows << " rows, " << capacity.slots << " token-expert pairs");
    expect_same(run(dtype, routing, &capacity), wanted);
    expect_same(run(dtype, routing, &capacity, 2, Backward::kSplit), wanted);
  }
  expect_same(run(dtype, routing, &all, 3), wanted);
}

TEST(ExpertDispatch, MatchesUndistributedExperts) {
  const PassCapacity all{kTokens, kTokens * kK};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Routing routing : {Routing::kRandom, Routing::kOneExpert}) {
      Results found = run(dtype, routing, &all), wanted = run(dtype, routing, nullptr);
      // The ops of undistributed experts may add two bf16 rows at a time.
      for (const char* const name : {"grad.up", "grad.down"}) {
        if (dtype == DType::kBF16) expect_near(found.at(name), wanted.at(name));
        if (dtype == DType::kBF16) wanted.erase(name);
      }
      expect_same(found, wanted);
    }
  }
}

std::string name_of_case(const testing::TestParamInfo<Given>& given) {
  static constexpr const char* kNames[] = {"Random", "OneExpert", "SomeNowhere"};
  return std::string(given.param.dtype == DType::kBF16 ? "Bf16" : "F32") +
         kNames[static_cast<size_t>(given.param.routing)];
}
INSTANTIATE_TEST_SUITE_P(Ops, ExpertPasses,
                         testing::Values(Given{DType::kF32, Routing::kRandom},
                                         Given{DType::kBF16, Routing::kRandom},
                                         Given{DType::kF32, Routing::kOneExpert},
                                         Given{DType::kF32, Routing::kSomeNowhere},
                                         Given{DType::kBF16, Routing::kSomeNowhere}),
                         name_of_case);

TEST(PassCapacity, IsTheBalancedShareTimesAFactor) {
  // With 8 experts on 4 ranks and k = 2, a token has an expert on a given rank with probability 1 - C(6, 2) /
  // C(8, 2) = 13 / 28.
  EXPECT_EQ(pass_capacity(2800, 2, 8, 4, 1.0), (PassCapacity{1300, 1400}));
  EXPECT_EQ(pass_capacity(2800, 2, 8, 4, 1.5), (PassCapacity{1950, 2100}));
  // Never more than all of them.
  EXPECT_EQ(pass_capacity(2800, 2, 8, 4, 100.0), (PassCapacity{2800, 5600}));
  EXPECT_EQ(pass_capacity(10, 8, 8, 2, 0.01), (PassCapacity{1, 4}));
  const PassCapacity wide = pass_capacity(10000, 2, 8, 4);
  EXPECT_NEAR(static_cast<double>(wide.slots), 5000 * 1.25 + 4 * std::sqrt(5000.0), 1);
}

// The number of ranks a token is sent to under balanced routing, compared with the published table of
// expected distinct destinations.
TEST(ExpertDispatch, SendsATokenOnceToEachRank) {
  struct Published {
    int64_t experts, k;
    std::vector<double> destinations;  // of 2, 4, 8, … ranks
  };
  for (const auto& [experts, k, destinations] :
       {Published{256, 8, {1.99, 3.61, 5.29, 6.52, 7.27, 7.68}},
        Published{128, 8, {1.99, 3.63, 5.34, 6.60, 7.36, 7.78}},
        Published{64, 6, {1.98, 3.35, 4.54, 5.32, 5.76, 6.00}}, Published{8, 2, {1.57, 1.86, 2.00}}}) {
    for (size_t i = 0; i < destinations.size(); ++i) {
      const int64_t ranks = int64_t{2} << i, tokens = 1000, width = 64;
      ops::DispatchAttrs attrs{
          .axes = {graph::Axis::kShard}, .tokens = tokens, .k = k, .experts = experts, .ranks = ranks};
      attrs.capacity = {tokens, tokens * attrs.hits()};
      Graph graph;
      const auto operand = [&](const char* name, DType type, Shape shape) {
        return device::add_operand(graph, name, type, shape);
      };
      const auto plan =
          graph::add<ops::PlanDispatch>(graph,
                                        {.ids = operand("ids", DType::kI32, {tokens, k}),
                                         .weights = operand("weights", DType::kF32, {tokens, k})},
                                        attrs);
      graph::add<ops::DispatchRows>(graph, {.x = operand("x", DType::kF32, {tokens, width}), .way = plan.way},
                                    attrs);
      const graph::Node& node = graph.nodes().back();
      const double rows = node.op->ranks({graph, node}).sent_bytes / (4.0 * static_cast<double>(width));
      const auto among = static_cast<double>(ranks);
      EXPECT_NEAR(rows / 1000 * among / (among - 1), destinations[i], 0.006)
          << experts << " experts, " << ranks << " ranks";
    }
  }
}

TEST(ExpertDispatch, RefusesInvalidExpertIds) {
  const PassCapacity all{kTokens, kTokens * kK}, some{7, 15};
  EXPECT_THROW(run(DType::kF32, Routing::kBeyond, &all), InternalError);
  EXPECT_THROW(run(DType::kF32, Routing::kBeyond, &some), InternalError);
}

}  // namespace
}  // namespace strata::program
