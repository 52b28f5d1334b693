#include "kernels/cpu/router.h"

#include <algorithm>
#include <limits>
#include <set>

#include "kernels/cpu/array_testing.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_same_bits;
using testing::scratch_of;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Routed route_of(const RouteShape& shape, const float* logits, const float* bias = nullptr,
                const int32_t* tokens = nullptr) {
  const auto slots = static_cast<size_t>(shape.tokens * shape.k);
  Routed routed{std::vector<int32_t>(slots, -9), std::vector<float>(slots, kNaN)};
  Array scratch = scratch_of(route_scratch_bytes(shape));
  route(shape, routed.ids.data(), routed.weights.data(), logits, bias, tokens, scratch.data());
  return routed;
}

TEST(Route, TiesSelectTheFirst) {
  const std::vector<float> logits(12, 0.5f);
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    const Routed routed = route_of({.tokens = 2, .experts = 6, .k = 3, .score = score}, logits.data());
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
  }
  // Ties select the first two groups, with experts 0 to 3.
  const Routed groups =
      route_of({.tokens = 2, .experts = 6, .k = 3, .groups = 3, .kept_groups = 2}, logits.data());
  EXPECT_EQ(groups.ids, (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
  const std::vector<float> few{0, 2, 0, 2, 1, 2};
  EXPECT_EQ(route_of({.tokens = 1, .experts = 6, .k = 4}, few.data()).ids,
            (std::vector<int32_t>{1, 3, 5, 4}));
}

TEST(Route, SelectsWithinGroups) {
  // The best expert is in the first group, the best pair in the last.
  const std::vector<float> logits{3, -9, 0, 0.5f, 2.5f, 2};
  RouteShape shape{.tokens = 1, .experts = 6, .k = 2, .groups = 3, .kept_groups = 1};
  shape.score = RouterScore::kSigmoid;
  EXPECT_EQ(route_of(shape, logits.data()).ids, (std::vector<int32_t>{0, 1}));
  shape.group_score = RouteShape::GroupScore::kBestTwo;
  EXPECT_EQ(route_of(shape, logits.data()).ids, (std::vector<int32_t>{4, 5}));
  shape.group_score = RouteShape::GroupScore::kSum;
  EXPECT_EQ(route_of(shape, logits.data()).ids, (std::vector<int32_t>{4, 5}));
}

TEST(Route, NonFiniteLogitsYieldNaN) {
  constexpr int64_t kExperts = 8;
  for (const float bad : {kNaN, kInfinity, -kInfinity}) {
    for (const int64_t many : {1, 3, 8}) {
      for (const int64_t groups : {1, 4}) {
        for (const auto group_score : {RouteShape::GroupScore::kBest, RouteShape::GroupScore::kBestTwo,
                                       RouteShape::GroupScore::kSum}) {
          for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
            std::vector<float> logits(3 * kExperts);
            for (size_t i = 0; i < logits.size(); ++i) logits[i] = 0.1f * static_cast<float>(i * 5 % 8);
            std::fill_n(logits.begin() + kExperts, many, bad);  // the second token's
            const RouteShape shape{.tokens = 3,
                                   .experts = kExperts,
                                   .k = 4,
                                   .score = score,
                                   .normalize = true,
                                   .groups = groups,
                                   .kept_groups = (groups + 1) / 2,
                                   .group_score = group_score};
            const Routed routed = route_of(shape, logits.data());
            for (size_t token = 0; token < 3; ++token) {
              const auto ids = routed.ids.begin() + static_cast<std::ptrdiff_t>(4 * token);
              EXPECT_EQ(std::set<int32_t>(ids, ids + 4).size(), 4u);
              for (size_t s = 4 * token; s < 4 * token + 4; ++s) {
                EXPECT_GE(routed.ids[s], 0);
                EXPECT_LT(routed.ids[s], kExperts);
                EXPECT_EQ(std::isnan(routed.weights[s]), token == 1);
              }
            }
          }
        }
      }
    }
  }
}

// Whatever the logits are, equal tokens get equal experts, and all experts are used.
TEST(Route, HashedIdsDependOnTheToken) {
  constexpr int64_t kTokens = 600, kExperts = 12;
  const Array logits = Array::random(DType::kF32, kTokens * kExperts, 1);
  std::vector<int32_t> tokens(kTokens);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 300);
  const RouteShape shape{.tokens = kTokens, .experts = kExperts, .k = 3, .normalize = true, .hash_stream = 5};
  const Routed routed = route_of(shape, logits.f32(), nullptr, tokens.data());
  const std::vector<float> same(kTokens * kExperts, 0.25f);
  EXPECT_EQ(route_of(shape, same.data(), nullptr, tokens.data()).ids, routed.ids);
  EXPECT_TRUE(std::equal(routed.ids.begin(), routed.ids.begin() + 900, routed.ids.begin() + 900));
  std::vector<int64_t> counts(kExperts);
  for (size_t token = 0; token < 300; ++token) {
    const auto ids = routed.ids.begin() + static_cast<std::ptrdiff_t>(3 * token);
    EXPECT_EQ(std::set<int32_t>(ids, ids + 3).size(), 3u);
    for (auto id = ids; id < ids + 3; ++id) ++counts.at(static_cast<size_t>(*id));
  }
  for (const int64_t count : counts) EXPECT_NEAR(static_cast<double>(count), 75, 40);
  RouteShape other = shape;
  other.hash_stream = 6;
  EXPECT_NE(route_of(other, logits.f32(), nullptr, tokens.data()).ids, routed.ids);
}

TEST(Route, BalancedIdsAreRoundRobin) {
  const std::vector<float> logits(20, 1);
  const Routed routed = route_of({.tokens = 4, .experts = 5, .k = 3, .force_balanced = true}, logits.data());
  EXPECT_EQ(routed.ids, (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1}));
}

// 301 tokens: the last block is partly filled.
TEST(Router, SameBitsForAnyThreads) {
  constexpr int64_t kTokens = 301, kExperts = 21, kSlots = 5;
  const Array logits = Array::random(DType::kF32, kTokens * kExperts, 1);
  const Array given = Array::random(DType::kF32, kTokens * kExperts, 2);
  std::vector<int32_t> targets(kTokens);
  for (size_t i = 0; i < targets.size(); ++i) targets[i] = i % 5 == 1 ? -1 : 3;
  const RouteShape shape{.tokens = kTokens, .experts = kExperts, .k = kSlots, .normalize = true};
  const Routed routed = route_of(shape, logits.f32());
  expect_same_bits([&] {
    const Routed again = route_of(shape, logits.f32());
    EXPECT_EQ(again.ids, routed.ids);
    Array all = scratch_of(4 * (kTokens * kSlots + 2 * kTokens * kExperts + 2 * kExperts) + 8);
    float* const weights = all.f32();
    std::copy(again.weights.begin(), again.weights.end(), weights);
    float* const d_route = weights + kTokens * kSlots;
    Array scratch = scratch_of(route_backward_scratch_bytes(shape));
    route_backward(shape, d_route, given.f32(), logits.f32(), routed.ids.data(), scratch.data());
    const RouterSumsShape sums{
        .groups = 1, .rows = kTokens, .experts = kExperts, .k = kSlots, .score = RouterScore::kSigmoid};
    float* const found = d_route + kTokens * kExperts;
    Array partial = scratch_of(router_sums_scratch_bytes(sums));
    router_sums(sums, found, found + kExperts, logits.f32(), routed.ids.data(), partial.data());
    float* const d_z = found + 2 * kExperts;
    const RouterZShape z_shape{.tokens = kTokens, .experts = kExperts, .coefficient = 0.5};
    router_z_loss_backward(z_shape, d_z, logits.f32(), targets.data());
    double z = 0;
    std::vector<double> blocks(static_cast<size_t>(router_z_scratch_bytes(z_shape)) / 8 + 1, kNaN);
    router_z_loss(z_shape, &z, logits.f32(), targets.data(), false, blocks.data());
    std::memcpy(d_z + kTokens * kExperts, &z, sizeof z);
    return all.bytes();
  });
}

// The probabilities of a group add up to its tokens, its counts to their token-expert pairs.
TEST(Router, SumsCoverAllTokensOfAGroup) {
  constexpr int64_t kRows = 150, kExperts = 7, kSlots = 3;
  const Array logits = Array::random(DType::kF32, 2 * kRows * kExperts, 1, 3);
  const Routed routed = route_of({.tokens = 2 * kRows, .experts = kExperts, .k = kSlots}, logits.f32());
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    const RouterSumsShape shape{.groups = 2, .rows = kRows, .experts = kExperts, .k = kSlots, .score = score};
    Array scratch = scratch_of(router_sums_scratch_bytes(shape));
    std::vector<float> probabilities(2 * kExperts, kNaN), counts(2 * kExperts, kNaN);
    router_sums(shape, probabilities.data(), counts.data(), logits.f32(), routed.ids.data(), scratch.data());
    for (size_t group = 0; group < 2; ++group) {
      double tokens = 0, slots = 0;
      for (size_t e = group * kExperts; e < (group + 1) * kExperts; ++e)
        tokens += double{probabilities[e]}, slots += double{counts[e]};
      EXPECT_NEAR(tokens, kRows, 1e-3);
      EXPECT_EQ(slots, kRows * kSlots);
    }
  }
}

TEST(Router, AcceptsNoTokens) {
  const RouteShape shape{.tokens = 0, .experts = 4, .k = 2};
  route(shape, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
  route_backward(shape, nullptr, nullptr, nullptr, nullptr, nullptr);
  std::vector<float> probabilities(4, kNaN), counts(4, kNaN);
  const RouterSumsShape sums{.groups = 1, .rows = 0, .experts = 4, .k = 2};
  router_sums(sums, probabilities.data(), counts.data(), nullptr, nullptr, nullptr);
  EXPECT_EQ(probabilities, std::vector<float>(4));
  EXPECT_EQ(counts, std::vector<float>(4));
  double loss = 3;
  router_z_loss({.tokens = 0, .experts = 4, .coefficient = 1}, &loss, nullptr, nullptr, true, nullptr);
  balance_loss({.groups = 1, .rows = 0, .experts = 4, .k = 2, .coefficient = 1}, &loss, probabilities.data(),
               counts.data(), nullptr, true);
  EXPECT_EQ(loss, 3);
}

}  // namespace
}  // namespace strata::cpu
