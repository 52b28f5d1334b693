// One call of attention with all inputs and outputs, and a plain double-precision reference.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "base/random.h"
#include "kernels/cpu/attention.h"
#include "tensor/arena.h"

namespace strata::cpu::attention_testing {

inline hardware::DeviceSpec device_of(int threads, AttentionProducts products = AttentionProducts::kF32) {
  hardware::DeviceSpec device;
  device.threads = threads;
  device.isa.avx512_bf16 = products != AttentionProducts::kF32;
  device.isa.amx = products == AttentionProducts::kTiles;
  return device;
}

struct Case {
  const char* name;
  int64_t batch, q_len, kv_len, heads, kv_heads, head_dim;
  bool causal = true;
  int64_t window = 0;
  // Length of the documents that kv_begin describes (and kv_end, if not causal); 0: no documents.
  int64_t document = 0;
  DType dtype = DType::kF32;
  bool bias = false;
  int64_t value_dim = 0;                                 // 0: equal to head_dim
  AttentionProducts products = AttentionProducts::kF32;  // the processor's instructions
};
inline void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

inline float at(const std::vector<std::byte>& data, DType dtype, int64_t i) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(data.data())[i];
  if (dtype == DType::kF16) return static_cast<float>(reinterpret_cast<const F16*>(data.data())[i]);
  return static_cast<float>(reinterpret_cast<const BF16*>(data.data())[i]);
}

inline std::vector<std::byte> elements(DType dtype, int64_t n) {
  return std::vector<std::byte>(static_cast<size_t>(n * size_of(dtype)),
                                std::byte{0xff});  // NaN in all dtypes
}

inline std::vector<std::byte> normal(DType dtype, int64_t n, uint32_t stream) {
  std::vector<float> values(static_cast<size_t>(n));
  fill_normal(values.data(), n, 1.0f, RandomKey{7, stream});
  auto data = elements(dtype, n);
  convert(data.data(), dtype, values.data(), DType::kF32, n);
  return data;
}

// Operands and results of one case. q, k and v share one buffer if their lengths are equal.
struct Problem {
  AttentionShape shape;
  AttentionProducts products;
  std::vector<std::byte> q, kv, out, dout, dq, dkv;
  std::vector<float> lse, bias, dbias;
  std::vector<int32_t> kv_begin, kv_end;
  int64_t k_first = 0, v_first = 0;       // elements before k and v in kv
  std::vector<int32_t> q_start, kv_slot;  // per sequence; empty: no cache

  explicit Problem(const Case& c) : products(c.products) {
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
      shape.bias_zero = std::max<int64_t>(c.kv_len - 1, 0) + 2;  // more entries than distances
      shape.bias_width = shape.bias_zero + 1 + (c.causal ? 0 : std::max(c.q_len, c.kv_len));
      bias.resize(static_cast<size_t>(c.heads * shape.bias_width));
      fill_normal(bias.data(), static_cast<int64_t>(bias.size()), 1.0f, RandomKey{7, 4});
    }
    if (c.document > 0 && !c.causal) {
      // Documents divide the queries evenly; no row sees every third document.
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
          const int64_t position = c.kv_len - c.q_len + i + b;  // documents are shifted in each sequence
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

  AttentionPlan plan(int threads = compute_threads()) const {
    return plan_attention(shape, device_of(threads, products));
  }
  void forward(int threads = compute_threads()) {
    const AttentionPlan plan = this->plan(threads);
    const Scratch scratch(plan.forward_scratch_bytes);
    attention_forward(plan, out.data(), lse.data(), inputs(), scratch.data());
    scratch.expect_bounds_kept();
  }
  void backward(int threads = compute_threads()) {
    const AttentionPlan plan = this->plan(threads);
    const Scratch scratch(plan.backward_scratch_bytes);
    attention_backward(
        plan, {.dq = dq.data(), .dk = part(dkv, k_first), .dv = part(dkv, v_first), .dbias = dbias.data()},
        dout.data(), out.data(), lse.data(), inputs(), scratch.data());
    scratch.expect_bounds_kept();
  }

  // Scratch filled with NaN and followed by a guard.
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

inline std::vector<double> values_of(const std::vector<std::byte>& data, DType dtype) {
  std::vector<double> values(data.size() / static_cast<size_t>(size_of(dtype)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = at(data, dtype, static_cast<int64_t>(i));
  return values;
}

// Everything in double, one row at a time, with all of its scores.
struct Reference {
  // Dense: [b, i, h, d], [b, h, i], [b, j, kv_h, d], [h, distance].
  std::vector<double> out, lse, dq, dk, dv, dbias;
  std::vector<double> greatest;  // [h]: scale · q·k

  explicit Reference(const Problem& p, bool gradients = true) {
    const AttentionShape& s = p.shape;
    const int64_t group = s.heads / s.kv_heads, d = s.head_dim, e = s.value_dim;
    out.assign(static_cast<size_t>(s.batch * s.q_len * s.heads * e), 0.0);
    dq.assign(static_cast<size_t>(s.batch * s.q_len * s.heads * d), 0.0);
    lse.assign(static_cast<size_t>(s.batch * s.heads * s.q_len), 0.0);
    dk.assign(static_cast<size_t>(s.batch * s.kv_len * s.kv_heads * d), 0.0);
    dv.assign(static_cast<size_t>(s.batch * s.kv_len * s.kv_heads * e), 0.0);
    dbias.assign(p.bias.size(), 0.0);
    greatest.assign(static_cast<size_t>(s.heads), -std::numeric_limits<double>::infinity());
    const std::vector<double> of_q = values_of(p.q, s.dtype), of_kv = values_of(p.kv, s.dtype),
                              of_dout = values_of(p.dout, s.dtype);
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t h = 0; h < s.heads; ++h) {
        for (int64_t i = 0; i < s.q_len; ++i) {
          const auto from = [](const std::vector<double>& values, int64_t first) {
            return &values[static_cast<size_t>(first)];
          };
          const double* const q = from(of_q, (b * s.q_len + i) * s.q_stride + h * d);
          const double* const dout = from(of_dout, (b * s.q_len + i) * s.out_stride + h * e);
          const auto k = [&](int64_t j) {
            return from(of_kv, p.k_first + b * s.kv_batch_stride + j * s.k_stride + h / group * d);
          };
          const auto v = [&](int64_t j) {
            return from(of_kv, p.v_first + b * s.kv_batch_stride + j * s.v_stride + h / group * e);
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
            for (int64_t c = 0; c < d; ++c) score += q[c] * k(j)[c];
            double& most = greatest[static_cast<size_t>(h)];
            most = std::max(most, score * s.scale);
            weight.push_back(
                std::exp(score * s.scale + (p.bias.empty() ? 0.0 : double{p.bias[distance(j)]})));
            sum += weight.back();
          }
          lse[static_cast<size_t>((b * s.heads + h) * s.q_len + i)] = std::log(sum);
          double* o = &out[static_cast<size_t>(((b * s.q_len + i) * s.heads + h) * e)];
          for (int64_t j = lo; j < hi; ++j) {
            for (int64_t c = 0; c < e; ++c) o[c] += weight[static_cast<size_t>(j - lo)] / sum * v(j)[c];
          }
          if (!gradients) continue;
          double delta = 0.0;
          for (int64_t c = 0; c < e; ++c) delta += o[c] * dout[c];
          double* gq = &dq[static_cast<size_t>(((b * s.q_len + i) * s.heads + h) * d)];
          for (int64_t j = lo; j < hi; ++j) {
            const double w = weight[static_cast<size_t>(j - lo)] / sum;
            const int64_t row = (b * s.kv_len + j) * s.kv_heads + h / group;
            double dp = 0.0;
            for (int64_t c = 0; c < e; ++c) dp += dout[c] * v(j)[c];
            if (!p.bias.empty()) dbias[distance(j)] += w * (dp - delta);
            const double ds = w * (dp - delta) * s.scale;
            for (int64_t c = 0; c < d; ++c) {
              gq[c] += ds * k(j)[c];
              dk[static_cast<size_t>(row * d + c)] += ds * q[c];
            }
            for (int64_t c = 0; c < e; ++c) dv[static_cast<size_t>(row * e + c)] += w * dout[c];
          }
        }
      }
    }
  }
};

// Copies strided results to a dense array.
inline std::vector<double> dense(const std::vector<std::byte>& data, DType dtype, int64_t first,
                                 int64_t batch, int64_t batch_stride, int64_t tokens, int64_t stride,
                                 int64_t columns) {
  std::vector<double> values;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < tokens; ++i) {
      for (int64_t c = 0; c < columns; ++c)
        values.push_back(at(data, dtype, first + b * batch_stride + i * stride + c));
    }
  }
  return values;
}

// Compares the norm of the error and the worst element with the magnitude of the expected values; or with the
// magnitude of the operands, about 1, if terms cancel (a row that sees one key has zero gradient to q and k).
inline void expect_close(const std::vector<double>& found, const std::vector<double>& expected,
                         double tolerance, const std::string& what) {
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

// Checks that the gaps between the heads of consecutive tokens are unchanged.
inline void expect_gaps_untouched(const std::vector<std::byte>& data, DType dtype, int64_t stride,
                                  int64_t used) {
  const int64_t n = static_cast<int64_t>(data.size()) / size_of(dtype);
  for (int64_t i = 0; i < n; ++i) {
    if (i % stride >= used) {
      ASSERT_TRUE(std::isnan(at(data, dtype, i))) << i;
    }
  }
}

}  // namespace strata::cpu::attention_testing
