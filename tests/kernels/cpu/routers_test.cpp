// Other routers than top-k per token, and noise: properties that hold for all inputs.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "kernels/cpu/array_testing.h"
#include "kernels/cpu/expert_choice.h"
#include "kernels/cpu/jitter.h"
#include "kernels/cpu/soft_experts.h"
#include "kernels/cpu/two_level.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_same_bits;
using testing::scratch_of;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Chosen {
  std::vector<int32_t> tokens, experts;
  std::vector<float> weights;
};
Chosen chosen_of(const ExpertChoiceShape& shape, const float* logits) {
  const auto slots = static_cast<size_t>(shape.slots());
  Chosen chosen{std::vector<int32_t>(slots, -9), std::vector<int32_t>(slots, -9),
                std::vector<float>(slots, kNaN)};
  Array scratch = scratch_of(expert_choice_scratch_bytes(shape));
  expert_choice(shape, chosen.tokens.data(), chosen.experts.data(), chosen.weights.data(), logits,
                scratch.data());
  return chosen;
}

TEST(ExpertChoice, ExpertsSelectTheirBestTokens) {
  const ExpertChoiceShape shape{.groups = 3, .rows = 20, .experts = 4, .capacity = 6};
  const Array logits = Array::random(DType::kF32, 60 * 4, 1, 3);
  std::vector<float> scores(60 * 4);
  router_scores(60, 4, shape.score, scores.data(), logits.f32());
  const Chosen chosen = chosen_of(shape, logits.f32());
  for (int64_t line = 0; line < 12; ++line) {
    const int64_t group = line / 4, expert = line % 4;
    const auto first = chosen.tokens.begin() + line * 6;
    const std::set<int32_t> taken(first, first + 6);
    EXPECT_EQ(taken.size(), 6u);
    const auto score = [&](int64_t token) {
      return scores[static_cast<size_t>((group * 20 + token) * 4 + expert)];
    };
    float least = 1, greatest = 0;  // scores of selected tokens, and of the others
    for (int32_t token = 0; token < 20; ++token) {
      if (taken.contains(token)) least = std::min(least, score(token));
      if (!taken.contains(token)) greatest = std::max(greatest, score(token));
    }
    EXPECT_GE(least, greatest);
    for (int64_t slot = line * 6; slot < line * 6 + 6; ++slot) {
      EXPECT_EQ(chosen.experts[static_cast<size_t>(slot)], expert);
      EXPECT_EQ(chosen.weights[static_cast<size_t>(slot)], score(chosen.tokens[static_cast<size_t>(slot)]));
    }
  }
}

TEST(ExpertChoice, TiesSelectTheFirstAndNaNIsSelected) {
  std::vector<float> logits(10 * 3, 0.5f);
  const ExpertChoiceShape shape{.groups = 1, .rows = 10, .experts = 3, .capacity = 2};
  EXPECT_EQ(chosen_of(shape, logits.data()).tokens, (std::vector<int32_t>{0, 1, 0, 1, 0, 1}));
  logits[7 * 3 + 1] = kNaN;
  const Chosen chosen = chosen_of(shape, logits.data());
  EXPECT_EQ(chosen.tokens, (std::vector<int32_t>{0, 7, 0, 7, 0, 7}));
  for (size_t slot = 0; slot < 6; ++slot) EXPECT_EQ(std::isnan(chosen.weights[slot]), slot % 2 == 1);
}

// ⟨gather(x), h⟩ = ⟨x, scatter(h)⟩: each is the gradient of the other.
TEST(GroupRows, GatherAndScatterAreAdjoint) {
  const GroupRowsShape shape{.groups = 2, .rows = 7, .slots = 9, .columns = 5};
  const Array x = Array::random(DType::kF32, 14 * 5, 1), h = Array::random(DType::kF32, 18 * 5, 2);
  std::vector<int32_t> tokens(18);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 7);
  std::vector<float> gathered(18 * 5, kNaN), scattered(14 * 5, kNaN);
  gather_rows(shape, gathered.data(), x.data(), tokens.data());
  scatter_rows(shape, scattered.data(), h.data(), tokens.data(), nullptr);
  double one = 0, other = 0;
  for (size_t i = 0; i < gathered.size(); ++i) one += double{gathered[i]} * h[static_cast<int64_t>(i)];
  for (size_t i = 0; i < scattered.size(); ++i) other += double{scattered[i]} * x[static_cast<int64_t>(i)];
  EXPECT_NEAR(one, other, 1e-5);
}

// Means of equal rows are equal to the rows.
TEST(SoftExperts, PreserveEqualRows) {
  const SoftShape shape{.groups = 2, .rows = 5, .slots = 6, .of_expert = 2, .columns = 3};
  const Array logits = Array::random(DType::kF32, 10 * 6, 1, 2);
  const std::vector<float> x(10 * 3, 0.75f);
  std::vector<float> slots(12 * 3, kNaN), y(10 * 3, kNaN);
  std::vector<int32_t> experts(12, -9);
  Array scratch = scratch_of(soft_scratch_bytes(shape));
  soft_dispatch(shape, slots.data(), experts.data(), x.data(), logits.f32(), scratch.data());
  for (const float value : slots) EXPECT_NEAR(value, 0.75f, 1e-6);
  EXPECT_EQ(experts, (std::vector<int32_t>{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  soft_combine(shape, y.data(), slots.data(), logits.f32(), scratch.data());
  for (const float value : y) EXPECT_NEAR(value, 0.75f, 1e-6);
}

// A NaN logit affects only its own results and no other sequence.
TEST(SoftExperts, NaNStaysInItsSequence) {
  const SoftShape shape{.groups = 2, .rows = 4, .slots = 3, .of_expert = 1, .columns = 2};
  Array logits = Array::random(DType::kF32, 8 * 3, 1);
  logits.f32()[5 * 3 + 1] = kNaN;
  const Array x = Array::random(DType::kF32, 8 * 2, 2);
  std::vector<float> slots(6 * 2);
  std::vector<int32_t> experts(6);
  Array scratch = scratch_of(soft_scratch_bytes(shape));
  soft_dispatch(shape, slots.data(), experts.data(), x.data(), logits.f32(), scratch.data());
  for (size_t slot = 0; slot < 6; ++slot) EXPECT_EQ(std::isnan(slots[2 * slot]), slot == 4);
}

TEST(SoftExperts, SameBitsForAnyThreads) {
  const SoftShape shape{.groups = 3, .rows = 11, .slots = 8, .of_expert = 2, .columns = 70};
  const Array logits = Array::random(DType::kF32, 33 * 8, 1), x = Array::random(DType::kF32, 33 * 70, 2),
              h = Array::random(DType::kF32, 24 * 70, 3);
  expect_same_bits([&] {
    Array dx(DType::kF32, 33 * 70), d_logits(DType::kF32, 33 * 8);
    Array scratch = scratch_of(soft_scratch_bytes(shape));
    soft_dispatch_backward(shape, dx.data(), d_logits.f32(), h.data(), x.data(), logits.f32(),
                           scratch.data());
    auto bytes = dx.bytes();
    const auto more = d_logits.bytes();
    bytes.insert(bytes.end(), more.begin(), more.end());
    return bytes;
  });
}

// For any logits, exponentials add up to 1, and those of a group to its share.
TEST(TwoLevels, YieldProbabilities) {
  const TwoLevelShape shape{.tokens = 70, .groups = 3, .experts = 12};
  const Array groups = Array::random(DType::kF32, 70 * 3, 1, 3),
              logits = Array::random(DType::kF32, 70 * 12, 2, 3);
  std::vector<float> y(70 * 12, kNaN);
  two_level_logits(shape, y.data(), groups.f32(), logits.f32());
  for (size_t token = 0; token < 70; ++token) {
    double all = 0, of_groups = 0, first = 0;
    for (size_t e = 0; e < 12; ++e) {
      const double p = std::exp(double{y[token * 12 + e]});
      all += p;
      if (e < 4) first += p;
    }
    for (int64_t g = 0; g < 3; ++g) of_groups += std::exp(groups[static_cast<int64_t>(token) * 3 + g]);
    EXPECT_NEAR(all, 1, 1e-5);
    EXPECT_NEAR(first, std::exp(groups[static_cast<int64_t>(token) * 3]) / of_groups, 1e-5);
  }
}

// Within its bounds; the same for one sample at any position, different for different samples.
TEST(Jitter, DependsOnlyOnTheSample) {
  const JitterShape shape{.rows = 30, .columns = 7, .eps = 0.25f, .stream = 3};
  const std::vector<float> x(210, 2.0f);
  const std::vector<int32_t> samples{41, 7, 41};
  std::vector<int32_t> places(60, -1);
  sample_places(3, 10, places.data(), samples.data());
  std::vector<float> y(210, kNaN), other(210, kNaN);
  jitter(shape, y.data(), x.data(), places.data());
  const auto [least, most] = std::minmax_element(y.begin(), y.end());
  EXPECT_GE(*least, 1.5f);
  EXPECT_LE(*most, 2.5f);
  EXPECT_LT(*least, 1.55f);
  EXPECT_GT(*most, 2.45f);
  EXPECT_TRUE(std::equal(y.begin(), y.begin() + 70, y.begin() + 140));
  EXPECT_FALSE(std::equal(y.begin(), y.begin() + 70, y.begin() + 70));
  JitterShape next = shape;
  next.stream = 4;
  jitter(next, other.data(), x.data(), places.data());
  EXPECT_NE(y, other);
  // Some of the rows in another order, as on a rank.
  const std::vector<int32_t> some{7, 4, 41, 9};
  std::vector<float> held(14, kNaN);
  jitter({.rows = 2, .columns = 7, .eps = 0.25f, .stream = 3}, held.data(), x.data(), some.data());
  EXPECT_TRUE(std::equal(held.begin(), held.begin() + 7, y.begin() + 98));
  EXPECT_TRUE(std::equal(held.begin() + 7, held.end(), y.begin() + 63));
}

}  // namespace
}  // namespace strata::cpu
