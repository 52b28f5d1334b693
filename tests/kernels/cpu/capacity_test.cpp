#include "kernels/cpu/capacity.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/array_testing.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_same_bits;
using testing::scratch_of;

// Experts of token-expert pairs; some experts are busier than others.
std::vector<int32_t> ids_of(const CapacityShape& shape) {
  std::vector<int32_t> ids;
  for (int64_t token = 0; token < shape.tokens; ++token) {
    for (int64_t s = 0; s < shape.k; ++s)
      ids.push_back(static_cast<int32_t>(token % 3 == 0 ? s : (token * 7 + s) % shape.experts));
  }
  return ids;
}

std::vector<int32_t> limited(const CapacityShape& shape, const std::vector<int32_t>& ids,
                             const float* weights, const int32_t* begins = nullptr) {
  std::vector<int32_t> kept(ids.size(), -9);
  Array scratch = scratch_of(limit_experts_scratch_bytes(shape));
  limit_experts(shape, kept.data(), ids.data(), weights, begins, scratch.data());
  return kept;
}

// Every expert keeps all of its pairs in a group, up to its capacity.
TEST(Capacity, ExpertsFillTheirCapacity) {
  for (const bool greatest : {false, true}) {
    for (const int64_t capacity : {1, 3, 7, 100}) {
      const CapacityShape shape{
          .tokens = 74, .k = 2, .experts = 5, .rows = 37, .capacity = capacity, .greatest = greatest};
      const auto ids = ids_of(shape);
      const Array weights = Array::random(DType::kF32, std::ssize(ids), 3);
      const auto kept = limited(shape, ids, weights.f32());
      for (int64_t group = 0; group < 2; ++group) {
        const auto first = group * shape.rows * shape.k, end = first + shape.rows * shape.k;
        for (int32_t e = 0; e < shape.experts; ++e) {
          const auto has = std::count(ids.begin() + first, ids.begin() + end, e);
          EXPECT_EQ(std::count(kept.begin() + first, kept.begin() + end, e),
                    std::min<int64_t>(has, capacity));
        }
      }
      for (size_t i = 0; i < ids.size(); ++i) EXPECT_TRUE(kept[i] == ids[i] || kept[i] == -1);
    }
  }
}

TEST(Capacity, KeepsGreatestOrFirst) {
  const std::vector<int32_t> ids{1, 1, 0, 1, 1};
  const std::vector<float> weights{0.2f, 0.5f, 0.1f, 0.5f, 0.4f};
  CapacityShape shape{.tokens = 5, .k = 1, .experts = 2, .rows = 5, .capacity = 2};
  EXPECT_EQ(limited(shape, ids, weights.data()), (std::vector<int32_t>{1, 1, 0, -1, -1}));
  shape.greatest = true;
  EXPECT_EQ(limited(shape, ids, weights.data()), (std::vector<int32_t>{-1, 1, 0, 1, -1}));
  shape.capacity = 1;  // ties keep the first
  EXPECT_EQ(limited(shape, ids, weights.data()), (std::vector<int32_t>{-1, 1, 0, -1, -1}));
}

TEST(Capacity, EveryDocumentHasTheFullCapacity) {
  const std::vector<int32_t> ids(6, 0), begins{0, 0, 2, 2, 2, 5};
  const std::vector<float> weights(6, 1);
  const CapacityShape shape{.tokens = 6, .k = 1, .experts = 1, .rows = 6, .capacity = 1};
  EXPECT_EQ(limited(shape, ids, weights.data(), begins.data()), (std::vector<int32_t>{0, -1, 0, -1, -1, 0}));
}

// NaN is never dropped, so that it reaches the loss.
TEST(Capacity, NaNIsNeverDropped) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const std::vector<int32_t> ids(5, 0);
  const std::vector<float> weights{1, 2, kNaN, 3, kNaN};
  for (const bool greatest : {false, true}) {
    const CapacityShape shape{
        .tokens = 5, .k = 1, .experts = 1, .rows = 5, .capacity = 1, .greatest = greatest};
    const auto kept = limited(shape, ids, weights.data());
    EXPECT_EQ(kept[2], 0);
    EXPECT_EQ(kept[4], 0);
  }
  std::vector<float> kept(2);
  const std::vector<int32_t> none{-1, -1};
  weights_of_kept(2, kept.data(), weights.data() + 2, none.data());
  EXPECT_TRUE(std::isnan(kept[0]));
  EXPECT_EQ(kept[1], 0);
}

TEST(Capacity, SameBitsForAnyThreads) {
  const CapacityShape shape{
      .tokens = 640, .k = 3, .experts = 9, .rows = 64, .capacity = 11, .greatest = true};
  const auto ids = ids_of(shape);
  const Array weights = Array::random(DType::kF32, std::ssize(ids), 3);
  const auto kept = limited(shape, ids, weights.f32());
  expect_same_bits([&] {
    EXPECT_EQ(limited(shape, ids, weights.f32()), kept);
    return std::vector<std::byte>{};
  });
}

TEST(Capacity, AcceptsNoTokens) {
  limit_experts({.tokens = 0, .k = 2, .experts = 3, .rows = 4}, nullptr, nullptr, nullptr, nullptr, nullptr);
  weights_of_kept(0, nullptr, nullptr, nullptr);
}

}  // namespace
}  // namespace strata::cpu
