// The greatest scores that attention reports, against a plain double-precision reference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_testing.h"

namespace strata::cpu {
namespace {

using namespace attention_testing;

struct GreatestCase {
  Case of;
  float softcap = 0;
};
void PrintTo(const GreatestCase& one, std::ostream* out) {
  *out << one.of.name;
}

std::vector<float> greatest_of(Problem& p, int threads, std::vector<float> before = {}) {
  const AttentionPlan plan = p.plan(threads);
  const Problem::Scratch scratch(plan.forward_scratch_bytes);
  const bool accumulate = !before.empty();
  if (!accumulate) before.assign(static_cast<size_t>(p.shape.heads), std::nanf(""));
  attention_forward(plan, p.out.data(), p.lse.data(), p.inputs(), scratch.data(),
                    {before.data(), accumulate});
  scratch.expect_bounds_kept();
  return before;
}

class AttentionGreatest : public testing::TestWithParam<GreatestCase> {
 protected:
  AttentionGreatest() : p(GetParam().of) { p.shape.softcap = GetParam().softcap; }
  Problem p;
};

TEST_P(AttentionGreatest, AgreesWithReference) {
  const Reference expected(p, false);
  p.shape.finds_greatest = true;
  const std::vector<float> found = greatest_of(p, 2);
  ASSERT_EQ(found.size(), expected.greatest.size());
  for (size_t head = 0; head < found.size(); ++head) {
    const double wanted = expected.greatest[head];
    if (std::isinf(wanted)) {
      EXPECT_EQ(found[head], wanted) << head;
    } else {
      EXPECT_NEAR(found[head], wanted, 2e-6 * (1 + std::abs(wanted))) << head;
    }
  }
}

TEST_P(AttentionGreatest, HasTheSameBitsForAnyNumberOfThreads) {
  p.shape.finds_greatest = true;
  const int before = compute_threads();
  const std::vector<float> first = greatest_of(p, 1);
  for (const int threads : {1, 2, 3, 16}) {
    set_compute_threads(threads);
    EXPECT_EQ(greatest_of(p, threads), first) << threads;
  }
  set_compute_threads(before);
}

TEST_P(AttentionGreatest, KeepsTheGreaterOne) {
  p.shape.finds_greatest = true;
  const std::vector<float> found = greatest_of(p, 2);
  std::vector<float> before(found.size()), wanted = found;
  for (size_t head = 0; head < found.size(); ++head) {
    before[head] = head % 2 == 0 ? 1e6f : -1e6f;
    wanted[head] = std::max(found[head], before[head]);
  }
  EXPECT_EQ(greatest_of(p, 2, before), wanted);
}

// Tiles compute the same results with and without it. Decoding computes others, in another order.
TEST_P(AttentionGreatest, ChangesNoResult) {
  if (p.plan().decode) GTEST_SKIP() << "plans that find greatest scores do not decode";
  p.forward();
  const std::vector<std::byte> out = p.out;
  const std::vector<float> lse = p.lse;
  const int64_t bytes = p.plan().forward_scratch_bytes;
  p.clear_results();
  p.shape.finds_greatest = true;
  EXPECT_GT(p.plan().forward_scratch_bytes, bytes);
  greatest_of(p, compute_threads());
  EXPECT_TRUE(out == p.out);
  EXPECT_EQ(std::memcmp(lse.data(), p.lse.data(), lse.size() * sizeof(float)), 0);
}

constexpr DType kBF16 = DType::kBF16, kF16 = DType::kF16, kF32 = DType::kF32;
INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionGreatest,
    testing::Values(GreatestCase{{"one", 1, 1, 1, 1, 1, 1}}, GreatestCase{{"dim_20", 2, 37, 37, 6, 2, 20}},
                    GreatestCase{{"dim_64", 2, 500, 500, 4, 2, 64}},
                    GreatestCase{{"full", 2, 77, 210, 4, 2, 32, false}},
                    GreatestCase{{"suffix", 1, 70, 300, 4, 2, 32}},
                    GreatestCase{{"more_queries_than_keys", 1, 70, 33, 2, 1, 16}},
                    GreatestCase{{"window", 2, 450, 450, 2, 1, 16, true, 50}},
                    GreatestCase{{"documents", 2, 400, 400, 2, 1, 24, true, 60, 150}},
                    GreatestCase{{"few_rows", 3, 2, 1200, 4, 2, 64}},
                    GreatestCase{{"no_keys", 1, 3, 0, 2, 1, 8, false}},
                    GreatestCase{{"hidden_rows", 2, 450, 450, 4, 2, 24, false, 0, 70}},
                    GreatestCase{{"bias", 2, 310, 310, 4, 2, 7, true, 0, 30, kF32, true}},
                    GreatestCase{{"softcap", 2, 210, 210, 4, 2, 24}, 0.5f},
                    GreatestCase{{"narrow_values", 2, 193, 193, 4, 2, 48, true, 0, 60, kF32, false, 20}},
                    GreatestCase{{"fp16", 2, 210, 210, 4, 2, 64, true, 0, 0, kF16}},
                    GreatestCase{{"bf16", 2, 210, 210, 4, 2, 64, true, 0, 0, kBF16}}),
    [](const auto& tested) { return std::string(tested.param.of.name); });

std::vector<GreatestCase> of_products(AttentionProducts products) {
  std::vector<GreatestCase> cases{{{"dim_20", 2, 37, 37, 6, 2, 20}},
                                  {{"dim_128", 1, 385, 385, 4, 1, 128}},
                                  {{"documents", 2, 400, 400, 2, 1, 24, true, 60, 150}},
                                  {{"bias", 2, 310, 310, 4, 2, 32, true, 0, 30, kBF16, true}},
                                  {{"softcap", 2, 210, 210, 4, 2, 24}, 0.5f}};
  for (GreatestCase& one : cases) {
    one.of.dtype = kBF16;
    one.of.products = products;
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Pairs, AttentionGreatest, testing::ValuesIn(of_products(AttentionProducts::kPairs)),
                         [](const auto& tested) { return std::string(tested.param.of.name); });
INSTANTIATE_TEST_SUITE_P(Tiles, AttentionGreatest, testing::ValuesIn(of_products(AttentionProducts::kTiles)),
                         [](const auto& tested) { return std::string(tested.param.of.name); });

}  // namespace
}  // namespace strata::cpu
