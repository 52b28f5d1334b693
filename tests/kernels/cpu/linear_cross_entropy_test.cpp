#include "kernels/cpu/linear_cross_entropy.h"
#include "fixtures/float_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "fixtures/host_device.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Problem {
  LinearCrossEntropySpec spec;
  std::vector<float> x, w, bias;  // x holds bf16 values if the activations are bf16
  std::vector<int32_t> targets;

  explicit Problem(LinearCrossEntropySpec spec_) : spec(spec_) {
    if (spec.vocab_valid == 0) spec.vocab_valid = spec.vocab;
    x = values(spec.tokens * spec.hidden_size, 1, 1.0f);
    w = values(spec.vocab * spec.hidden_size, 2, 1.0f);
    if (spec.bias) bias = values(spec.vocab, 3, 2.0f);
    if (spec.dtype == DType::kBF16) {
      for (float& v : x) v = static_cast<float>(BF16(v));
      for (float& v : w) v = static_cast<float>(BF16(v));
    }
    if (spec.dtype == DType::kF16) {
      for (float& v : x) v = static_cast<float>(F16(v));
      for (float& v : w) v = static_cast<float>(F16(v));
    }
    for (int64_t i = 0; i < spec.tokens; ++i) {
      targets.push_back(i % 5 == 3 ? -1 : static_cast<int32_t>((i * 7919) % spec.vocab_valid));
    }
  }
};

struct Result {
  double loss = 0.0;
  int64_t count = 0;
  std::vector<float> token_loss, dx, dw, dbias;
  bool operator==(const Result& o) const = default;
};

Result run(const Problem& p, float scale = 1.0f, float dw_before = kNan,
           GemmEngine engine = GemmEngine::kAuto) {
  const auto& s = p.spec;
  const auto plan = plan_linear_cross_entropy(s, fixtures::host_device(), engine);
  Arena scratch(plan.scratch_bytes + 64);
  std::memset(scratch.data(), 0xff, static_cast<size_t>(scratch.size()));
  Arena x(s.tokens * s.hidden_size * size_of(s.dtype) + 64);
  Arena dx(s.tokens * s.hidden_size * size_of(s.dtype) + 64);
  std::memset(dx.data(), 0xff, static_cast<size_t>(dx.size()));
  convert(x.data(), s.dtype, p.x.data(), DType::kF32, s.tokens * s.hidden_size);
  const auto encode = [&](GemmRole role, Arena& memory) -> const void* {
    const auto encoding =
        plan_weight_encoding(role, s.vocab, s.hidden_size, s.dtype, fixtures::host_device(), engine);
    if (encoding.plain) return p.w.data();
    memory = Arena(encoding.bytes + 64);
    WeightPacker(encoding).pack(memory.data(), p.w.data());
    return memory.data();
  };
  Arena forward, backward;
  Result r;
  r.loss = 1e300;
  r.count = -1;
  r.token_loss.assign(static_cast<size_t>(s.tokens), kNan);
  r.dw.assign(static_cast<size_t>(s.vocab * s.hidden_size), dw_before);
  r.dbias.assign(p.bias.size(), dw_before);
  LinearCrossEntropy(plan).run({.x = x.data(),
                                .w_forward = encode(GemmRole::kForward, forward),
                                .w_input_grad = encode(GemmRole::kInputGrad, backward),
                                .bias = s.bias ? p.bias.data() : nullptr,
                                .targets = p.targets.data(),
                                .grad_scale = scale,
                                .loss_sum = &r.loss,
                                .count = &r.count,
                                .token_loss = r.token_loss.data(),
                                .dx = dx.data(),
                                .dw = r.dw.data(),
                                .dbias = r.dbias.data(),
                                .scratch = scratch.data()});
  r.dx.resize(static_cast<size_t>(s.tokens * s.hidden_size));
  convert(r.dx.data(), DType::kF32, dx.data(), s.dtype, s.tokens * s.hidden_size);
  return r;
}

struct Reference {
  double loss = 0.0;
  int64_t count = 0;
  std::vector<double> dx, dw, dbias;
};

// Everything by the formulas, in double.
Reference reference(const Problem& p, double scale) {
  const auto& s = p.spec;
  Reference r;
  r.dx.assign(p.x.size(), 0.0);
  r.dw.assign(p.w.size(), 0.0);
  r.dbias.assign(p.bias.size(), 0.0);
  std::vector<double> probability(static_cast<size_t>(s.vocab_valid));
  for (int64_t t = 0; t < s.tokens; ++t) {
    const int32_t target = p.targets[static_cast<size_t>(t)];
    if (target < 0) continue;
    const float* x = &p.x[static_cast<size_t>(t * s.hidden_size)];
    double sum = 0.0;
    double target_logit = 0.0;
    for (int64_t v = 0; v < s.vocab_valid; ++v) {
      double logit = p.bias.empty() ? 0.0 : double{p.bias[static_cast<size_t>(v)]};
      for (int64_t i = 0; i < s.hidden_size; ++i)
        logit += double{x[i]} * p.w[static_cast<size_t>(v * s.hidden_size + i)];
      if (v == target) target_logit = logit;
      probability[static_cast<size_t>(v)] = std::exp(logit);
      sum += std::exp(logit);
    }
    r.loss += std::log(sum) - target_logit;
    ++r.count;
    for (int64_t v = 0; v < s.vocab_valid; ++v) {
      const double g = scale * (probability[static_cast<size_t>(v)] / sum - (v == target ? 1.0 : 0.0));
      if (!p.bias.empty()) r.dbias[static_cast<size_t>(v)] += g;
      for (int64_t i = 0; i < s.hidden_size; ++i) {
        r.dx[static_cast<size_t>(t * s.hidden_size + i)] +=
            g * p.w[static_cast<size_t>(v * s.hidden_size + i)];
        r.dw[static_cast<size_t>(v * s.hidden_size + i)] += g * x[i];
      }
    }
  }
  return r;
}

template <typename A, typename B>
void expect_near(const std::vector<A>& got, const std::vector<B>& want, double tolerance, const char* what) {
  double largest = 0.0;
  for (const B& w : want) largest = std::max(largest, std::abs(static_cast<double>(w)));
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(got[i]), static_cast<double>(want[i]), tolerance * (largest + 1e-12))
        << what << " " << i;
  }
}

const LinearCrossEntropySpec kSpecs[] = {
    {.tokens = 37, .hidden_size = 19, .vocab = 101},
    {.tokens = 1, .hidden_size = 1, .vocab = 1},
    {.tokens = 64, .hidden_size = 16, .vocab = 64, .chunk_tokens = 16},
    {.tokens = 45, .hidden_size = 8, .vocab = 70, .vocab_valid = 65, .chunk_tokens = 11},
    {.tokens = 6, .hidden_size = 300, .vocab = 1031, .vocab_valid = 1030},
    {.tokens = 37, .hidden_size = 19, .vocab = 101, .bias = true},
    {.tokens = 45, .hidden_size = 8, .vocab = 70, .vocab_valid = 65, .chunk_tokens = 11, .bias = true},
    {.tokens = 1, .hidden_size = 33, .vocab = 40, .bias = true},
};

TEST(LinearCrossEntropy, LossAndGradientsEqualTheFormulas) {
  for (const auto& spec : kSpecs) {
    for (const GemmEngine engine : {GemmEngine::kPanels, GemmEngine::kOneDnn}) {
      const Problem p(spec);
      const Result got = run(p, 0.37f, kNan, engine);
      const Reference want = reference(p, static_cast<double>(0.37f));
      EXPECT_NEAR(got.loss, want.loss, 2e-6 * std::abs(want.loss) + 1e-6);
      EXPECT_EQ(got.count, want.count);
      expect_near(got.dx, want.dx, 5e-6, "dx");
      expect_near(got.dw, want.dw, 5e-6, "dw");
      expect_near(got.dbias, want.dbias, 5e-6, "dbias");
    }
  }
}

TEST(LinearCrossEntropy, NarrowTypesDifferOnlyByGradientRounding) {
  for (auto spec : kSpecs) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      spec.dtype = dtype;
      const Problem p(spec);
      // fp16 needs a scale: small gradients of logits are below its range.
      const float scale = dtype == DType::kF16 ? 1024.0f : 1.0f;
      const Result got = run(p, scale);
      const Reference want = reference(p, static_cast<double>(scale));
      EXPECT_NEAR(got.loss, want.loss, 2e-6 * std::abs(want.loss) + 1e-6);
      // Logit gradients and dx are each rounded to 8 or 11 bits; errors of a sum are below those of its
      // largest terms.
      const double rounding = dtype == DType::kF16 ? 0x1p-10 : 0x1p-7;
      expect_near(got.dx, want.dx, rounding, "dx");
      expect_near(got.dw, want.dw, rounding, "dw");
      expect_near(got.dbias, want.dbias, rounding, "dbias");
    }
  }
}

// A masked model predicts 307 of 2048 tokens; without this, 512 would be computed.
TEST(LinearCrossEntropy, ChunksFitTheExpectedTargets) {
  const auto chunk_of = [](int64_t tokens, double share) {
    return plan_linear_cross_entropy(
               {.tokens = tokens, .hidden_size = 8, .vocab = 30522, .target_share = share}, {},
               GemmEngine::kPanels)
        .full.tokens;
  };
  EXPECT_EQ(chunk_of(2048, 1), 512);
  EXPECT_EQ(chunk_of(2048, 0.15), 360);
  EXPECT_EQ(chunk_of(8192, 0.15), 443);  // a third of 1328
  EXPECT_EQ(chunk_of(8, 0.15), 8);
  EXPECT_EQ(chunk_of(0, 0.15), 0);
}

// 2048 tokens get capacity for 360 targets; if there are fewer, fewer are computed.
TEST(LinearCrossEntropy, TheLastChunkHasSeveralSizes) {
  const auto sizes_of = [](int64_t tokens, double share) {
    const auto plan = plan_linear_cross_entropy(
        {.tokens = tokens, .hidden_size = 8, .vocab = 30522, .target_share = share}, {}, GemmEngine::kPanels);
    std::vector<int64_t> sizes;
    for (const CrossEntropyChunk& chunk : plan.fewer) sizes.push_back(chunk.tokens);
    return sizes;
  };
  EXPECT_EQ(sizes_of(2048, 0.15), (std::vector<int64_t>{336, 312, 288, 264}));
  EXPECT_EQ(sizes_of(2048, 1), std::vector<int64_t>{});
  EXPECT_EQ(sizes_of(8, 0.15), std::vector<int64_t>{});
  EXPECT_EQ(sizes_of(0, 0.15), std::vector<int64_t>{});
  for (const int64_t tokens : sizes_of(8192, 0.15)) {  // 1132 to 1328 targets
    EXPECT_LT(tokens, 443);
    EXPECT_GT(tokens, 1132 - 2 * 443 - 48);
  }
}

// One token in seven has a target, as in a masked model: only chunks of tokens with targets are run.
TEST(LinearCrossEntropy, SkipsTokensWithoutTargets) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    // Chunks of a given size, or sized for the expected number of targets: too many, too few.
    for (const auto& [every, chunk, share] : std::vector<std::tuple<int64_t, int64_t, double>>{{7, 8, 1},
                                                                                               {50, 8, 1},
                                                                                               {1000, 8, 1},
                                                                                               {7, 0, 0.14},
                                                                                               {7, 8, 0.14},
                                                                                               {50, 0, 0.14},
                                                                                               {4, 0, 0.05},
                                                                                               {4, 0, 0.5}}) {
      Problem p({.tokens = 93,
                 .hidden_size = 12,
                 .vocab = 40,
                 .dtype = dtype,
                 .chunk_tokens = chunk,
                 .target_share = share,
                 .bias = true});
      for (size_t i = 0; i < p.targets.size(); ++i) {
        if (static_cast<int64_t>(i) % every != 3) p.targets[i] = -1;
      }
      const Result got = run(p);
      const Reference want = reference(p, 1.0);
      const double tolerance = dtype == DType::kF32 ? 5e-6 : 0x1p-7;
      EXPECT_NEAR(got.loss, want.loss, 2e-6 * std::abs(want.loss) + 1e-6);
      EXPECT_EQ(got.count, want.count);
      expect_near(got.dx, want.dx, tolerance, "dx");
      expect_near(got.dw, want.dw, tolerance, "dw");
      expect_near(got.dbias, want.dbias, tolerance, "dbias");
      for (size_t i = 0; i < p.targets.size(); ++i) EXPECT_EQ(got.token_loss[i] != 0, p.targets[i] >= 0) << i;
      EXPECT_EQ(run(p), got);
    }
  }
}

TEST(LinearCrossEntropy, GradientsEqualFiniteDifferences) {
  Problem p({.tokens = 9, .hidden_size = 6, .vocab = 11, .chunk_tokens = 4, .bias = true});
  const Result at = run(p);
  auto slope = [&](float& value) {
    const float before = value;
    constexpr float kStep = 1e-2f;
    value = before + kStep;
    const double up = reference(p, 1.0).loss;
    value = before - kStep;
    const double down = reference(p, 1.0).loss;
    value = before;
    return (up - down) / (2.0 * kStep);
  };
  for (size_t i = 0; i < p.x.size(); ++i) EXPECT_NEAR(at.dx[i], slope(p.x[i]), 1e-4);
  for (size_t i = 0; i < p.w.size(); ++i) EXPECT_NEAR(at.dw[i], slope(p.w[i]), 1e-4);
  for (size_t i = 0; i < p.bias.size(); ++i) EXPECT_NEAR(at.dbias[i], slope(p.bias[i]), 1e-4);
}

TEST(LinearCrossEntropy, AccumulatesWeightGradientAndLoss) {
  const Problem plain({.tokens = 30, .hidden_size = 7, .vocab = 40, .chunk_tokens = 8, .bias = true});
  Problem adding = plain;
  adding.spec.accumulate = adding.spec.accumulate_bias = true;
  const Result first = run(plain);
  const Result second = run(adding, 1.0f, 2.0f);
  for (size_t i = 0; i < first.dw.size(); ++i) EXPECT_NEAR(second.dw[i], first.dw[i] + 2.0f, 2e-6);
  for (size_t i = 0; i < first.dbias.size(); ++i) EXPECT_NEAR(second.dbias[i], first.dbias[i] + 2.0f, 2e-6);
  EXPECT_EQ(first.dx, second.dx);

  auto spec = plain.spec;
  spec.task = CrossEntropyTask::kLoss;
  spec.accumulate_loss = true;
  const auto plan = plan_linear_cross_entropy(spec, fixtures::host_device());
  Arena scratch(plan.scratch_bytes);
  double loss = 100.0;
  int64_t count = 5;
  LinearCrossEntropy(plan).run({.x = plain.x.data(),
                                .w_forward = plain.w.data(),
                                .bias = plain.bias.data(),
                                .targets = plain.targets.data(),
                                .loss_sum = &loss,
                                .count = &count,
                                .scratch = scratch.data()});
  EXPECT_DOUBLE_EQ(loss, 100.0 + first.loss);
  EXPECT_EQ(count, 5 + first.count);
}

TEST(LinearCrossEntropy, SameBitsEveryTimeAndLossesDoNotDependOnChunks) {
  Problem p({.tokens = 50, .hidden_size = 33, .vocab = 130});
  EXPECT_EQ(run(p), run(p));
  // The in-house GEMM guarantees the same bits for all chunk sizes; those of the library may depend on the
  // number of rows.
  const Result once = run(p, 1.0f, kNan, GemmEngine::kPanels);
  EXPECT_EQ(once, run(p, 1.0f, kNan, GemmEngine::kPanels));
  p.spec.chunk_tokens = 7;
  const Result chunked = run(p, 1.0f, kNan, GemmEngine::kPanels);
  EXPECT_EQ(once.loss, chunked.loss);
  EXPECT_EQ(once.token_loss, chunked.token_loss);
  EXPECT_EQ(once.dx, chunked.dx);
}

TEST(LinearCrossEntropy, IgnoredTokensContributeNothing) {
  Problem p({.tokens = 12, .hidden_size = 5, .vocab = 9});
  std::fill(p.targets.begin(), p.targets.end(), -1);
  const Result r = run(p);
  EXPECT_EQ(r.loss, 0.0);
  EXPECT_EQ(r.count, 0);
  for (const float v : r.dx) EXPECT_EQ(v, 0.0f);
  for (const float v : r.dw) EXPECT_EQ(v, 0.0f);
  for (const float v : r.token_loss) EXPECT_EQ(v, 0.0f);
}

TEST(LinearCrossEntropy, AnEmptyBatchHasZeroGradient) {
  const Result r = run(Problem({.tokens = 0, .hidden_size = 5, .vocab = 9}));
  EXPECT_EQ(r.loss, 0.0);
  EXPECT_EQ(r.count, 0);
  for (const float v : r.dw) EXPECT_EQ(v, 0.0f);
}

TEST(LinearCrossEntropy, LargeLogitsDoNotOverflowAndNanShows) {
  Problem p({.tokens = 3, .hidden_size = 1, .vocab = 20});
  p.x = {1e4f, -1e4f, 1.0f};
  EXPECT_TRUE(std::isfinite(run(p).loss));
  p.x[1] = kNan;
  EXPECT_TRUE(std::isnan(run(p).loss));
  p.x[1] = 1.0f;
  p.w[15] = kNan;  // not a target
  EXPECT_TRUE(std::isnan(run(p).loss));
}

TEST(LinearCrossEntropy, RejectsTargetsOutsideTheVocabulary) {
  Problem p({.tokens = 3, .hidden_size = 2, .vocab = 20, .vocab_valid = 18});
  p.targets[1] = 18;
  EXPECT_THROW(run(p), DataError);
  p.targets[1] = -2;
  EXPECT_THROW(run(p), DataError);
}

TEST(LinearCrossEntropy, CostIsThreeMatmuls) {
  EXPECT_EQ(linear_cross_entropy_cost({.tokens = 2, .hidden_size = 3, .vocab = 5}).flops, 180);
  EXPECT_EQ(
      linear_cross_entropy_cost({.tokens = 2, .hidden_size = 3, .vocab = 5, .task = CrossEntropyTask::kLoss})
          .flops,
      60);
}

}  // namespace
}  // namespace strata::cpu
