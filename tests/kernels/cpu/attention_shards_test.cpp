// Attention with rows and keys sharded over ranks, merged and compared with attention on whole sequences.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_testing.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

struct Case {
  const char* name;
  int64_t length, window;
  float softcap = 0;
  bool causal = true, bias = false;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

constexpr int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kHeadDim = 24;
constexpr int64_t kQ = kHeads * kHeadDim, kKv = 2 * kKvHeads * kHeadDim;

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

Floats normal(int64_t n, uint32_t stream) {
  Floats values(static_cast<size_t>(n));
  fill_normal(values.data(), n, 1.0f, RandomKey{5, stream});
  return values;
}

class Scratch {
 public:
  explicit Scratch(int64_t bytes) : memory_(static_cast<size_t>(bytes) + kBufferAlignment) {}
  void* data() {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + (kBufferAlignment - at % kBufferAlignment) % kBufferAlignment;
  }

 private:
  std::vector<std::byte> memory_;
};

// Rows of each sequence: queries, or keys with their values.
struct Tokens {
  Ints places;  // positions of the rows in a whole sequence

  int64_t count() const { return static_cast<int64_t>(places.size()); }
  // The same rows of an array of whole sequences.
  template <typename T>
  std::vector<T> of(const std::vector<T>& whole, int64_t length, int64_t width) const {
    std::vector<T> part;
    for (int64_t b = 0; b < kBatch; ++b) {
      for (const int32_t place : places) {
        const auto first = whole.begin() + (b * length + place) * width;
        part.insert(part.end(), first, first + width);
      }
    }
    return part;
  }
  void add_to(Floats& whole, const Floats& part, int64_t length, int64_t width) const {
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t i = 0; i < count(); ++i) {
        for (int64_t c = 0; c < width; ++c) {
          whole[static_cast<size_t>((b * length + places[static_cast<size_t>(i)]) * width + c)] +=
              part[static_cast<size_t>((b * count() + i) * width + c)];
        }
      }
    }
  }
};

Tokens all_of(int64_t length) {
  Tokens tokens;
  for (int64_t i = 0; i < length; ++i) tokens.places.push_back(static_cast<int32_t>(i));
  return tokens;
}
Tokens of_rank(int64_t length, int64_t rank, int64_t ranks) {
  Tokens tokens;
  for (int64_t i = 0; i < length; ++i) {
    const int64_t chunk = i / (length / (2 * ranks));
    if (chunk == rank || chunk == 2 * ranks - 1 - rank) tokens.places.push_back(static_cast<int32_t>(i));
  }
  return tokens;
}
// First positions of the two ranges of a rank's rows.
Ints starts_of(const Tokens& tokens) {
  Ints starts;
  for (int64_t b = 0; b < kBatch; ++b) {
    for (const int64_t first : {int64_t{0}, tokens.count() / 2})
      starts.push_back(tokens.places[static_cast<size_t>(first)]);
  }
  return starts;
}

struct Results {
  Floats out, lse, dq, dkv, dbias;
};

class AttentionShards : public testing::TestWithParam<Case> {
 protected:
  AttentionShards() {
    for (int64_t i = 0; i < kBatch * length_; ++i) {
      const int64_t document = i % length_ / 83 * 83;
      begin_.push_back(static_cast<int32_t>(document));
      end_.push_back(static_cast<int32_t>(std::min(length_, document + 83)));
    }
    if (GetParam().bias) bias_ = normal(kHeads * 2 * length_, 5);
  }

  AttentionShape shape(const Tokens& rows, const Tokens& keys) const {
    const Case& c = GetParam();
    return {.batch = kBatch,
            .q_len = rows.count(),
            .kv_len = keys.count(),
            .heads = kHeads,
            .kv_heads = kKvHeads,
            .head_dim = kHeadDim,
            .scale = 0.3f,
            .q_stride = kQ,
            .k_stride = kKv,
            .v_stride = kKv,
            .out_stride = kQ,
            .kv_batch_stride = keys.count() * kKv,
            .q_pieces = rows.count() < length_ ? 2 : 1,
            .kv_pieces = keys.count() < length_ ? 2 : 1,
            .causal = c.causal,
            .window = c.window,
            .softcap = c.softcap,
            .bias_width = c.bias ? 2 * length_ : 0,
            .bias_zero = c.bias ? length_ : 0};
  }

  // Forward if `known` is null; else the gradients, from its out and lse.
  void run(const Tokens& rows, const Tokens& keys, Results& to, const Results* known) const {
    const AttentionPlan plan = plan_attention(shape(rows, keys), attention_testing::device_of(2));
    const Floats q = rows.of(q_, length_, kQ), kv = keys.of(kv_, length_, kKv);
    const Ints begin = rows.of(begin_, length_, 1), end = rows.of(end_, length_, 1);
    const Ints q_start = starts_of(rows), kv_start = starts_of(keys);
    const AttentionInputs in{.q = q.data(),
                             .k = kv.data(),
                             .v = kv.data() + kKv / 2,
                             .kv_begin = begin.data(),
                             .kv_end = GetParam().causal ? nullptr : end.data(),
                             .q_start = rows.count() < length_ ? q_start.data() : nullptr,
                             .kv_start = keys.count() < length_ ? kv_start.data() : nullptr,
                             .bias = bias_.empty() ? nullptr : bias_.data()};
    if (known == nullptr) {
      to.out.resize(q.size());
      to.lse.resize(static_cast<size_t>(kBatch * kHeads * rows.count()));
      Scratch scratch(plan.forward_scratch_bytes);
      attention_forward(plan, to.out.data(), to.lse.data(), in, scratch.data());
      return;
    }
    const Floats dout = rows.of(dout_, length_, kQ);
    to.dq.resize(q.size());
    to.dkv.resize(kv.size());
    to.dbias.resize(bias_.size());
    Scratch scratch(plan.backward_scratch_bytes);
    attention_backward(
        plan,
        {.dq = to.dq.data(), .dk = to.dkv.data(), .dv = to.dkv.data() + kKv / 2, .dbias = to.dbias.data()},
        dout.data(), known->out.data(), known->lse.data(), in, scratch.data());
  }
  Results whole() const {
    Results results;
    run(all_of(length_), all_of(length_), results, nullptr);
    run(all_of(length_), all_of(length_), results, &results);
    return results;
  }
  Results zeros() const {
    return {Floats(q_.size()), {}, Floats(q_.size()), Floats(kv_.size()), Floats(bias_.size())};
  }
  static void expect_near(const Results& found, const Results& wanted) {
    const auto compare = [](const char* what, const Floats& a, const Floats& b) {
      ASSERT_EQ(a.size(), b.size()) << what;
      for (size_t i = 0; i < a.size(); ++i)
        ASSERT_NEAR(a[i], b[i], 2e-5f * (1 + std::abs(b[i]))) << what << ", element " << i;
    };
    compare("out", found.out, wanted.out);
    compare("dq", found.dq, wanted.dq);
    compare("dkv", found.dkv, wanted.dkv);
    compare("dbias", found.dbias, wanted.dbias);
  }

  const int64_t length_ = GetParam().length;
  const Floats q_ = normal(kBatch * length_ * kQ, 1), kv_ = normal(kBatch * length_ * kKv, 2),
               dout_ = normal(kBatch * length_ * kQ, 3);
  Floats bias_;
  Ints begin_, end_;
};

TEST_P(AttentionShards, RowShardsWithWholeKeys) {
  for (const int64_t ranks : {2, 3}) {
    Results sum = zeros();
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const Tokens rows = of_rank(length_, rank, ranks), keys = all_of(length_);
      Results part;
      run(rows, keys, part, nullptr);
      run(rows, keys, part, &part);
      rows.add_to(sum.out, part.out, length_, kQ);
      rows.add_to(sum.dq, part.dq, length_, kQ);
      for (size_t i = 0; i < sum.dkv.size(); ++i) sum.dkv[i] += part.dkv[i];
      for (size_t i = 0; i < sum.dbias.size(); ++i) sum.dbias[i] += part.dbias[i];
    }
    expect_near(sum, whole());
  }
}

// Sharded keys support no bias.
using AttentionShardsWithoutBias = AttentionShards;

TEST_P(AttentionShardsWithoutBias, KeyShardsMerge) {
  constexpr int64_t kRanks = 3;
  Results sum = zeros();
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const Tokens rows = of_rank(length_, rank, kRanks);
    Results merged;
    for (int64_t step = 0; step < kRanks; ++step) {
      Results part;
      run(rows, of_rank(length_, (rank + kRanks - step) % kRanks, kRanks), part, nullptr);
      if (step == 0) {
        merged = part;
        continue;
      }
      merge_attention({kBatch * rows.count(), rows.count(), kHeads, kHeadDim, DType::kF32}, merged.out.data(),
                      merged.lse.data(), merged.out.data(), merged.lse.data(), part.out.data(),
                      part.lse.data());
    }
    rows.add_to(sum.out, merged.out, length_, kQ);
    for (int64_t source = 0; source < kRanks; ++source) {
      const Tokens keys = of_rank(length_, source, kRanks);
      Results part;
      run(rows, keys, part, &merged);
      rows.add_to(sum.dq, part.dq, length_, kQ);
      keys.add_to(sum.dkv, part.dkv, length_, kKv);
    }
  }
  expect_near(sum, whole());
}

constexpr Case kPlain[] = {{"causal", 420, 0},
                           {"window", 420, 61},
                           {"softcap", 228, 0, 0.9f},
                           {"encoder", 420, 0, 0, false},
                           {"few_rows", 12, 0}};
constexpr Case kBiased[] = {{"bias", 228, 0, 0, true, true}, {"encoder_bias", 228, 0, 0, false, true}};

std::string name_of(const testing::TestParamInfo<Case>& one) {
  return one.param.name;
}
INSTANTIATE_TEST_SUITE_P(Plain, AttentionShards, testing::ValuesIn(kPlain), name_of);
INSTANTIATE_TEST_SUITE_P(Biased, AttentionShards, testing::ValuesIn(kBiased), name_of);
INSTANTIATE_TEST_SUITE_P(Plain, AttentionShardsWithoutBias, testing::ValuesIn(kPlain), name_of);

}  // namespace
}  // namespace strata::cpu
