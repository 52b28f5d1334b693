// Values of ops without a gradient, which difference tests do not cover, compared with naive fp64 arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "fixtures/op_tensors.h"
#include "ops/cross_attention/cross_attention.h"
#include "ops/rope/rope.h"
#include "optim/optimizer.h"
#include "tensor/update_scalars.h"

namespace strata::ops {
namespace {

const OpCase& case_of(const std::string& name) {
  for (const OpCase& one : op_cases()) {
    if (one.name == name) return one;
  }
  throw std::out_of_range(name);
}

void expect_near(const std::vector<double>& found, const std::vector<double>& wanted, double tolerance) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(found[i], wanted[i], tolerance * (1 + std::abs(wanted[i]))) << "element " << i;
}

class CachedAttention : public testing::TestWithParam<const char*> {};

// New keys and values are written to rows position, position + 1, … of the sequence's cache entry; row t sees
// all up to position + t.
TEST_P(CachedAttention, AttendsToCachedRowsAndItself) {
  const OpCase& one = case_of(GetParam());
  const auto inputs = inputs_of(one);
  const auto in = named<ops::CachedAttention::In>(inputs);
  const auto found = named<ops::CachedAttention::Out>(run_op(one, inputs));
  const auto& attrs = one.attrs.as<AttentionAttrs>();
  const int64_t head_dim = attrs.head_dim, length = attrs.sequence_length;
  const double scale = attrs.scale;
  const Tensor& qkv = in.qkv;
  const int64_t q_width = qkv.segments[0], kv_width = qkv.segments[1], width = qkv.shape[1];
  const int64_t sequences = in.position.shape[0], capacity = in.keys.shape[1];
  const int64_t group = q_width / kv_width;
  const auto position = [&](int64_t s) {
    return static_cast<int64_t>(in.position.values[static_cast<size_t>(s)]);
  };
  const auto slot = [&](int64_t s) { return static_cast<int64_t>(in.slot.values[static_cast<size_t>(s)]); };
  std::vector<double> keys = in.keys.values, values = in.values.values;
  for (int64_t s = 0; s < sequences; ++s) {
    for (int64_t t = 0; t < length; ++t) {
      for (int64_t c = 0; c < kv_width; ++c) {
        const auto to = static_cast<size_t>((slot(s) * capacity + position(s) + t) * kv_width + c);
        const auto from = static_cast<size_t>((s * length + t) * width + q_width + c);
        keys[to] = static_cast<float>(qkv.values[from]);
        values[to] = static_cast<float>(qkv.values[from + static_cast<size_t>(kv_width)]);
      }
    }
  }
  std::vector<double> out(static_cast<size_t>(sequences * length * q_width));
  for (int64_t row = 0; row < sequences * length; ++row) {
    const int64_t s = row / length, last = position(s) + row % length;
    for (int64_t head = 0; head < q_width / head_dim; ++head) {
      const auto at = [&](int64_t k, int64_t d) {
        return static_cast<size_t>((slot(s) * capacity + k) * kv_width + head / group * head_dim + d);
      };
      std::vector<double> weight;
      double sum = 0;
      for (int64_t k = 0; k <= last; ++k) {
        double score = 0;
        for (int64_t d = 0; d < head_dim; ++d)
          score += qkv.values[static_cast<size_t>(row * width + head * head_dim + d)] * keys[at(k, d)];
        weight.push_back(std::exp(scale * score));
        sum += weight.back();
      }
      for (int64_t d = 0; d < head_dim; ++d) {
        double mean = 0;
        for (int64_t k = 0; k <= last; ++k) mean += weight[static_cast<size_t>(k)] / sum * values[at(k, d)];
        out[static_cast<size_t>(row * q_width + head * head_dim + d)] = mean;
      }
    }
  }
  expect_near(found.out.values, out, 2e-5);
  expect_near(found.keys.values, keys, 1e-6);
  expect_near(found.values.values, values, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Ops, CachedAttention,
                         testing::Values("cached_attention", "cached_attention_first_rows"));

// Attention to a stored source sees the same rows as attention to the source, but not the row after its end.
TEST(CachedCrossAttention, SeesStoredRowsUpToTheEnd) {
  const OpCase& whole = case_of("cross_attention_documents");
  auto in = named<CrossAttention::In>(inputs_of(whole));
  const int64_t sequences = 4, source = whole.attrs.as<CrossAttentionAttrs>().encoder_length,
                length = in.q.shape[0] / 4;
  const std::vector<double> slots{2, 5, 0, 3}, ends{10, 7, 0, 1};
  for (int64_t n = 0; n < sequences * length; ++n) {
    in.kv_begin.values[static_cast<size_t>(n)] = 0;
    in.kv_end.values[static_cast<size_t>(n)] = ends[static_cast<size_t>(n / length)];
  }
  const Tensor wanted = named<CrossAttention::Out>(run_op(whole, list_of(in))).out;

  const int64_t capacity = source + 2, width = in.kv.segments[0];
  const Tensor slot{DType::kI32, {sequences}, {}, slots, false};
  Tensor empty{DType::kF32, {6, capacity, width}, {}, {}, false};
  empty.values.assign(static_cast<size_t>(6 * capacity * width), 1e6);
  const auto [keys, values] = named<StoreCross::Out>(
      run_op(case_of("store_cross"),
             list_of(StoreCross::In<TensorsOf>{.kv = in.kv, .keys = empty, .values = empty, .slot = slot})));
  OpCase read = case_of("cached_cross_attention");
  read.attrs = whole.attrs;
  const auto found = named<CachedCrossAttention::Out>(run_op(
      read,
      list_of(CachedCrossAttention::In<TensorsOf>{.q = in.q,
                                                  .keys = keys,
                                                  .values = values,
                                                  .slot = slot,
                                                  .encoder_end = {DType::kI32, {sequences}, {}, ends}})));
  expect_near(found.out.values, wanted.values, 2e-6);
}

// Algorithm 2 of Loshchilov and Hutter in PyTorch's order, with the per-step parameters of the case.
TEST(AdamW, UpdatesParametersAndMoments) {
  const OpCase& one = case_of("adamw");
  auto inputs = inputs_of(one);
  const auto outputs = run_op(one, inputs);
  const double lr = 0.1 * 0.5, beta1 = 0.9, beta2 = 0.95, decay = 0.1;
  std::vector<double> p = inputs[0].values, m = inputs[1].values, v = inputs[2].values;
  for (size_t i = 0; i < p.size(); ++i) {
    const double g = 0.25 * inputs[3].values[i];
    p[i] *= 1 - lr * decay;
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    p[i] -= lr * (m[i] / 0.271) / (std::sqrt(v[i] / 0.142625) + 1e-8);
  }
  expect_near(outputs[0].values, p, 1e-5);
  expect_near(outputs[1].values, m, 1e-6);
  expect_near(outputs[2].values, v, 1e-6);

  // The per-step parameters may skip the update.
  std::string scalars;
  for (const double byte : inputs[4].values) scalars += static_cast<char>(byte);
  UpdateScalars skipped;
  std::memcpy(&skipped, scalars.data(), sizeof skipped);
  skipped.skip = 1;
  for (size_t i = 0; i < sizeof skipped; ++i)
    inputs[4].values[i] = static_cast<double>(reinterpret_cast<const uint8_t*>(&skipped)[i]);
  const auto left = run_op(one, inputs);
  for (size_t o = 0; o < 3; ++o) expect_near(left[o].values, inputs[o].values, 1e-7);
}

TEST(RopeTable, ContainsCosinesAndSines) {
  OpCase one = case_of("rope_table");
  const std::vector<double> frequencies{1.0, 0.37, 0.02};
  one.attrs = RopeTableAttrs{300, frequencies, 1.25};
  const Tensor table = run_op(one, {})[0];
  std::vector<double> wanted;
  for (int64_t position = 0; position < 300; ++position) {
    for (const double frequency : frequencies) {
      wanted.push_back(1.25 * std::cos(static_cast<double>(position) * frequency));
      wanted.push_back(1.25 * std::sin(static_cast<double>(position) * frequency));
    }
  }
  expect_near(table.values, wanted, 1e-6);
}

}  // namespace
}  // namespace strata::ops
