// The loss from statistics and its separate gradients, compared with the fused form.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "fixtures/float_values.h"
#include "fixtures/host_device.h"
#include "kernels/cpu/linear_cross_entropy.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using Task = CrossEntropyTask;

struct Problem {
  LinearCrossEntropySpec spec;
  GemmEngine engine = GemmEngine::kAuto;
  std::vector<float> x, w, bias;
  std::vector<int32_t> targets;  // every fifth token has none
  float seed = 0.37f;

  explicit Problem(LinearCrossEntropySpec spec_) : spec(spec_) {
    if (spec.vocab_valid == 0) spec.vocab_valid = spec.vocab;
    x = values(spec.tokens * spec.hidden_size, 1, 1.0f);
    w = values(spec.vocab * spec.hidden_size, 2, 1.0f);
    if (spec.bias) bias = values(spec.vocab, 3, 2.0f);
    for (int64_t i = 0; i < spec.tokens; ++i)
      targets.push_back(i % 5 == 3 ? -1 : static_cast<int32_t>((i * 7919) % spec.vocab_valid));
  }
  // Only every `every`-th token keeps its target.
  Problem& keep(int64_t every) {
    for (size_t i = 0; i < targets.size(); ++i)
      if (static_cast<int64_t>(i) % every != 1) targets[i] = -1;
    return *this;
  }
};

struct Result {
  double loss = 1e300;
  int64_t count = -1;
  std::vector<float> token_loss, dx, dw, dbias;
  bool operator==(const Result&) const = default;
};

// One task of the problem, or of `rows` weight rows from `start` on, on memory filled with NaN.
struct Shard {
  int64_t start = 0, rows = 0;
};
class Runner {
 public:
  Runner(const Problem& problem, Shard shard, int64_t parts = 1) : p_(problem), shard_(shard) {
    spec_ = p_.spec;
    spec_.parts = parts;
    if (shard.rows != spec_.vocab) {
      spec_.vocab = spec_.vocab_valid = shard.rows;
      spec_.vocabulary = p_.spec.vocab;
    }
    for (int64_t part = 0; part < parts; ++part)
      starts_.push_back(static_cast<int32_t>(shard.start + part * shard.rows / parts));
    const int64_t bytes = spec_.tokens * spec_.hidden_size * size_of(spec_.dtype);
    x_ = Arena(bytes + 64);
    convert(x_.data(), spec_.dtype, p_.x.data(), DType::kF32, spec_.tokens * spec_.hidden_size);
    dx_ = Arena(bytes + 64);
    std::memset(dx_.data(), 0xff, static_cast<size_t>(dx_.size()));
    forward_ = encode(GemmRole::kForward, forward_memory_);
    backward_ = encode(GemmRole::kInputGrad, backward_memory_);
  }

  void run(Task task, LinearCrossEntropyArgs args, bool accumulate = false) {
    LinearCrossEntropySpec spec = spec_;
    spec.task = task;
    spec.accumulate = spec.accumulate_bias = accumulate;
    const auto plan = plan_linear_cross_entropy(spec, fixtures::host_device(), p_.engine);
    Arena scratch(plan.scratch_bytes + 64);
    std::memset(scratch.data(), 0xff, static_cast<size_t>(scratch.size()));
    args.x = x_.data();
    args.w_forward = forward_;
    args.w_input_grad = backward_;
    args.bias = p_.bias.empty() ? nullptr : p_.bias.data() + shard_.start;
    args.targets = p_.targets.data();
    args.grad_scale = p_.seed;
    args.dx = dx_.data();
    args.vocab_start = starts_.data();
    args.scratch = scratch.data();
    LinearCrossEntropy(plan).run(args);
  }
  std::vector<float> dx() const {
    std::vector<float> out(static_cast<size_t>(spec_.tokens * spec_.hidden_size));
    convert(out.data(), DType::kF32, dx_.data(), spec_.dtype, spec_.tokens * spec_.hidden_size);
    return out;
  }

 private:
  const void* encode(GemmRole role, Arena& memory) {
    const auto encoding = plan_weight_encoding(role, spec_.vocab, spec_.hidden_size, spec_.dtype,
                                               fixtures::host_device(), p_.engine);
    const float* rows = p_.w.data() + shard_.start * spec_.hidden_size;
    if (encoding.plain) return rows;
    memory = Arena(encoding.bytes + 64);
    WeightPacker(encoding).pack(memory.data(), rows);
    return memory.data();
  }

  const Problem& p_;
  Shard shard_;
  LinearCrossEntropySpec spec_;
  std::vector<int32_t> starts_;
  Arena x_, dx_, forward_memory_, backward_memory_;
  const void* forward_ = nullptr;
  const void* backward_ = nullptr;
};

Result prepared(const Problem& p, float before) {
  Result r;
  r.token_loss.assign(p.targets.size(), kNan);
  r.dw.assign(p.w.size(), before);
  r.dbias.assign(p.bias.size(), before);
  return r;
}

Result fused(const Problem& p, bool accumulate = false) {
  Result r = prepared(p, accumulate ? 2.0f : kNan);
  Runner runner(p, {0, p.spec.vocab});
  runner.run(Task::kTraining,
             {.loss_sum = &r.loss,
              .count = &r.count,
              .token_loss = r.token_loss.data(),
              .dw = r.dw.data(),
              .dbias = r.dbias.data()},
             accumulate);
  r.dx = runner.dx();
  return r;
}

// The split form over `shards` shards of `parts` parts each, as on several ranks.
Result split(const Problem& p, int64_t shards = 1, int64_t parts = 1, bool accumulate = false) {
  Result r = prepared(p, accumulate ? 2.0f : kNan);
  const int64_t rows = p.spec.vocab / shards, share = parts * p.spec.tokens * 3;
  std::vector<float> statistics(static_cast<size_t>(shards * share), kNan), given = statistics;
  std::vector<Runner> runners;
  for (int64_t s = 0; s < shards; ++s) {
    runners.emplace_back(p, Shard{s * rows, rows}, parts);
    runners.back().run(Task::kStatistics, {.out_statistics = statistics.data() + s * share});
  }
  const StatisticsArgs all{.tokens = p.spec.tokens,
                           .parts = shards * parts,
                           .statistics = statistics.data(),
                           .targets = p.targets.data()};
  std::vector<double> scratch(p.targets.size());
  sum_statistics(
      all,
      {.loss_sum = &r.loss, .count = &r.count, .token_loss = r.token_loss.data(), .scratch = scratch.data()});
  sum_statistics_grad(all, p.seed, given.data());
  r.dx.assign(p.x.size(), 0.0f);
  for (int64_t s = 0; s < shards; ++s) {
    LinearCrossEntropyArgs args{.dw = r.dw.data() + s * rows * p.spec.hidden_size,
                                .dbias = r.dbias.data() + (p.bias.empty() ? 0 : s * rows),
                                .statistics = statistics.data() + s * share,
                                .dstatistics = given.data() + s * share};
    Runner& runner = runners[static_cast<size_t>(s)];
    runner.run(Task::kWeightGrad, args, accumulate);
    runner.run(Task::kInputGrad, args);
    const std::vector<float> dx = runner.dx();
    for (size_t i = 0; i < dx.size(); ++i) r.dx[i] = shards == 1 ? dx[i] : r.dx[i] + dx[i];
  }
  return r;
}

void expect_same_bits(const Result& found, const Result& wanted) {
  EXPECT_EQ(found.loss, wanted.loss);
  EXPECT_EQ(found.count, wanted.count);
  EXPECT_EQ(found.token_loss, wanted.token_loss);
  EXPECT_EQ(found.dx, wanted.dx);
  EXPECT_EQ(found.dw, wanted.dw);
  EXPECT_EQ(found.dbias, wanted.dbias);
}

const LinearCrossEntropySpec kSpecs[] = {
    {.tokens = 37, .hidden_size = 19, .vocab = 101},
    {.tokens = 1, .hidden_size = 1, .vocab = 1},
    {.tokens = 64, .hidden_size = 16, .vocab = 64, .chunk_tokens = 16},
    {.tokens = 45, .hidden_size = 8, .vocab = 70, .vocab_valid = 65, .chunk_tokens = 11, .softcap = 1.5f},
    {.tokens = 37, .hidden_size = 19, .vocab = 101, .softcap = 0.7f},
    {.tokens = 45, .hidden_size = 8, .vocab = 70, .vocab_valid = 65, .chunk_tokens = 11, .bias = true},
    {.tokens = 93, .hidden_size = 33, .vocab = 130, .chunk_tokens = 20, .bias = true},
};

TEST(SplitCrossEntropy, EqualsTheFusedFormBitForBit) {
  for (auto spec : kSpecs) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      spec.dtype = dtype;
      for (const GemmEngine engine : {GemmEngine::kPanels, GemmEngine::kOneDnn}) {
        // The library supports bf16 matmuls from AVX-512 on.
        if (engine == GemmEngine::kOneDnn && dtype == DType::kBF16 && !fixtures::host_device().isa.avx512)
          continue;
        for (const int64_t every : {0, 7, 1000}) {  // few targets: gathered
          Problem p(spec);
          p.engine = engine;
          if (every > 0) p.keep(every);
          SCOPED_TRACE(std::to_string(spec.vocab) + " " + std::string(name_of(dtype)) + " " +
                       std::to_string(every));
          expect_same_bits(split(p), fused(p));
          expect_same_bits(split(p, 1, 1, true), fused(p, true));
        }
      }
    }
  }
}

TEST(SplitCrossEntropy, IsZeroWithoutTargetsOrTokens) {
  Problem none({.tokens = 12, .hidden_size = 5, .vocab = 9, .bias = true});
  std::fill(none.targets.begin(), none.targets.end(), -1);
  for (const Problem& p : {none, Problem({.tokens = 0, .hidden_size = 5, .vocab = 9, .bias = true})}) {
    const Result found = split(p);
    expect_same_bits(found, fused(p));
    EXPECT_EQ(found.loss, 0.0);
    EXPECT_EQ(found.count, 0);
    for (const float v : found.dw) EXPECT_EQ(v, 0.0f);
    for (const float v : found.dx) EXPECT_EQ(v, 0.0f);
  }
}

void expect_near(const std::vector<float>& found, const std::vector<float>& wanted, double tolerance) {
  ASSERT_EQ(found.size(), wanted.size());
  float largest = 0;
  for (const float w : wanted) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(found[i], wanted[i], tolerance * static_cast<double>(largest)) << i;
}

TEST(SplitCrossEntropy, VocabularyShardsEqualTheWhole) {
  for (const float softcap : {0.0f, 1.5f}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Problem p({.tokens = 61,
                       .hidden_size = 24,
                       .vocab = 96,
                       .dtype = dtype,
                       .chunk_tokens = 16,
                       .softcap = softcap,
                       .bias = softcap == 0});
      const Result whole = fused(p);
      for (const auto& [shards, parts] : {std::pair{2, 1}, {3, 1}, {1, 4}, {2, 3}, {1, 96}}) {
        const Result found = split(p, shards, parts);
        const double tolerance = dtype == DType::kF32 ? 1e-6 : 0x1p-7;
        EXPECT_NEAR(found.loss, whole.loss, 1e-6 * whole.loss);
        EXPECT_EQ(found.count, whole.count);
        expect_near(found.token_loss, whole.token_loss, 1e-6);
        expect_near(found.dx, whole.dx, tolerance);
        expect_near(found.dw, whole.dw, tolerance);
        expect_near(found.dbias, whole.dbias, tolerance);
      }
    }
  }
}

TEST(SplitCrossEntropy, SameBitsForAnyNumberOfThreads) {
  const int before = compute_threads();
  const Problem p({.tokens = 300, .hidden_size = 33, .vocab = 130, .chunk_tokens = 64, .bias = true});
  std::vector<Result> results;
  for (const int threads : {1, 2, 3}) {
    set_compute_threads(threads);
    Problem own = p;
    own.engine = GemmEngine::kPanels;
    results.push_back(split(own, 2));
  }
  set_compute_threads(before);
  expect_same_bits(results[1], results[0]);
  expect_same_bits(results[2], results[0]);
}

TEST(SplitCrossEntropy, LargeLogitsDoNotOverflowAndNanShows) {
  Problem p({.tokens = 3, .hidden_size = 1, .vocab = 20});
  p.x = {1e4f, -1e4f, 1.0f};
  for (const int64_t shards : {1, 2}) {
    const Result r = split(p, shards);
    EXPECT_TRUE(std::isfinite(r.loss));
    for (const float v : r.dw) EXPECT_TRUE(std::isfinite(v));
  }
  p.w[15] = kNan;  // not a target
  for (const int64_t shards : {1, 2}) EXPECT_TRUE(std::isnan(split(p, shards).loss));
}

TEST(SplitCrossEntropy, RejectsTargetsOutsideTheVocabulary) {
  for (const int32_t target : {20, -2}) {
    Problem p({.tokens = 3, .hidden_size = 2, .vocab = 20});
    p.targets[1] = target;
    for (const int64_t shards : {1, 2}) EXPECT_THROW(split(p, shards), DataError);
  }
}

TEST(SplitCrossEntropy, CostIsFiveMatmuls) {
  double flops = 0;
  for (const Task task : {Task::kStatistics, Task::kInputGrad, Task::kWeightGrad})
    flops += linear_cross_entropy_cost({.tokens = 2, .hidden_size = 3, .vocab = 5, .task = task}).flops;
  EXPECT_EQ(flops, 5 * 60);
}

}  // namespace
}  // namespace strata::cpu
