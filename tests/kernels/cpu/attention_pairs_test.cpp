// Attention with bf16 dot products: its errors, and that the instruction and its model yield the same bits.
// attention_test.cpp tests the results at all shapes.
#include "kernels/cpu/attention_pairs.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <vector>

#include "kernels/cpu/attention_testing.h"
#include "kernels/cpu/bf16_emulator.h"

namespace strata::cpu {
namespace {

using namespace attention_testing;

// Relative errors in the 2-norm.
struct Errors {
  double out, dq, dk, dv;
};

double error(const std::vector<double>& found, const std::vector<double>& exact) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    difference += (found[i] - exact[i]) * (found[i] - exact[i]);
    size += exact[i] * exact[i];
  }
  return std::sqrt(difference / size);
}

Errors errors_of(const Case& c, const Reference& exact) {
  Problem p(c);
  EXPECT_EQ(p.plan().products, c.products);
  p.forward();
  p.backward();
  const AttentionShape& s = p.shape;
  const int64_t query = s.heads * s.head_dim, key = s.kv_heads * s.head_dim;
  const auto of_keys = [&](int64_t first, int64_t columns) {
    return dense(p.dkv, s.dtype, first, s.batch, s.kv_batch_stride, s.kv_len, s.k_stride, columns);
  };
  return {error(dense(p.out, s.dtype, 0, s.batch, s.q_len * s.out_stride, s.q_len, s.out_stride,
                      s.heads * s.value_dim),
                exact.out),
          error(dense(p.dq, s.dtype, 0, s.batch, s.q_len * s.q_stride, s.q_len, s.q_stride, query), exact.dq),
          error(of_keys(p.k_first, key), exact.dk),
          error(of_keys(p.v_first, s.kv_heads * s.value_dim), exact.dv)};
}

// The largest errors of torch 2.11 at the same shapes with equally distributed inputs
// (tools/golden/attention_errors.py): of scaled_dot_product_attention, which transformers calls, where it
// computes in bf16; with values narrower than keys, for which it uses fp32, of transformers'
// eager_attention_forward.
TEST(AttentionPairs, ErrorsDoNotExceedTransformers) {
  struct Known {
    Case shape;
    Errors errors;
  };
  constexpr DType kBF16 = DType::kBF16;
  for (const Known& known :
       {Known{{"dim_64", 2, 256, 256, 4, 2, 64}, {1.97e-3, 2.59e-3, 4.04e-3, 4.08e-3}},
        Known{{"dim_128", 1, 385, 385, 2, 1, 128}, {2.01e-3, 2.57e-3, 4.80e-3, 4.88e-3}},
        Known{{"dim_20", 2, 150, 150, 4, 2, 20}, {1.94e-3, 2.75e-3, 4.41e-3, 4.35e-3}},
        Known{{"full", 2, 210, 210, 4, 2, 64, false}, {2.22e-3, 2.42e-3, 3.76e-3, 3.76e-3}},
        Known{{"cross", 1, 97, 210, 4, 2, 24, false}, {2.25e-3, 2.54e-3, 3.79e-3, 3.95e-3}},
        Known{{"narrow_values", 1, 210, 210, 3, 3, 192, true, 0, 0, kBF16, false, 128},
              {4.28e-3, 4.99e-3, 5.00e-3, 4.40e-3}}}) {
    Case shape = known.shape;
    shape.dtype = kBF16;
    const Reference exact{Problem(shape)};
    for (const AttentionProducts products : {AttentionProducts::kPairs, AttentionProducts::kTiles}) {
      shape.products = products;
      const Errors found = errors_of(shape, exact);
      EXPECT_LE(found.out, known.errors.out) << shape.name;
      EXPECT_LE(found.dq, known.errors.dq) << shape.name;
      EXPECT_LE(found.dk, known.errors.dk) << shape.name;
      EXPECT_LE(found.dv, known.errors.dv) << shape.name;
    }
  }
}

// Operands and results of matmuls.
struct Operands {
  static constexpr int64_t kDim = 80, kStride = 112;  // the last panel has only one vector
  std::vector<BF16> rows, panels;
  std::vector<float> weights, factors;

  Operands()
      : rows(attention::kRows * kStride),
        panels(attention::kKeys * 128),
        weights(attention::kRows * attention::kScoreStride),
        factors(attention::kRows) {
    std::vector<float> values(panels.size());
    const auto draw = [&](auto& to, uint32_t stream) {
      fill_normal(values.data(), static_cast<int64_t>(to.size()), 1.0f, RandomKey{3, stream});
      for (size_t i = 0; i < to.size(); ++i) to[i] = std::decay_t<decltype(to[i])>(values[i]);
    };
    draw(rows, 1);
    draw(panels, 2);
    draw(weights, 3);
    draw(factors, 4);
  }
  template <typename Products>
  std::vector<std::vector<float>> by(const Products& products) const {
    using namespace attention;
    int64_t lo[kRows], hi[kRows];
    for (int64_t r = 0; r < kRows; ++r) lo[r] = 3 + r, hi[r] = 100 + r;
    const typename Products::KeyRanges ranges(lo, hi, 0, kKeys);
    const typename Products::TileRows row_ranges(lo, hi, kRows, 0, kKeys);
    std::vector<float> scores(weights.size()), start(weights), scaled(weights), down(kKeys * kStride);
    products.score(scores.data(), rows.data(), kStride, panels.data(), pair_panel_values(96),
                   align_up(kDim, Products::kDepth), 0.3f, ranges);
    products.add_values(start.data(), kStride, weights.data(), panels.data(), kDim, ranges, nullptr);
    products.add_values(scaled.data(), kStride, weights.data(), panels.data(), kDim, ranges, factors.data());
    products.add_rows(down.data(), kStride, weights.data(), panels.data(), kDim, row_ranges);
    return {scores, start, scaled, down};
  }
};

template <typename Products>
void expect_same_bits(const Products* native, const Products& model) {
  if (native == nullptr || !testing::EmulatedBf16Pairs::is_possible())
    GTEST_SKIP() << "This processor has no AVX-512";
  const testing::EmulatedBf16Pairs emulated;
  const Operands operands;
  const auto found = operands.by(*native), modelled = operands.by(model);
  for (size_t i = 0; i < found.size(); ++i) {
    for (size_t j = 0; j < found[i].size(); ++j)
      ASSERT_EQ(std::bit_cast<uint32_t>(found[i][j]), std::bit_cast<uint32_t>(modelled[i][j]))
          << i << " " << j;
  }
}

TEST(AttentionPairs, InstructionAndModelAgreeBitForBit) {
  expect_same_bits(attention::native_pair_products(), attention::model_pair_products());
}

TEST(AttentionTiles, InstructionsAndModelAgreeBitForBit) {
  expect_same_bits(attention::half_native_tile_products(), attention::model_tile_products());
}

TEST(AttentionPairs, ArePlannedForTheProcessor) {
  using enum AttentionProducts;
  Case c{"", 1, 60, 60, 2, 1, 8};
  for (const AttentionProducts products : {kF32, kPairs, kTiles}) {
    c.products = products;
    c.dtype = DType::kF32;
    EXPECT_EQ(Problem(c).plan().products, kF32);
    c.dtype = DType::kBF16;
    EXPECT_EQ(Problem(c).plan().products, products);
  }
}

TEST(AttentionPairs, PropagatesNaN) {
  for (const AttentionProducts products : {AttentionProducts::kPairs, AttentionProducts::kTiles}) {
    Case c{"", 1, 90, 90, 2, 1, 16};
    c.dtype = DType::kBF16;
    c.products = products;
    Problem p(c);
    reinterpret_cast<BF16*>(p.q.data())[3] = BF16(std::numeric_limits<float>::quiet_NaN());
    p.forward();
    p.backward();
    EXPECT_TRUE(std::isnan(at(p.out, c.dtype, 0)));
    EXPECT_TRUE(std::isnan(p.lse[0]));
    EXPECT_TRUE(std::isnan(at(p.dq, c.dtype, 0)));
    EXPECT_TRUE(std::isnan(at(p.dkv, c.dtype, 0)));
  }
}

}  // namespace
}  // namespace strata::cpu
