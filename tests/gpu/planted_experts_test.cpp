// Faults planted in the kernels of experts and their routers (planted.h).
#include "base/random.h"
#include "kernels/gpu/launch_experts.h"
#include "planted.h"

namespace strata::gpu_tests {
namespace {

// Pairs of tokens and experts, sorted as the kernels do it.
struct Lists {
  std::vector<int32_t> ids, slots, tokens, offsets, tiles;

  Lists(int count, int experts, int per_token) {
    for (int i = 0; i < count; ++i) ids.push_back((i * i + i / 3) % experts);
    for (int expert = 0; expert < experts; ++expert) {
      offsets.push_back(static_cast<int32_t>(slots.size()));
      for (int i = 0; i < count; ++i) {
        if (ids[static_cast<size_t>(i)] != expert) continue;
        slots.push_back(i);
        tokens.push_back(i / per_token);
      }
      for (auto at = offsets.back(); at < std::ssize(slots); at += 128)
        tiles.insert(tiles.end(), {expert, at});
    }
    offsets.insert(offsets.end(), 2, static_cast<int32_t>(slots.size()));
  }
};

template <typename T>
std::vector<double> doubles_of(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

// The lists of pairs in two chunks.
Outcome lists(const std::string& settings) {
  constexpr int kCount = 1100, kExperts = 5;
  Bench bench(settings);
  const Lists wanted(kCount, kExperts, 2);
  const gpu::ExpertsPlan plan = gpu::plan_experts(kCount, kExperts);
  gpu::ExpertsSortArgs args{};
  args.ids = bench.upload(wanted.ids);
  args.counts = bench.output<int32_t>(static_cast<size_t>(plan.chunks) * (kExperts + 1));
  args.offsets = bench.output<int32_t>(kExperts + 2);
  args.tiles = bench.output<int32_t>(static_cast<size_t>(plan.tile_count) * 2);
  args.slots = bench.output<int32_t>(kCount);
  args.tokens = bench.output<int32_t>(kCount);
  args.count = kCount, args.experts = kExperts, args.per_token = 2, args.token_count = kCount / 2;
  args.chunks = plan.chunks, args.tile_count = plan.tile_count;
  for (const gpu::KernelLaunch& kernel : plan.sort) bench.start(kernel, args);
  return bench.outcome(args.slots, doubles_of(wanted.slots));
}

// Rows of tokens by their experts' matrices, fp32 or bf16; widths end within a tile.
template <typename T>
Outcome product(const std::string& settings) {
  constexpr int kCount = 150, kExperts = 2, kN = 72, kK = 40;
  constexpr bool kHalf = std::is_same_v<T, BF16>;
  Bench bench(settings);
  const Lists lists(kCount, kExperts, 1);
  gpu::ExpertsPlan plan;
  plan.tile_count = static_cast<int32_t>(lists.tiles.size() / 2);
  const std::vector<float> x = values_of(kCount * kK, 1), w = values_of(kExperts * kN * kK, 2);
  auto* const y = bench.output<T>(kCount * kN);
  gpu::ExpertsArgs args{};
  if constexpr (kHalf) {
    args.gemm.a = bench.upload_bf16(x), args.gemm.b = bench.upload_bf16(w);
  } else {
    args.gemm.a = bench.upload(x), args.gemm.b = bench.upload(w);
  }
  args.gemm.c = y;
  args.gemm.a_stride = args.gemm.b_stride = args.gemm.k = kK;
  args.gemm.c_stride = args.gemm.n = kN, args.gemm.splits = 1;
  args.a_rows = bench.upload(lists.tokens), args.c_rows = bench.upload(lists.slots);
  args.tiles = bench.upload(lists.tiles), args.offsets = bench.upload(lists.offsets);
  args.expert_stride = kN * kK, args.experts = kExperts, args.tile_count = plan.tile_count;
  constexpr DType kType = kHalf ? DType::kBF16 : DType::kF32;
  bench.start(kHalf ? gpu::experts_rows(gpu::GemmLayout::kNT, kType, plan, kN)
                    : gpu::expert_product(gpu::GemmLayout::kNT, kType, kType, plan, kN),
              args);
  std::vector<double> expected;
  for (size_t row = 0; row < kCount; ++row) {
    const auto expert = static_cast<size_t>(lists.ids[row]);
    for (size_t n = 0; n < kN; ++n) {
      double sum = 0;
      for (size_t k = 0; k < kK; ++k)
        sum += static_cast<double>(x[row * kK + k]) * static_cast<double>(w[(expert * kN + n) * kK + k]);
      expected.push_back(sum);
    }
  }
  return bench.outcome(y, expected);
}

// Three experts of 40, in two of four groups. All logits of a token's experts occur twice: the first is chosen.
Outcome routes(const std::string& settings) {
  constexpr int kTokens = 3, kExperts = 40, kK = 3;
  Bench bench(settings);
  std::vector<float> logits;
  std::vector<double> expected;
  for (int token = 0; token < kTokens; ++token) {
    for (int e = 0; e < kExperts; ++e) logits.push_back(static_cast<float>((e / 2 * 7 + token) % 20) / 5);
    // Groups of ten: the two with the greatest logit, then the experts in descending order.
    std::vector<int> order(kExperts);
    for (int e = 0; e < kExperts; ++e) order[static_cast<size_t>(e)] = e;
    const auto logit = [&](int e) { return logits[static_cast<size_t>(token * kExperts + e)]; };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logit(a) > logit(b); });
    std::vector<int> groups;
    for (const int e : order)
      if (groups.size() < 2 && std::find(groups.begin(), groups.end(), e / 10) == groups.end())
        groups.push_back(e / 10);
    int chosen = 0;
    for (const int e : order) {
      if (chosen == kK || std::find(groups.begin(), groups.end(), e / 10) == groups.end()) continue;
      expected.push_back(e);
      ++chosen;
    }
  }
  gpu::RouteArgs args{};
  args.logits = bench.upload(logits);
  args.ids = bench.output<int32_t>(kTokens * kK);
  args.weights = bench.output<float>(kTokens * kK);
  args.of_groups = bench.output<float>(kTokens * 2 * 4);
  args.tokens = kTokens, args.experts = kExperts, args.k = kK, args.scale = 1;
  args.groups = 4, args.kept_groups = 2;
  bench.start(gpu::router("route", kTokens), args);
  return bench.outcome(args.ids, expected);
}

// Probabilities of two groups of 70 tokens, in two parts each.
Outcome sums(const std::string& settings) {
  constexpr int kGroups = 2, kRows = 70, kExperts = 6;
  Bench bench(settings);
  const std::vector<float> logits = values_of(kGroups * kRows * kExperts, 1);
  std::vector<int32_t> ids;
  for (int i = 0; i < kGroups * kRows; ++i) ids.push_back(i % kExperts);
  const gpu::RouterSumsPlan plan = gpu::router_sums(kGroups, kRows, kExperts);
  gpu::RouterSumsArgs args{};
  args.parts = bench.output<float>(static_cast<size_t>(plan.parts_bytes) / sizeof(float));
  args.probabilities = bench.output<float>(kGroups * kExperts);
  args.counts = bench.output<float>(kGroups * kExperts);
  args.logits = bench.upload(logits), args.ids = bench.upload(ids);
  args.groups = kGroups, args.rows = kRows, args.experts = kExperts, args.k = args.sequence = 1;
  args.part_count = static_cast<int32_t>(plan.part_count);
  bench.start(plan.parts, args);
  bench.start(plan.sum, args);
  std::vector<double> expected(kGroups * kExperts);
  for (size_t token = 0; token < kGroups * kRows; ++token) {
    double all = 0;
    for (size_t e = 0; e < kExperts; ++e) all += std::exp(static_cast<double>(logits[token * kExperts + e]));
    for (size_t e = 0; e < kExperts; ++e)
      expected[token / kRows * kExperts + e] +=
          std::exp(static_cast<double>(logits[token * kExperts + e])) / all;
  }
  return bench.outcome(args.probabilities, expected);
}

// Experts that take two pairs of each group of 20.
Outcome capacity(const std::string& settings) {
  constexpr int kCount = 60, kExperts = 4, kGroup = 20, kCapacity = 2;
  Bench bench(settings);
  const Lists lists(kCount, kExperts, 1);
  gpu::LimitExpertsArgs args{};
  args.kept = bench.output<int32_t>(kCount);
  args.ids = bench.upload(lists.ids), args.weights = bench.upload(values_of(kCount, 1));
  args.slots = bench.upload(lists.slots), args.offsets = bench.upload(lists.offsets);
  args.count = kCount, args.experts = kExperts, args.per_token = 1, args.of_group = kGroup;
  args.capacity = kCapacity;
  bench.start(gpu::limit_experts(kCount), args);
  std::vector<double> expected;
  std::vector<int> taken;
  for (int i = 0; i < kCount; ++i) {
    if (i % kGroup == 0) taken.assign(kExperts, 0);
    const int32_t expert = lists.ids[static_cast<size_t>(i)];
    expected.push_back(taken[static_cast<size_t>(expert)]++ < kCapacity ? expert : -1);
  }
  return bench.outcome(args.kept, expected);
}

// Noise whose random numbers are the processor's.
Outcome noise(const std::string& settings) {
  constexpr int kRows = 3, kColumns = 10;
  Bench bench(settings);
  const std::vector<float> x = values_of(kRows * kColumns, 1);
  const std::vector<int32_t> places{7, 0, 7, 1, 900, 5};
  auto* const y = bench.output<float>(kRows * kColumns);
  bench.start(gpu::jitter(kRows, kColumns), gpu::JitterArgs{.y = y,
                                                            .x = bench.upload(x),
                                                            .places = bench.upload(places),
                                                            .rows = kRows,
                                                            .columns = kColumns,
                                                            .eps = 0.5f,
                                                            .stream = 3});
  std::vector<double> expected;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t row = i / kColumns, column = i % kColumns;
    const auto bits = philox({.stream = 3}, static_cast<uint64_t>(places[2 * row + 1]) * 3 + column / 4,
                             static_cast<uint32_t>(places[2 * row]));
    expected.push_back(static_cast<double>(x[i] * (0.5f + uniform_float(bits[column % 4]))));
  }
  return bench.outcome(y, expected);
}

class PlantedExperts : public Planted {};

TEST_F(PlantedExperts, CleanRuns) {
  const std::pair<const char*, Subject> kSubjects[] = {{"lists", lists},
                                                       {"fp32 matmul", product<float>},
                                                       {"bf16 matmul", product<BF16>},
                                                       {"routes", routes},
                                                       {"sums", sums},
                                                       {"capacity", capacity},
                                                       {"noise", noise}};
  for (const auto& [name, subject] : kSubjects) {
    for (const char* seed : {"seed=1", "seed=2"}) {
      const Outcome outcome = subject(seed);
      EXPECT_EQ(outcome.violation, "") << name;
      EXPECT_LE(outcome.error, kTolerance) << name;
    }
  }
}

TEST_F(PlantedExperts, MissingBarriers) {
  const std::string barrier = "bar\\.sync";
  expect_found(lists, "experts_slots", barrier, "", {"race", "unwritten"}, "experts_sort.cu");
  expect_found(lists, "experts_place", barrier, "", {"race", "unwritten"}, "experts_sort.cu");
  expect_found(product<float>, "expert_product_nt_f32_f32", barrier, "", {"race", "unwritten"});
  expect_found(sums, "router_sums_parts", barrier, "", {"race", "unwritten"}, "router_loss.cu");
  expect_found(routes, "route", "bar\\.warp\\.sync", "", {"race", "unwritten"}, "router.cu");
}

TEST_F(PlantedExperts, RowsOfAnotherExpert) {
  // A tile does not end with its expert's pairs.
  expect_found(product<BF16>, "experts_nt_bf16", "min\\.s32", "max.s32", {"race", "out of bounds"});
  expect_found(product<float>, "expert_product_nt_f32_f32", "min\\.s32", "max.s32", {"race", "out of bounds"},
               "expert_products.cu");
}

TEST_F(PlantedExperts, OffByOneAtTheEndOfARow) {
  expect_found(product<float>, "expert_product_nt_f32_f32", "setp\\.ge\\.s64", "setp.gt.s64",
               {"race", "out of bounds"}, "expert_products.cu");
}

TEST_F(PlantedExperts, LastOfEqualExperts) {
  expect_found(routes, "route", "setp\\.gt\\.f32", "setp.ge.f32", {});
}

TEST_F(PlantedExperts, LostStepOfAChoice) {
  expect_found(routes, "route", "shfl\\.sync\\.bfly", "shfl.sync.idx", {});
}

TEST_F(PlantedExperts, OnePairMoreThanTheCapacity) {
  expect_found(capacity, "limit_experts", "setp\\.lt\\.s64", "setp.le.s64", {});
}

TEST_F(PlantedExperts, OtherRandomNumbers) {
  expect_found(noise, "jitter", "xor\\.b(\\d+)", "or.b$1", {});
}

}  // namespace
}  // namespace strata::gpu_tests
