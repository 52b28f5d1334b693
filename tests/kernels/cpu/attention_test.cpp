// Attention against a plain double-precision reference: ragged shapes, masks, caches, all dtypes.
#include "kernels/cpu/attention.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/attention_testing.h"

namespace strata::cpu {
namespace {

using namespace attention_testing;

void expect_forward(const Problem& p, const Reference& r) {
  const AttentionShape& s = p.shape;
  const double tolerance = s.dtype == DType::kF32 ? 1e-6 : s.dtype == DType::kF16 ? 5e-4 : 4e-3;
  const int64_t values = s.heads * s.value_dim;
  expect_close(dense(p.out, s.dtype, 0, s.batch, s.q_len * s.out_stride, s.q_len, s.out_stride, values),
               r.out, tolerance, "out");
  expect_close({p.lse.begin(), p.lse.end()}, r.lse, 1e-6, "lse");
}

void expect_gradients(const Problem& p, const Reference& r) {
  const AttentionShape& s = p.shape;
  const double tolerance = s.dtype == DType::kF32 ? 3e-6 : s.dtype == DType::kF16 ? 1.25e-3 : 1e-2;
  const int64_t query = s.heads * s.head_dim, key = s.kv_heads * s.head_dim, value = s.kv_heads * s.value_dim;
  expect_close(dense(p.dq, s.dtype, 0, s.batch, s.q_len * s.q_stride, s.q_len, s.q_stride, query), r.dq,
               tolerance, "dq");
  expect_close(dense(p.dkv, s.dtype, p.k_first, s.batch, s.kv_batch_stride, s.kv_len, s.k_stride, key), r.dk,
               tolerance, "dk");
  expect_close(dense(p.dkv, s.dtype, p.v_first, s.batch, s.kv_batch_stride, s.kv_len, s.v_stride, value),
               r.dv, tolerance, "dv");
  // Sums over rows and sequences, so errors are larger.
  expect_close({p.dbias.begin(), p.dbias.end()}, r.dbias, 2 * tolerance, "dbias");
}

class AttentionTest : public testing::TestWithParam<Case> {};

TEST_P(AttentionTest, AgreesWithReference) {
  Problem p(GetParam());
  const Reference expected(p);
  p.forward();
  expect_forward(p, expected);
  p.backward();
  expect_gradients(p, expected);
  const AttentionShape& s = p.shape;
  expect_gaps_untouched(p.out, s.dtype, s.out_stride, s.heads * s.value_dim);
  expect_gaps_untouched(p.dq, s.dtype, s.q_stride, s.heads * s.head_dim);
  expect_gaps_untouched(p.dkv, s.dtype, s.k_stride, s.kv_heads * (s.head_dim + s.value_dim));
}

// With one thread each head is one task; with many threads tasks are blocks of keys and rows: the same bits.
TEST_P(AttentionTest, SameBitsForAnyNumberOfThreads) {
  Problem p(GetParam());
  const int before = compute_threads();
  std::vector<std::vector<std::byte>> first;
  std::vector<float> first_lse, first_dbias;
  for (const int threads : {1, 1, 2, 3, 16}) {
    set_compute_threads(threads);
    p.clear_results();
    p.forward(threads);
    p.backward(threads);
    const std::vector<std::vector<std::byte>> results{p.out, p.dq, p.dkv};
    if (first.empty()) {
      first = results;
      first_lse = p.lse;
      first_dbias = p.dbias;
    }
    EXPECT_TRUE(p.dbias == first_dbias) << threads;
    EXPECT_EQ(std::memcmp(p.lse.data(), first_lse.data(), p.lse.size() * sizeof(float)), 0) << threads;
    for (size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(results[i] == first[i]) << threads << " " << i;
  }
  set_compute_threads(before);
}

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kF16 = DType::kF16;
INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionTest,
    testing::Values(Case{"one", 1, 1, 1, 1, 1, 1}, Case{"tiny", 2, 3, 3, 2, 1, 4},
                    Case{"dim_7", 1, 50, 50, 2, 2, 7}, Case{"dim_20", 2, 37, 37, 6, 2, 20},
                    Case{"dim_24", 1, 97, 97, 2, 1, 24}, Case{"dim_48", 1, 193, 193, 3, 1, 48},
                    Case{"dim_64", 2, 256, 256, 4, 2, 64}, Case{"dim_80", 1, 130, 130, 2, 2, 80},
                    Case{"dim_96", 1, 200, 200, 8, 1, 96}, Case{"dim_128", 1, 385, 385, 2, 1, 128},
                    Case{"dim_256", 1, 65, 65, 2, 2, 256}, Case{"full", 2, 77, 210, 4, 2, 32, false},
                    Case{"suffix", 1, 70, 300, 4, 2, 32}, Case{"more_queries_than_keys", 1, 70, 33, 2, 1, 16},
                    Case{"window_1", 1, 70, 70, 2, 1, 16, true, 1},
                    Case{"window_50", 2, 450, 450, 2, 1, 16, true, 50},
                    Case{"documents_1", 1, 100, 100, 2, 1, 16, true, 0, 1},
                    Case{"documents_30", 3, 310, 310, 4, 2, 32, true, 0, 30},
                    Case{"documents_200", 2, 500, 500, 2, 1, 16, true, 0, 200},
                    Case{"documents_window", 2, 400, 400, 2, 1, 24, true, 60, 150},
                    Case{"documents_suffix", 1, 60, 250, 2, 1, 24, true, 0, 100},
                    Case{"decode_1", 3, 1, 1200, 4, 2, 64}, Case{"decode_group_8", 1, 1, 700, 16, 2, 40},
                    Case{"decode_3", 1, 3, 1300, 4, 1, 20},
                    // More sequences than threads: each task reads all heads; 3, 5 and 7 queries share a
                    // head.
                    Case{"decode_many", 9, 1, 600, 6, 2, 24}, Case{"decode_many_of_7", 9, 1, 140, 14, 2, 40},
                    Case{"bf16_decode_many", 9, 1, 600, 10, 2, 24, true, 0, 0, kBF16},
                    Case{"decode_window", 1, 1, 1300, 4, 1, 20, true, 600},
                    Case{"bf16", 2, 210, 210, 4, 2, 64, true, 0, 0, kBF16},
                    Case{"fp16", 2, 210, 210, 4, 2, 64, true, 0, 0, kF16},
                    Case{"fp16_dim_20", 1, 50, 50, 4, 2, 20, true, 0, 17, kF16},
                    Case{"fp16_decode", 2, 1, 1030, 4, 2, 24, true, 0, 0, kF16},
                    Case{"bf16_dim_20", 1, 50, 50, 4, 2, 20, true, 0, 17, kBF16},
                    Case{"bf16_decode", 2, 1, 1030, 4, 2, 24, true, 0, 0, kBF16},
                    Case{"encoder", 2, 130, 130, 4, 2, 16, false},
                    Case{"encoder_documents_1", 1, 100, 100, 2, 1, 16, false, 0, 1},
                    Case{"encoder_documents", 2, 450, 450, 4, 2, 24, false, 0, 70},
                    Case{"encoder_bias", 2, 300, 300, 4, 2, 16, false, 0, 80, kF32, true},
                    Case{"encoder_bias_bf16", 2, 210, 210, 2, 2, 64, false, 0, 0, kBF16, true},
                    Case{"cross", 2, 90, 410, 4, 2, 32, false, 0, 60},
                    Case{"cross_from_more_rows", 2, 300, 100, 2, 1, 20, false, 0, 30},
                    Case{"cross_one_row", 1, 1, 1, 2, 1, 8, false, 0, 1},
                    Case{"cross_bf16", 1, 97, 210, 4, 2, 24, false, 0, 50, kBF16},
                    Case{"cross_decode", 3, 2, 1200, 4, 2, 20, false, 0, 500},
                    Case{"bias", 2, 193, 193, 3, 1, 48, true, 0, 0, kF32, true},
                    Case{"bias_documents", 2, 310, 310, 4, 2, 7, true, 0, 30, kF32, true},
                    Case{"bias_window", 1, 400, 400, 2, 1, 24, true, 60, 150, kF32, true},
                    Case{"bias_suffix", 1, 60, 250, 2, 1, 24, true, 0, 0, kF32, true},
                    Case{"bias_decode", 2, 3, 1300, 4, 2, 20, true, 0, 0, kF32, true},
                    Case{"bias_decode_bf16", 2, 1, 1300, 8, 2, 64, true, 0, 0, kBF16, true},
                    Case{"narrow_values", 2, 193, 193, 4, 2, 48, true, 0, 60, kF32, false, 20},
                    Case{"narrow_values_bf16", 1, 210, 210, 3, 3, 192, true, 0, 0, kBF16, false, 128},
                    Case{"wide_values", 1, 130, 130, 4, 1, 24, true, 0, 0, kF32, false, 70},
                    Case{"narrow_values_decode", 2, 1, 1300, 16, 2, 72, true, 0, 0, kF32, false, 40},
                    Case{"wide_heads_decode", 1, 2, 1100, 8, 1, 576, true, 0, 0, kF32, false, 512},
                    Case{"wide_heads", 1, 100, 230, 4, 1, 576, true, 0, 0, kF32, false, 512}),
    [](const auto& tested) { return std::string(tested.param.name); });

// Shapes of bf16 for a processor with bf16 instructions, which are modeled here.
std::vector<Case> of_bf16(AttentionProducts products) {
  std::vector<Case> cases{{"one", 1, 1, 1, 1, 1, 1},
                          {"tiny", 2, 3, 3, 2, 1, 4},
                          {"dim_7", 1, 50, 50, 2, 2, 7},
                          {"dim_20", 2, 37, 37, 6, 2, 20},
                          {"dim_64", 2, 210, 210, 4, 2, 64},
                          {"dim_80", 1, 130, 130, 2, 2, 80},
                          {"dim_128", 1, 193, 193, 2, 1, 128},
                          {"full", 2, 77, 210, 4, 2, 32, false},
                          {"suffix", 1, 70, 300, 4, 2, 32},
                          {"more_queries_than_keys", 1, 70, 33, 2, 1, 16},
                          {"window_1", 1, 70, 70, 2, 1, 16, true, 1},
                          {"window_50", 2, 450, 450, 2, 1, 16, true, 50},
                          {"documents_1", 1, 100, 100, 2, 1, 16, true, 0, 1},
                          {"documents_window", 2, 400, 400, 2, 1, 24, true, 60, 150},
                          {"encoder_documents", 2, 450, 450, 4, 2, 24, false, 0, 70},
                          {"encoder_bias", 2, 210, 210, 2, 2, 24, false, 0, 80, kBF16, true},
                          {"bias_window", 1, 400, 400, 2, 1, 24, true, 60, 150, kBF16, true},
                          {"cross", 1, 97, 210, 4, 2, 24, false, 0, 50},
                          {"cross_from_more_rows", 2, 300, 100, 2, 1, 20, false, 0, 30},
                          {"decode", 2, 1, 1030, 4, 2, 24},
                          {"narrow_values", 1, 130, 130, 3, 3, 96, true, 0, 0, kBF16, false, 64},
                          {"wide_values", 1, 130, 130, 4, 1, 24, true, 0, 0, kBF16, false, 70}};
  for (Case& c : cases) {
    c.dtype = kBF16;
    c.products = products;
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Pairs, AttentionTest, testing::ValuesIn(of_bf16(AttentionProducts::kPairs)),
                         [](const auto& tested) { return std::string(tested.param.name); });
INSTANTIATE_TEST_SUITE_P(Tiles, AttentionTest, testing::ValuesIn(of_bf16(AttentionProducts::kTiles)),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Compares with finite differences of sum(out · dout), one input at a time.
TEST(Attention, GradientsAreFiniteDifferences) {
  Problem p({"", 1, 5, 5, 2, 1, 3});
  p.forward();
  p.backward();
  const AttentionShape& s = p.shape;
  const auto loss = [&] {
    const Reference r(p, false);
    double sum = 0.0;
    size_t n = 0;
    for (int64_t i = 0; i < s.q_len; ++i) {
      for (int64_t c = 0; c < s.heads * s.head_dim; ++c)
        sum += r.out[n++] * at(p.dout, s.dtype, i * s.out_stride + c);
    }
    return sum;
  };
  const auto check = [&](std::vector<std::byte>& input, const std::vector<std::byte>& gradient,
                         int64_t stride, int64_t used, int64_t tokens) {
    for (int64_t i = 0; i < tokens; ++i) {
      for (int64_t c = 0; c < used; ++c) {
        float& x = reinterpret_cast<float*>(input.data())[i * stride + c];
        const float kept = x;
        x = kept + 0.0078125f;
        const double high = loss();
        const double right = x;
        x = kept - 0.0078125f;
        const double slope = (high - loss()) / (right - double{x});
        x = kept;
        EXPECT_NEAR(at(gradient, s.dtype, i * stride + c), slope, 2e-4) << i << " " << c;
      }
    }
  };
  check(p.q, p.dq, s.q_stride, s.heads * s.head_dim, s.q_len);
  check(p.kv, p.dkv, s.k_stride, 2 * s.kv_heads * s.head_dim, s.kv_len);
}

// A cache with capacity for more keys; the unused entries are NaN.
TEST(Attention, CachedDecodeEqualsFullForward) {
  const int64_t tokens = 600, capacity = 700, heads = 4, kv_heads = 2, dim = 40;
  Problem full({"", 2, tokens, tokens, heads, kv_heads, dim});
  full.forward();
  for (const int64_t position : {0, 1, 63, 64, 511, 512, 599}) {
    for (const int64_t q_len : {1, 20}) {  // 20: not decode but a chunk of a prefill
      if (position < q_len - 1) continue;
      Problem step({"", 2, q_len, capacity, heads, kv_heads, dim});
      const AttentionShape& f = full.shape;
      const AttentionShape& s = step.shape;
      EXPECT_EQ(step.plan().decode, q_len == 1);
      // The second sequence starts at position 0, and the two use each other's cache entries.
      const int64_t starts[] = {position - q_len + 1, 0};
      step.q_start = {static_cast<int32_t>(starts[0]), static_cast<int32_t>(starts[1])};
      step.kv_slot = {1, 0};
      std::fill(step.kv.begin(), step.kv.end(), std::byte{0xff});
      const auto used = static_cast<size_t>(2 * kv_heads * dim * 4);
      for (int64_t b = 0; b < 2; ++b) {
        for (int64_t j = 0; j < starts[b] + q_len; ++j) {
          std::memcpy(step.kv.data() + ((1 - b) * s.kv_batch_stride + j * s.k_stride) * 4,
                      full.kv.data() + (b * f.kv_batch_stride + j * f.k_stride) * 4, used);
        }
        for (int64_t i = 0; i < q_len; ++i) {
          std::memcpy(step.q.data() + (b * q_len + i) * s.q_stride * 4,
                      full.q.data() + (b * tokens + starts[b] + i) * f.q_stride * 4,
                      static_cast<size_t>(s.q_stride * 4));
        }
      }
      step.forward();
      for (int64_t b = 0; b < 2; ++b) {
        for (int64_t i = 0; i < q_len; ++i) {
          for (int64_t c = 0; c < heads * dim; ++c) {
            const int64_t row = b * tokens + starts[b] + i;
            ASSERT_NEAR(at(step.out, s.dtype, (b * q_len + i) * s.out_stride + c),
                        at(full.out, f.dtype, row * f.out_stride + c), 2e-6)
                << position << " " << i << " " << c;
          }
        }
      }
    }
  }
}

// With one thread a task covers all heads of a sequence, with many threads one head.
TEST(Attention, DecodeDoesNotDependOnTheTasks) {
  Problem p({"", 9, 1, 600, 6, 2, 24});
  p.forward(1);
  const auto together = p.out;
  std::fill(p.out.begin(), p.out.end(), std::byte{0xff});
  p.forward(64);
  EXPECT_TRUE(p.out == together);
}

// Scores far apart: no overflow, and vanishing weights are zero.
TEST(Attention, LargeScoresStayFinite) {
  Problem p({"", 1, 80, 80, 2, 1, 16});
  for (int64_t i = 0; i < static_cast<int64_t>(p.q.size()) / 4; ++i)
    reinterpret_cast<float*>(p.q.data())[i] *= 100.0f;
  const Reference expected(p);
  p.forward();
  const AttentionShape& s = p.shape;
  expect_close(dense(p.out, s.dtype, 0, 1, 0, s.q_len, s.out_stride, s.heads * s.head_dim), expected.out,
               1e-4, "out");
  p.backward();
  for (int64_t i = 0; i < s.q_len; ++i) EXPECT_TRUE(std::isfinite(at(p.dq, s.dtype, i * s.q_stride)));
}

TEST(Attention, PropagatesNaN) {
  for (const int64_t q_len : {1, 90}) {
    Problem p({"", 1, q_len, 90, 2, 1, 16});
    reinterpret_cast<float*>(p.q.data())[3] = std::bit_cast<float>(0xffffffffu);
    p.forward();
    EXPECT_TRUE(std::isnan(at(p.out, DType::kF32, 0)));
    EXPECT_TRUE(std::isnan(p.lse[0]));
  }
}

TEST(Attention, EmptyShapesDoNothing) {
  for (const Case& c : {Case{"", 0, 5, 5, 2, 1, 8}, Case{"", 2, 0, 5, 2, 1, 8}}) {
    Problem p(c);
    p.forward();
    p.backward();
    for (const std::byte x : p.dq) EXPECT_EQ(x, std::byte{0xff});
  }
  Problem no_rows({"", 1, 0, 5, 2, 1, 8});  // keys that no row sees have no gradient
  no_rows.backward();
  EXPECT_EQ(at(no_rows.dkv, DType::kF32, 3), 0.0f);
  Problem no_keys({"", 1, 5, 0, 2, 1, 8});
  no_keys.forward();
  EXPECT_EQ(at(no_keys.out, DType::kF32, 0), 0.0f);
  EXPECT_EQ(no_keys.lse[0], -std::numeric_limits<float>::infinity());
}

TEST(Attention, PlanHalvesCausalCostAndBoundsScratch) {
  const auto shape = [](int64_t tokens, bool causal) {
    return AttentionShape{.batch = 2,
                          .q_len = tokens,
                          .kv_len = tokens,
                          .heads = 8,
                          .kv_heads = 4,
                          .head_dim = 64,
                          .q_stride = 1024,
                          .k_stride = 1024,
                          .v_stride = 1024,
                          .out_stride = 512,
                          .kv_batch_stride = tokens * 1024,
                          .causal = causal};
  };
  EXPECT_EQ(plan_attention(shape(512, false), device_of(2)).forward_flops, 4.0 * 2 * 8 * 512 * 512 * 64);
  EXPECT_EQ(plan_attention(shape(512, true), device_of(2)).forward_flops, 2.0 * 2 * 8 * 512 * 512 * 64);
  EXPECT_EQ(plan_attention(shape(512, true), device_of(2)).backward_flops, 5.0 * 2 * 8 * 512 * 512 * 64);
  EXPECT_EQ(plan_attention(shape(1 << 20, true), device_of(2)).forward_scratch_bytes,
            plan_attention(shape(1 << 14, true), device_of(2)).forward_scratch_bytes);
}

TEST(Attention, RejectsInvalidShapes) {
  AttentionShape shape{.q_len = 4,
                       .kv_len = 4,
                       .heads = 2,
                       .head_dim = 8,
                       .q_stride = 16,
                       .k_stride = 8,
                       .v_stride = 8,
                       .out_stride = 16};
  EXPECT_NO_THROW(plan_attention(shape, device_of(2)));
  const auto refused = [&](auto change) {
    AttentionShape bad = shape;
    change(bad);
    EXPECT_THROW(plan_attention(bad, device_of(2)), ConfigError);
  };
  refused([](AttentionShape& s) { s.head_dim = 1025; });
  refused([](AttentionShape& s) { s.value_dim = 1025; });
  refused([](AttentionShape& s) { s.heads = 3, s.kv_heads = 2; });
  refused([](AttentionShape& s) { s.dtype = DType::kF64; });
  refused([](AttentionShape& s) { s.window = 3, s.causal = false; });
  refused([](AttentionShape& s) { s.out_stride = 15; });
  refused([](AttentionShape& s) { s.bias_width = 4, s.bias_zero = 2; });  // not to distance -3
  refused([](AttentionShape& s) { s.bias_width = 6, s.bias_zero = 3, s.causal = false; });  // nor to 3
  refused([](AttentionShape& s) { s.bias_width = 4, s.bias_zero = 3, s.softcap = 1; });
  Problem p({"", 1, 60, 60, 2, 1, 8});
  p.kv_begin.assign(60, 0);
  p.kv_begin[10] = 5;  // and back to 0
  EXPECT_THROW(p.forward(), InternalError);
  Problem ends({"", 1, 60, 60, 2, 1, 8, false, 0, 20});
  ends.kv_end[10] = 30;  // and back to 20
  EXPECT_THROW(ends.forward(), InternalError);
  ends.kv_end[10] = 20;
  ends.shape.causal = true;
  EXPECT_THROW(ends.forward(), InternalError);
}

}  // namespace
}  // namespace strata::cpu
