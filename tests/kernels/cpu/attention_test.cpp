// Attention against a plain double-precision reference, over ragged shapes, masks, caches and both dtypes.
#include "kernels/cpu/attention.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "base/random.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

struct Case {
  const char* name;
  int64_t batch, q_len, kv_len, heads, kv_heads, head_dim;
  bool causal = true;
  int64_t window = 0;
  // Length of the documents that kv_begin describes, and kv_end where not causal; 0: no documents.
  int64_t document = 0;
  DType dtype = DType::kF32;
  bool bias = false;
  int64_t value_dim = 0;  // 0: as head_dim
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

float at(const std::vector<std::byte>& data, DType dtype, int64_t i) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(data.data())[i];
  return static_cast<float>(reinterpret_cast<const BF16*>(data.data())[i]);
}

std::vector<std::byte> elements(DType dtype, int64_t n) {
  return std::vector<std::byte>(static_cast<size_t>(n * size_of(dtype)),
                                std::byte{0xff});  // NaN in both dtypes
}

std::vector<std::byte> normal(DType dtype, int64_t n, uint32_t stream) {
  std::vector<float> values(static_cast<size_t>(n));
  fill_normal(values.data(), n, 1.0f, RandomKey{7, stream});
  auto data = elements(dtype, n);
  convert(data.data(), dtype, values.data(), DType::kF32, n);
  return data;
}

// Operands and results of one case. q, k and v lie in one buffer where their lengths are equal.
struct Problem {
  AttentionShape shape;
  std::vector<std::byte> q, kv, out, dout, dq, dkv;
  std::vector<float> lse, bias, dbias;
  std::vector<int32_t> kv_begin, kv_end;
  int64_t k_first = 0, v_first = 0;       // elements before k and v in kv
  std::vector<int32_t> q_start, kv_slot;  // of each sequence; empty: as without a cache

  explicit Problem(const Case& c) {
    shape = {.batch = c.batch,
             .q_len = c.q_len,
             .kv_len = c.kv_len,
             .heads = c.heads,
             .kv_heads = c.kv_heads,
             .head_dim = c.head_dim,
             .value_dim = c.value_dim > 0 ? c.value_dim : c.head_dim,
             .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
             .dtype = c.dtype,
             .causal = c.causal,
             .window = c.window};
    const int64_t query = c.heads * c.head_dim, key = c.kv_heads * c.head_dim;
    shape.q_stride = query + 3;
    shape.k_stride = shape.v_stride = key + c.kv_heads * shape.value_dim + 1;
    shape.kv_batch_stride = (c.kv_len + 2) * shape.k_stride;
    shape.out_stride = c.heads * shape.value_dim + 5;
    v_first = key;
    q = normal(c.dtype, c.batch * c.q_len * shape.q_stride, 1);
    kv = normal(c.dtype, c.batch * shape.kv_batch_stride, 2);
    dout = normal(c.dtype, c.batch * c.q_len * shape.out_stride, 3);
    if (c.bias) {
      shape.bias_zero = std::max<int64_t>(c.kv_len - 1, 0) + 2;  // more entries than there are distances
      shape.bias_width = shape.bias_zero + 1 + (c.causal ? 0 : std::max(c.q_len, c.kv_len));
      bias.resize(static_cast<size_t>(c.heads * shape.bias_width));
      fill_normal(bias.data(), static_cast<int64_t>(bias.size()), 1.0f, RandomKey{7, 4});
    }
    if (c.document > 0 && !c.causal) {
      // The documents of the keys one after the other, as many rows for each; every third is seen by no row.
      const int64_t documents = (c.kv_len + c.document - 1) / c.document;
      for (int64_t b = 0; b < c.batch; ++b) {
        for (int64_t i = 0; i < c.q_len; ++i) {
          const int64_t document = i * documents / c.q_len, first = document * c.document - b;
          const bool hidden = document % 3 == 2;
          kv_begin.push_back(static_cast<int32_t>(hidden ? -1 : std::max<int64_t>(0, first)));
          kv_end.push_back(static_cast<int32_t>(hidden ? 0 : std::min(c.kv_len, first + c.document)));
        }
      }
    } else if (c.document > 0) {
      for (int64_t b = 0; b < c.batch; ++b) {
        for (int64_t i = 0; i < c.q_len; ++i) {
          const int64_t position = c.kv_len - c.q_len + i + b;  // documents start elsewhere in each sequence
          kv_begin.push_back(
              static_cast<int32_t>(std::max<int64_t>(0, position / c.document * c.document - b)));
        }
      }
    }
    clear_results();
  }
  void clear_results() {
    out = elements(shape.dtype, static_cast<int64_t>(dout.size()) / size_of(shape.dtype));
    dq = elements(shape.dtype, static_cast<int64_t>(q.size()) / size_of(shape.dtype));
    dkv = elements(shape.dtype, static_cast<int64_t>(kv.size()) / size_of(shape.dtype));
    lse.assign(static_cast<size_t>(shape.batch * shape.heads * shape.q_len), std::nanf(""));
    dbias.assign(bias.size(), std::nanf(""));
  }
  template <typename Bytes>
  auto* part(Bytes& data, int64_t first) const {
    return data.data() + first * size_of(shape.dtype);
  }
  AttentionInputs inputs() const {
    const auto or_null = [](const auto& values) { return values.empty() ? nullptr : values.data(); };
    return {.q = q.data(),
            .k = part(kv, k_first),
            .v = part(kv, v_first),
            .kv_begin = or_null(kv_begin),
            .kv_end = or_null(kv_end),
            .q_start = or_null(q_start),
            .kv_slot = or_null(kv_slot),
            .bias = or_null(bias)};
  }

  void forward(int threads = compute_threads()) {
    const AttentionPlan plan = plan_attention(shape, threads);
    const Scratch scratch(plan.forward_scratch_bytes);
    attention_forward(plan, out.data(), lse.data(), inputs(), scratch.data());
    scratch.expect_bounds_kept();
  }
  void backward(int threads = compute_threads()) {
    const AttentionPlan plan = plan_attention(shape, threads);
    const Scratch scratch(plan.backward_scratch_bytes);
    attention_backward(
        plan, {.dq = dq.data(), .dk = part(dkv, k_first), .dv = part(dkv, v_first), .dbias = dbias.data()},
        dout.data(), out.data(), lse.data(), inputs(), scratch.data());
    scratch.expect_bounds_kept();
  }

  // Memory full of NaN, with a guard behind it.
  class Scratch {
   public:
    explicit Scratch(int64_t bytes) : bytes_(bytes), arena_(bytes + 64) {
      std::memset(arena_.data(), 0xff, static_cast<size_t>(bytes + 64));
    }
    void* data() const { return arena_.data(); }
    void expect_bounds_kept() const {
      for (int64_t i = bytes_; i < bytes_ + 64; ++i) ASSERT_EQ(arena_.data()[i], std::byte{0xff});
    }

   private:
    int64_t bytes_;
    Arena arena_;
  };
};

// Everything in double, one row at a time, with a whole row of scores.
struct Reference {
  // Dense: [b, i, h, d], [b, h, i], [b, j, kv_h, d], [h, distance].
  std::vector<double> out, lse, dq, dk, dv, dbias;

  explicit Reference(const Problem& p, bool gradients = true) {
    const AttentionShape& s = p.shape;
    const int64_t group = s.heads / s.kv_heads, d = s.head_dim, e = s.value_dim;
    out.assign(static_cast<size_t>(s.batch * s.q_len * s.heads * e), 0.0);
    dq.assign(static_cast<size_t>(s.batch * s.q_len * s.heads * d), 0.0);
    lse.assign(static_cast<size_t>(s.batch * s.heads * s.q_len), 0.0);
    dk.assign(static_cast<size_t>(s.batch * s.kv_len * s.kv_heads * d), 0.0);
    dv.assign(static_cast<size_t>(s.batch * s.kv_len * s.kv_heads * e), 0.0);
    dbias.assign(p.bias.size(), 0.0);
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t h = 0; h < s.heads; ++h) {
        for (int64_t i = 0; i < s.q_len; ++i) {
          const auto q = [&](int64_t c) {
            return at(p.q, s.dtype, (b * s.q_len + i) * s.q_stride + h * d + c);
          };
          const auto dout = [&](int64_t c) {
            return at(p.dout, s.dtype, (b * s.q_len + i) * s.out_stride + h * e + c);
          };
          const int64_t key = b * s.kv_batch_stride + h / group * d;
          const int64_t value = b * s.kv_batch_stride + h / group * e;
          const auto k = [&](int64_t j, int64_t c) {
            return at(p.kv, s.dtype, p.k_first + key + j * s.k_stride + c);
          };
          const auto v = [&](int64_t j, int64_t c) {
            return at(p.kv, s.dtype, p.v_first + value + j * s.v_stride + c);
          };
          const int64_t position =
              (p.q_start.empty() ? s.kv_len - s.q_len : p.q_start[static_cast<size_t>(b)]) + i;
          int64_t lo = p.kv_begin.empty() ? 0 : p.kv_begin[static_cast<size_t>(b * s.q_len + i)];
          if (s.window > 0) lo = std::max(lo, position - s.window + 1);
          lo = std::max<int64_t>(lo, 0);
          int64_t hi = s.causal ? std::min(s.kv_len, position + 1) : s.kv_len;
          if (!p.kv_end.empty()) hi = p.kv_end[static_cast<size_t>(b * s.q_len + i)];
          const auto distance = [&](int64_t j) {
            return static_cast<size_t>(h * s.bias_width + s.bias_zero + j - position);
          };
          std::vector<double> weight;
          double sum = 0.0;
          for (int64_t j = lo; j < hi; ++j) {
            double score = 0.0;
            for (int64_t c = 0; c < d; ++c) score += double{q(c)} * k(j, c);
            weight.push_back(
                std::exp(score * s.scale + (p.bias.empty() ? 0.0 : double{p.bias[distance(j)]})));
            sum += weight.back();
          }
          lse[static_cast<size_t>((b * s.heads + h) * s.q_len + i)] = std::log(sum);
          double* o = &out[static_cast<size_t>(((b * s.q_len + i) * s.heads + h) * e)];
          for (int64_t j = lo; j < hi; ++j) {
            for (int64_t c = 0; c < e; ++c) o[c] += weight[static_cast<size_t>(j - lo)] / sum * v(j, c);
          }
          if (!gradients) continue;
          double delta = 0.0;
          for (int64_t c = 0; c < e; ++c) delta += o[c] * dout(c);
          double* gq = &dq[static_cast<size_t>(((b * s.q_len + i) * s.heads + h) * d)];
          for (int64_t j = lo; j < hi; ++j) {
            const double w = weight[static_cast<size_t>(j - lo)] / sum;
            const int64_t row = (b * s.kv_len + j) * s.kv_heads + h / group;
            double dp = 0.0;
            for (int64_t c = 0; c < e; ++c) dp += double{dout(c)} * v(j, c);
            if (!p.bias.empty()) dbias[distance(j)] += w * (dp - delta);
            const double ds = w * (dp - delta) * s.scale;
            for (int64_t c = 0; c < d; ++c) {
              gq[c] += ds * k(j, c);
              dk[static_cast<size_t>(row * d + c)] += ds * q(c);
            }
            for (int64_t c = 0; c < e; ++c) dv[static_cast<size_t>(row * e + c)] += w * dout(c);
          }
        }
      }
    }
  }
};

// Dense values of a strided result.
std::vector<double> dense(const std::vector<std::byte>& data, DType dtype, int64_t first, int64_t batch,
                          int64_t batch_stride, int64_t tokens, int64_t stride, int64_t columns) {
  std::vector<double> values;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < tokens; ++i) {
      for (int64_t c = 0; c < columns; ++c)
        values.push_back(at(data, dtype, first + b * batch_stride + i * stride + c));
    }
  }
  return values;
}

// The error of the whole and of the worst element, against the size of the expected values; or against the
// size of the operands, about 1, where these cancel (a row that sees one key has no gradient to q and k).
void expect_close(const std::vector<double>& found, const std::vector<double>& expected, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double error = 0.0, size = 0.0, worst = 0.0, most = 0.0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isinf(expected[i])) {
      EXPECT_EQ(found[i], expected[i]) << what << " at " << i;
      continue;
    }
    const double difference = found[i] - expected[i];
    ASSERT_FALSE(std::isnan(difference)) << what << " at " << i;
    error += difference * difference;
    size += expected[i] * expected[i];
    worst = std::max(worst, std::abs(difference));
    most = std::max(most, std::abs(expected[i]));
  }
  EXPECT_LE(std::sqrt(error),
            tolerance * std::sqrt(size) + 0.1 * tolerance * std::sqrt(static_cast<double>(found.size())))
      << what;
  EXPECT_LE(worst, 4 * tolerance * most + tolerance) << what;
}

void expect_forward(const Problem& p, const Reference& r) {
  const AttentionShape& s = p.shape;
  const double tolerance = s.dtype == DType::kF32 ? 1e-6 : 4e-3;
  const int64_t values = s.heads * s.value_dim;
  expect_close(dense(p.out, s.dtype, 0, s.batch, s.q_len * s.out_stride, s.q_len, s.out_stride, values),
               r.out, tolerance, "out");
  expect_close({p.lse.begin(), p.lse.end()}, r.lse, 1e-6, "lse");
}

void expect_gradients(const Problem& p, const Reference& r) {
  const AttentionShape& s = p.shape;
  const double tolerance = s.dtype == DType::kF32 ? 3e-6 : 1e-2;
  const int64_t query = s.heads * s.head_dim, key = s.kv_heads * s.head_dim, value = s.kv_heads * s.value_dim;
  expect_close(dense(p.dq, s.dtype, 0, s.batch, s.q_len * s.q_stride, s.q_len, s.q_stride, query), r.dq,
               tolerance, "dq");
  expect_close(dense(p.dkv, s.dtype, p.k_first, s.batch, s.kv_batch_stride, s.kv_len, s.k_stride, key), r.dk,
               tolerance, "dk");
  expect_close(dense(p.dkv, s.dtype, p.v_first, s.batch, s.kv_batch_stride, s.kv_len, s.v_stride, value),
               r.dv, tolerance, "dv");
  // A sum over rows and sequences.
  expect_close({p.dbias.begin(), p.dbias.end()}, r.dbias, 2 * tolerance, "dbias");
}

// What lies between the heads of one token and the next is not ours.
void expect_gaps_untouched(const std::vector<std::byte>& data, DType dtype, int64_t stride, int64_t used) {
  const int64_t n = static_cast<int64_t>(data.size()) / size_of(dtype);
  for (int64_t i = 0; i < n; ++i) {
    if (i % stride >= used) {
      ASSERT_TRUE(std::isnan(at(data, dtype, i))) << i;
    }
  }
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

// One task a head for one thread, blocks of keys and of rows for many: the same bits.
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

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;
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
                    Case{"decode_window", 1, 1, 1300, 4, 1, 20, true, 600},
                    Case{"bf16", 2, 210, 210, 4, 2, 64, true, 0, 0, kBF16},
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

// Moves one input at a time: the gradient of sum(out · dout).
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

// A cache with room for more keys, filled with NaN behind the newest.
TEST(Attention, CachedDecodeEqualsFullForward) {
  const int64_t tokens = 600, room = 700, heads = 4, kv_heads = 2, dim = 40;
  Problem full({"", 2, tokens, tokens, heads, kv_heads, dim});
  full.forward();
  for (const int64_t position : {0, 1, 63, 64, 511, 512, 599}) {
    for (const int64_t q_len : {1, 20}) {  // the second is no decode but a piece of a prefill
      if (position < q_len - 1) continue;
      Problem step({"", 2, q_len, room, heads, kv_heads, dim});
      const AttentionShape& f = full.shape;
      const AttentionShape& s = step.shape;
      EXPECT_EQ(plan_attention(s, 2).decode, q_len == 1);
      // The second sequence is as far behind as it can be, and they lie in each other's places.
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

// Scores far apart: no overflow, and weights that vanish are zero.
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

TEST(Attention, NaNComesThrough) {
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
  Problem no_rows({"", 1, 0, 5, 2, 1, 8});  // keys that nobody sees have no gradient
  no_rows.backward();
  EXPECT_EQ(at(no_rows.dkv, DType::kF32, 3), 0.0f);
  Problem no_keys({"", 1, 5, 0, 2, 1, 8});
  no_keys.forward();
  EXPECT_EQ(at(no_keys.out, DType::kF32, 0), 0.0f);
  EXPECT_EQ(no_keys.lse[0], -std::numeric_limits<float>::infinity());
}

TEST(Attention, PlanCountsCausalByHalfAndBoundsScratch) {
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
  EXPECT_EQ(plan_attention(shape(512, false), 2).forward_flops, 4.0 * 2 * 8 * 512 * 512 * 64);
  EXPECT_EQ(plan_attention(shape(512, true), 2).forward_flops, 2.0 * 2 * 8 * 512 * 512 * 64);
  EXPECT_EQ(plan_attention(shape(512, true), 2).backward_flops, 5.0 * 2 * 8 * 512 * 512 * 64);
  EXPECT_EQ(plan_attention(shape(1 << 20, true), 2).forward_scratch_bytes,
            plan_attention(shape(1 << 14, true), 2).forward_scratch_bytes);
}

TEST(Attention, BadShapesAreNamed) {
  AttentionShape shape{.q_len = 4,
                       .kv_len = 4,
                       .heads = 2,
                       .head_dim = 8,
                       .q_stride = 16,
                       .k_stride = 8,
                       .v_stride = 8,
                       .out_stride = 16};
  EXPECT_NO_THROW(plan_attention(shape, 2));
  const auto refused = [&](auto change) {
    AttentionShape bad = shape;
    change(bad);
    EXPECT_THROW(plan_attention(bad, 2), ConfigError);
  };
  refused([](AttentionShape& s) { s.head_dim = 1025; });
  refused([](AttentionShape& s) { s.value_dim = 1025; });
  refused([](AttentionShape& s) { s.heads = 3, s.kv_heads = 2; });
  refused([](AttentionShape& s) { s.dtype = DType::kF16; });
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
