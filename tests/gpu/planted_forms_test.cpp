// Faults planted in the kernels of rarer forms: attention with a bias, latents, wide norms, the split loss (planted.h).
#include <algorithm>
#include <utility>

#include "kernels/gpu/launch_plain.h"
#include "planted.h"

namespace strata::gpu_tests {
namespace {

// Causal attention with a bias by distance: two heads of 88 bytes that share keys, more rows than a block has.
struct Biased {
  static constexpr int kLength = 70, kDim = 22, kHeads = 2, kWidth = 75, kZero = 72;
  static constexpr double kScale = 0.25;
  std::vector<float> q = values_of(kLength * kHeads * kDim, 1), k = values_of(kLength * kDim, 2),
                     v = values_of(kLength * kDim, 3), bias = values_of(kHeads * kWidth, 4),
                     dout = values_of(kLength * kHeads * kDim, 5);
  gpu::AttentionShape shape{.dtype = DType::kF32,
                            .length = kLength,
                            .kv_length = kLength,
                            .heads = kHeads,
                            .head_dim = kDim,
                            .value_dim = kDim};

  gpu::PlainAttentionArgs upload(Bench& bench) const {
    auto* const rows = bench.output<int32_t>(kLength * 2);
    auto* const tiles = bench.output<int32_t>((kLength + 63) / 64 * 4);
    gpu::AttentionRangesArgs ranges{};
    ranges.rows = rows, ranges.tiles = tiles;
    ranges.batch = ranges.causal = 1, ranges.length = ranges.kv_length = kLength;
    bench.start(gpu::attention_ranges(shape), ranges);
    gpu::PlainAttentionArgs args{};
    args.bias = bench.upload(bias), args.bias_width = kWidth, args.bias_zero = kZero, args.slices = 1;
    gpu::AttentionArgs& of = args.attention;
    of.q = bench.upload(q), of.k = bench.upload(k), of.v = bench.upload(v);
    of.out = bench.output<float>(kLength * kHeads * kDim), of.lse = bench.output<float>(kHeads * kLength);
    of.rows = rows, of.tiles = tiles;
    of.q_stride = of.out_stride = kHeads * kDim, of.k_stride = of.v_stride = kDim;
    of.batch = of.kv_heads = 1, of.heads = kHeads, of.length = of.kv_length = kLength;
    of.head_dim = of.value_dim = kDim, of.scale = static_cast<float>(kScale);
    return args;
  }
  // body(head, row, key, weight) after the softmax of each row.
  template <typename Body>
  void for_weights(const Body& body) const {
    for (int head = 0; head < kHeads; ++head)
      for (int i = 0; i < kLength; ++i) {
        std::vector<double> weights;
        double total = 0;
        for (int j = 0; j <= i; ++j) {
          double score = bias[static_cast<size_t>(head * kWidth + kZero + j - i)];
          for (int c = 0; c < kDim; ++c)
            score += kScale * q[static_cast<size_t>((i * kHeads + head) * kDim + c)] *
                     k[static_cast<size_t>(j * kDim + c)];
          weights.push_back(std::exp(score));
          total += weights.back();
        }
        for (int j = 0; j <= i; ++j) body(head, i, j, weights[static_cast<size_t>(j)] / total);
      }
  }
};

Outcome biased_attention(const std::string& settings) {
  Bench bench(settings);
  const Biased of;
  const gpu::PlainAttentionArgs args = of.upload(bench);
  bench.start(gpu::plain_attention_forward(of.shape), args);
  std::vector<double> expected(of.q.size());
  of.for_weights([&](int head, int i, int j, double weight) {
    for (int c = 0; c < Biased::kDim; ++c)
      expected[static_cast<size_t>((i * Biased::kHeads + head) * Biased::kDim + c)] +=
          weight * of.v[static_cast<size_t>(j * Biased::kDim + c)];
  });
  return bench.outcome(static_cast<const float*>(args.attention.out), expected);
}

// The gradient of the bias: all tiles of rows in one part.
Outcome bias_gradient(const std::string& settings) {
  Bench bench(settings);
  const Biased of;
  gpu::PlainAttentionArgs args = of.upload(bench);
  bench.start(gpu::plain_attention_forward(of.shape), args);
  args.attention.dout = bench.upload(of.dout);
  args.attention.delta = bench.output<float>(Biased::kHeads * Biased::kLength);
  bench.start(gpu::plain_attention_delta(of.shape), args.attention);
  args.dbias = bench.output<float>(Biased::kHeads * Biased::kWidth);
  args.bias_parts = 1;
  gpu::KernelLaunch parts = gpu::plain_bias_gradient(of.shape, Biased::kWidth).parts;
  parts.grid_x = 1;
  bench.start(parts, args);
  std::vector<double> expected(Biased::kHeads * Biased::kWidth), of_rows(Biased::kHeads * Biased::kLength);
  const auto product = [&](int head, int i, int j) {
    double sum = 0;
    for (int c = 0; c < Biased::kDim; ++c)
      sum +=
          static_cast<double>(of.dout[static_cast<size_t>((i * Biased::kHeads + head) * Biased::kDim + c)]) *
          of.v[static_cast<size_t>(j * Biased::kDim + c)];
    return sum;
  };
  of.for_weights([&](int head, int i, int j, double weight) {
    of_rows[static_cast<size_t>(head * Biased::kLength + i)] += weight * product(head, i, j);
  });
  of.for_weights([&](int head, int i, int j, double weight) {
    expected[static_cast<size_t>(head * Biased::kWidth + Biased::kZero + j - i)] +=
        weight * (product(head, i, j) - of_rows[static_cast<size_t>(head * Biased::kLength + i)]);
  });
  return bench.outcome(args.dbias, expected);
}

// The gradients of q, of keys and values and of what heads share, of rows of latent attention.
Outcome latent_heads(const std::string& settings) {
  constexpr int kRows = 3, kHeads = 3, kPlain = 8, kRotary = 4, kValue = 4, kSize = kPlain + kRotary;
  constexpr int kQ = kHeads * kSize, kWidth = 2 * kQ + kHeads * kValue;
  Bench bench(settings);
  const std::vector<float> given = values_of(kRows * kWidth, 1);
  gpu::LatentHeadsArgs args{};
  auto* const rotated = bench.output<float>(kRows * kRotary);
  args.qkv = bench.upload(given), args.q = bench.output<float>(kRows * kQ);
  args.kv = bench.output<float>(kRows * kHeads * (kPlain + kValue)), args.rotated = rotated;
  args.rows = kRows, args.heads = kHeads, args.plain = kPlain, args.rotary = kRotary, args.value = kValue;
  bench.start(gpu::latent_heads_backward(DType::kF32, args), args);
  std::vector<double> expected(kRows * kRotary);
  for (int row = 0; row < kRows; ++row)
    for (int head = 0; head < kHeads; ++head)
      for (int c = 0; c < kRotary; ++c)
        expected[static_cast<size_t>(row * kRotary + c)] +=
            given[static_cast<size_t>(row * kWidth + kQ + head * kSize + kPlain + c)];
  return bench.outcome(rotated, expected);
}

// Products of two heads with a weight's rows, with several steps of depth and a ragged edge.
Outcome head_products(const std::string& settings) {
  constexpr int kRows = 5, kHeads = 2, kN = 70, kK = 75;
  Bench bench(settings);
  const std::vector<float> a = values_of(kRows * kHeads * kK, 1), b = values_of(kHeads * kN * kK, 2);
  gpu::HeadProductsArgs args{};
  auto* const c = bench.output<float>(kRows * kHeads * kN);
  args.a = bench.upload(a), args.b = bench.upload(b), args.c = c;
  args.a_stride = kHeads * kK, args.a_head = kK, args.b_stride = kN * kK;
  args.c_stride = kHeads * kN, args.c_head = kN;
  args.rows = kRows, args.n = kN, args.k = kK, args.transposed = 1;
  bench.start(gpu::head_products(DType::kF32, kHeads, args), args);
  std::vector<double> expected;
  for (int row = 0; row < kRows; ++row)
    for (int head = 0; head < kHeads; ++head)
      for (int n = 0; n < kN; ++n) {
        double sum = 0;
        for (int k = 0; k < kK; ++k)
          sum += static_cast<double>(a[static_cast<size_t>((row * kHeads + head) * kK + k)]) *
                 b[static_cast<size_t>((head * kN + n) * kK + k)];
        expected.push_back(sum);
      }
  return bench.outcome(c, expected);
}

// Rows of latents and rotated keys into two entries of a cache.
Outcome stored_latents(const std::string& settings) {
  constexpr int kLength = 3, kRows = 6, kCapacity = 5, kRank = 8, kRotary = 4, kWidth = kRank + kRotary;
  Bench bench(settings);
  const std::vector<float> latent = values_of(kRows * kRank, 1), rotated = values_of(kRows * kRotary, 2);
  auto* const cache = bench.upload(std::vector<float>(2 * kCapacity * kWidth));
  gpu::RowPartsArgs args{};
  args.whole = cache, args.stride = kWidth / 4, args.count = 2;
  args.parts[0] = {bench.upload(latent), kRank / 4, 0, kRank / 4};
  args.parts[1] = {bench.upload(rotated), kRotary / 4, kRank / 4, kRotary / 4};
  args.entries = bench.upload(std::vector<int32_t>{1, 0});
  args.position = bench.upload(std::vector<int32_t>{2, 1});
  args.length = kLength, args.capacity = kCapacity;
  bench.start(gpu::row_parts(16, kRows, kWidth / 4), args);
  std::vector<double> expected(2 * kCapacity * kWidth);
  for (int row = 0; row < kRows; ++row) {
    const int place = row < kLength ? kCapacity + 2 + row : 1 + row - kLength;
    for (int c = 0; c < kWidth; ++c)
      expected[static_cast<size_t>(place * kWidth + c)] =
          c < kRank ? latent[static_cast<size_t>(row * kRank + c)]
                    : rotated[static_cast<size_t>(row * kRotary + c - kRank)];
  }
  return bench.outcome(cache, expected);
}

// Layer norm of rows that are read several times.
Outcome wide_norm(const std::string& settings) {
  constexpr int kRows = 2, kDim = 2051;
  Bench bench(settings);
  const std::vector<float> x = values_of(kRows * kDim, 1), weight = values_of(kDim, 2);
  auto* const y = bench.output<float>(kRows * kDim);
  gpu::NormArgs args{};
  args.x = bench.upload(x), args.weight = bench.upload(weight), args.y = y;
  args.rstd = bench.output<float>(kRows), args.mean = bench.output<float>(kRows);
  args.dim = kDim, args.eps = 1e-5f;
  bench.start(gpu::norm_forward(gpu::NormKind::kLayer, DType::kF32, kRows, kDim), args);
  std::vector<double> expected;
  for (int row = 0; row < kRows; ++row) {
    double mean = 0, squares = 0;
    for (int i = 0; i < kDim; ++i) mean += x[static_cast<size_t>(row * kDim + i)] / static_cast<double>(kDim);
    for (int i = 0; i < kDim; ++i) squares += std::pow(x[static_cast<size_t>(row * kDim + i)] - mean, 2);
    for (int i = 0; i < kDim; ++i)
      expected.push_back((x[static_cast<size_t>(row * kDim + i)] - mean) * weight[static_cast<size_t>(i)] /
                         std::sqrt(squares / kDim + 1e-5));
  }
  return bench.outcome(y, expected);
}

// Statistics of rows of logits.
Outcome split_statistics(const std::string& settings) {
  constexpr int kRows = 2, kVocab = 300;
  Bench bench(settings);
  const std::vector<float> logits = values_of(kRows * kVocab, 1);
  const std::vector<int32_t> targets{7, 205};
  gpu::SplitLossArgs args{};
  auto* const statistics = bench.output<float>(kRows * 3);
  args.logits = bench.upload(logits), args.statistics = statistics, args.targets = bench.upload(targets);
  args.tokens = kRows, args.parts = 1, args.stride = args.columns = args.vocabulary = kVocab;
  bench.start(gpu::split_loss_statistics(kRows, 1, kVocab), args);
  std::vector<double> expected;
  for (size_t row = 0; row < kRows; ++row) {
    const float* const of = logits.data() + row * kVocab;
    const double most = *std::max_element(of, of + kVocab);
    double sum = 0;
    for (size_t i = 0; i < kVocab; ++i) sum += std::exp(of[i] - most);
    expected.insert(expected.end(), {most, sum, of[targets[row]]});
  }
  return bench.outcome(statistics, expected);
}

// A table's rows by distance, two columns of a bucket at the far end.
Outcome relative_bias(const std::string& settings) {
  constexpr int kWidth = 9, kHeads = 2;
  Bench bench(settings);
  const std::vector<float> table = values_of(4 * kHeads, 1);
  gpu::RelativeBiasArgs args{};
  auto* const bias = bench.output<float>(kHeads * kWidth);
  args.bias = bias, args.table = bench.upload(table);
  args.heads = kHeads, args.width = kWidth, args.first = -6, args.count = 4;
  args.of = gpu::DistancesOf::kAll;
  const std::vector<int32_t> starts{0, 1, 2, 5, 7};
  std::copy(starts.begin(), starts.end(), args.starts);
  bench.start(gpu::relative_bias(kWidth, kHeads), args);
  std::vector<double> expected;
  for (int head = 0; head < kHeads; ++head)
    for (int i = 0; i < kWidth; ++i) {
      const int length = std::max(0, 6 - i), bucket = length >= 5 ? 3 : std::min(length, 2);
      expected.push_back(table[static_cast<size_t>(bucket * kHeads + head)]);
    }
  return bench.outcome(bias, expected);
}

const std::string kBarrierOfForms = "bar\\.sync";

TEST_F(Planted, CleanRunsOfForms) {
  const std::pair<const char*, Subject> kSubjects[] = {
      {"biased attention", biased_attention}, {"bias gradient", bias_gradient},
      {"latent heads", latent_heads},         {"multiplied heads", head_products},
      {"stored latents", stored_latents},     {"wide norm", wide_norm},
      {"split statistics", split_statistics}, {"relative bias", relative_bias}};
  for (const auto& [name, subject] : kSubjects) {
    for (const char* seed : {"seed=1", "seed=2"}) {
      const Outcome outcome = subject(seed);
      EXPECT_EQ(outcome.violation, "") << name;
      EXPECT_LE(outcome.error, kTolerance) << name;
    }
  }
}

TEST_F(Planted, MissingBarriersOfForms) {
  expect_found(biased_attention, "attention_plain_forward_f32_64", kBarrierOfForms, "",
               {"race", "unwritten"});
  expect_found(bias_gradient, "attention_plain_bias_f32", kBarrierOfForms, "", {"race", "unwritten"});
  expect_found(head_products, "head_products_f32", kBarrierOfForms, "", {"race", "unwritten"});
  expect_found(split_statistics, "split_loss_statistics", kBarrierOfForms, "", {"race", "unwritten"},
               "split_loss.cu");
  expect_found(wide_norm, "layer_norm_wide_forward_f32", kBarrierOfForms, "", {"race", "unwritten"},
               "rows.cuh");
}

TEST_F(Planted, BiasThatIsNotAdded) {
  expect_found(biased_attention, "attention_plain_forward_f32_64", "setp\\.eq\\.s64", "setp.ne.s64", {});
}

TEST_F(Planted, DiagonalOfOtherDistances) {
  expect_found(bias_gradient, "attention_plain_bias_f32", "(add\\.s32.*), -31", "$1, -30", {"unwritten"},
               "attention_plain.cu");
}

TEST_F(Planted, HeadLeftOutOfASum) {
  expect_found(latent_heads, "latent_heads_backward_f32", "setp\\.(ne|lt)\\.s32", "setp.eq.s32", {});
}

TEST_F(Planted, RowsInTheWrongPlaceOfACache) {
  expect_found(stored_latents, "row_parts_16", "rem\\.s32", "div.s32", {"race"}, "vector.cuh");
}

TEST_F(Planted, RowsReadPastTheirEnd) {
  expect_found(wide_norm, "layer_norm_wide_forward_f32", "setp\\.lt\\.s32", "setp.le.s32",
               {"out of bounds", "race"});
  expect_found(head_products, "head_products_f32", "setp\\.lt\\.s32", "setp.le.s32",
               {"out of bounds", "race"});
}

TEST_F(Planted, LeastInPlaceOfTheGreatestLogit) {
  expect_found(split_statistics, "split_loss_statistics", "setp\\.lt\\.f32", "setp.gt.f32", {});
}

TEST_F(Planted, BucketsThatBeginTooLate) {
  expect_found(relative_bias, "relative_bias", "setp\\.(gt|le)\\.s32", "setp.eq.s32", {});
}

}  // namespace
}  // namespace strata::gpu_tests
