// Statistics, samples, digests, sums of partial sums and the table of angles against formulas in fp64.
#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/kernel_test.h"
#include "ops/statistics/statistics.h"

namespace strata::gpu_tests {
namespace {

constexpr DType kBF16 = DType::kBF16, kF32 = DType::kF32;
constexpr DType kTypes[] = {kBF16, kF32};
constexpr uint32_t kSeeds[] = {1, 2};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Values = std::vector<double>;
using Numbers = std::vector<double>;  // of a table

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}
// With zeros, NaN, infinities and subnormal numbers if `odd`.
Values values_of(DType dtype, int64_t n, uint32_t seed, bool odd = false) {
  Values values = rounded_to(dtype, random_values(at(n), seed));
  for (int64_t i = 0; odd && i < n; ++i) {
    double& value = values[at(i)];
    switch ((i + seed) % 17) {
      case 3:
        value = i % 2 == 0 ? 0.0 : -0.0;
        break;
      case 5:
        value = i % 2 == 0 ? 0x1p-130 : -0x1p-128;
        break;
      case 11:
        value = std::numeric_limits<double>::quiet_NaN();
        break;
      case 13:
        value = i % 2 == 0 ? kInfinity : -kInfinity;
        break;
      default:
        break;
    }
  }
  return values;
}

class GpuState : public KernelTest {
 protected:
  const void* upload_values(DType dtype, const Values& values, int64_t skipped) {
    Values all(at(skipped), 0.0);
    all.insert(all.end(), values.begin(), values.end());
    return static_cast<const std::byte*>(upload(dtype, all)) + skipped * size_of(dtype);
  }
  float* floats(const Values& values, int64_t skipped = 0) {
    return upload_all(std::vector<float>(values.begin(), values.end()), skipped);
  }
};

Numbers joined(Numbers a, const Numbers& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] = i == 2 || i == 3 ? std::max(a[i], b[i]) : a[i] + b[i];
  return a;
}
void take(Numbers& to, double x, double largest) {
  ++to[8];
  if (!std::isfinite(x)) {
    ++to[4];
    return;
  }
  const double size = std::fabs(x);
  to[0] += x;
  to[1] += x * x;
  to[2] = std::max(to[2], size);
  if (size == 0) ++to[5];
  if (largest > 0 && size >= largest) ++to[6];
  if (size > 0 && size < 0x1p-126) ++to[7];
}
void expect_table(const Numbers& numbers, const Numbers& expected, const std::string& what) {
  expect_near({numbers.begin(), numbers.begin() + 2}, {expected.begin(), expected.begin() + 2}, 1e-12, 1,
              what);
  EXPECT_NEAR(numbers[3], expected[3], 1e-12 * expected[3]) << what;
  for (const size_t exact : {2, 4, 5, 6, 7, 8}) EXPECT_EQ(numbers[exact], expected[exact]) << what << exact;
}

TEST_P(GpuState, Statistics) {
  struct Shape {
    int64_t rows, columns, begin, end, row;
  };
  const Shape shapes[] = {{1, 1, 0, 1, 0},     {7, 33, 0, 33, 0},     {0, 8, 0, 8, 0},
                          {5, 0, 0, 0, 0},     {13, 24, 0, 24, 8},    {9, 40, 24, 32, 4},
                          {9, 40, 24, 32, 0},  {3, 40, 5, 5, 0},      {4, 77, 3, 70, 0},
                          {4, 77, 10, 50, 20}, {1, 9000, 0, 9000, 0}, {40, 1025, 1, 1025, 512}};
  for (const uint32_t seed : kSeeds) {
    for (const DType dtype : kTypes) {
      for (const auto& [rows, columns, begin, end, row] : shapes) {
        for (const int64_t skipped : {0, 1}) {
          restart(seed);
          const Values x = values_of(dtype, rows * columns, seed, true);
          const double largest = 0.5;
          Numbers expected(9);
          for (int64_t r = 0; r < rows; ++r) {
            double before = expected[1];
            for (int64_t c = begin; c < end; ++c) {
              take(expected, x[at(r * columns + c)], largest);
              if (row == 0 || (c + 1 - begin) % row != 0) continue;
              expected[3] = std::max(expected[3], expected[1] - before);
              before = expected[1];
            }
          }
          const gpu::StatisticsPlan plan = gpu::statistics(dtype, rows, columns);
          gpu::StatisticsArgs args{.table = output_of<double>(9, "table"),
                                   .x = upload_values(dtype, x, skipped),
                                   .mask = upload_all<int64_t>({0b100}),
                                   .parts = output_of<double>(plan.parts_bytes / 8, "parts"),
                                   .rows = rows,
                                   .columns = columns,
                                   .begin = begin,
                                   .end = end,
                                   .row = row,
                                   .group = 2,
                                   .first = 1,
                                   .accumulate = 0,
                                   .largest = static_cast<float>(largest)};
          const auto measure = [&] {
            launch(plan.parts, args);
            launch(plan.sum, args);
          };
          const std::string what = fmt::format("{} {}x{} [{}, {}) by {} after {}: ", name_of(dtype), rows,
                                               columns, begin, end, row, skipped);
          measure();
          const Numbers once = read(args.table, 9);
          expect_table(once, expected, what);
          measure();
          EXPECT_EQ(read(args.table, 9), once) << what;
          // Off, and later than the first micro-batch: neither parts nor table is touched.
          double* const parts = args.parts;
          args.parts = output_of<double>(plan.parts_bytes / 8, "parts that must stay unwritten");
          args.group = 1;
          measure();
          args.group = 2, args.accumulate = 1;
          measure();
          EXPECT_EQ(read(args.table, 9), once) << what;
          EXPECT_THROW(read(args.parts, 1), Violation) << what;
          args.parts = parts;
          args.first = 0;
          measure();
          EXPECT_EQ(read(args.table, 9), joined(once, once)) << what;
        }
      }
    }
  }
}

TEST_P(GpuState, StatisticsOfManyElements) {
  restart();
  const int64_t rows = 3, columns = 20001;
  for (const int64_t row : {0, 6667}) {
    const Values x = values_of(kF32, rows * columns, 3);
    const gpu::StatisticsPlan plan = gpu::statistics(kF32, rows, columns);
    EXPECT_GT(plan.parts.grid_x, 1u);
    const gpu::StatisticsArgs args{.table = output_of<double>(9),
                                   .x = upload(kF32, x),
                                   .mask = upload_all<int64_t>({int64_t{1} << 62}),
                                   .parts = output_of<double>(plan.parts_bytes / 8),
                                   .rows = rows,
                                   .columns = columns,
                                   .begin = 0,
                                   .end = columns,
                                   .row = row,
                                   .group = 62,
                                   .first = 0,
                                   .accumulate = 0,
                                   .largest = 0};
    launch(plan.parts, args);
    launch(plan.sum, args);
    Numbers expected(9);
    double before = 0;
    for (int64_t i = 0; i < rows * columns; ++i) {
      take(expected, x[at(i)], 0);
      if (row == 0 || (i + 1) % row != 0) continue;
      expected[3] = std::max(expected[3], expected[1] - before);
      before = expected[1];
    }
    expect_table(read(args.table, 9), expected, "many");
  }
}

TEST_P(GpuState, Samples) {
  for (const uint32_t seed : kSeeds) {
    for (const int64_t n : {1, 35, 3000, 3 * 4096 + 5}) {
      restart(seed);
      const int64_t m = std::min(n, ops::kMostSampled);
      const Values before = values_of(kF32, n, seed, true), after = values_of(kF32, n, seed + 7, true);
      gpu::SampleArgs args{.sample = output_of<float>(m),
                           .x = floats(before, 1),
                           .table = output_of<double>(9),
                           .mask = upload_all<int64_t>({2}),
                           .n = n,
                           .m = m,
                           .group = 0,
                           .accumulate = 0};
      launch(gpu::take_sample(m), args);
      launch(gpu::sample_change(m), args);
      EXPECT_THROW(read(args.sample, 1), Violation);
      EXPECT_THROW(read(args.table, 1), Violation);
      args.group = 1;
      launch(gpu::take_sample(m), args);
      Numbers expected(9);
      const std::vector<float> sample = read(args.sample, m);
      for (int64_t i = 0; i < m; ++i) {
        const auto taken = static_cast<float>(before[at(i * n / m)]);
        EXPECT_EQ(std::bit_cast<uint32_t>(sample[at(i)]), std::bit_cast<uint32_t>(taken)) << i;
        take(expected, after[at(i * n / m)] - double{taken}, 0);
      }
      expected[7] = 0;
      args.x = floats(after);
      launch(gpu::sample_change(m), args);
      const Numbers once = read(args.table, 9);
      expect_table(once, expected, fmt::format("change of {}: ", n));
      args.accumulate = 1;
      launch(gpu::sample_change(m), args);
      EXPECT_EQ(read(args.table, 9), joined(once, once));
    }
  }
}

TEST_P(GpuState, SquaresAndDigests) {
  for (const uint32_t seed : kSeeds) {
    for (const int64_t n : {1, 252, 2 * 65536 + 3}) {
      for (const int64_t skipped : {0, 1}) {
        restart(seed);
        const Values x = values_of(kF32, n, seed);
        const int64_t blocks = (n + ops::kDigestBlock - 1) / ops::kDigestBlock;
        const gpu::DigestArgs args{.partials = output_of<double>(blocks),
                                   .digests = output_of<int64_t>(blocks),
                                   .x = floats(x, skipped),
                                   .n = n};
        launch(gpu::squares_and_digests(n), args);
        Values squares(at(blocks));
        std::vector<int64_t> digests(at(blocks));
        for (int64_t i = 0; i < n; ++i) {
          const auto narrow = static_cast<float>(x[at(i)]);
          const auto word = std::bit_cast<uint32_t>(narrow);
          const int64_t block = i / ops::kDigestBlock;
          squares[at(block)] += x[at(i)] * x[at(i)];
          const uint64_t more = word * (2 * static_cast<uint64_t>(i % ops::kDigestBlock) + 1);
          digests[at(block)] = static_cast<int64_t>(static_cast<uint64_t>(digests[at(block)]) + more);
        }
        const Values partials = read(args.partials, blocks);
        expect_near(partials, squares, 1e-6, 1, "squares");
        EXPECT_EQ(read(args.digests, blocks), digests);
        // The same bits as without digests.
        const gpu::SquaresArgs plain{.partials = output_of<double>(blocks), .x = args.x, .n = n};
        launch(gpu::sum_of_squares(n), plain);
        EXPECT_EQ(read(plain.partials, blocks), partials);
      }
    }
  }
}

TEST_P(GpuState, JoinDigests) {
  for (const uint32_t seed : kSeeds) {
    restart(seed);
    // More lists than a launch takes, empty ones among them; the longest has more than a block's threads.
    std::vector<std::vector<int64_t>> lists;
    uint64_t digest = 0, place = 0, state = seed;
    for (int64_t list = 0; list < 2 * gpu::kMostLists + 1; ++list) {
      lists.emplace_back();
      for (int64_t i = 0; i < (list == 50 ? 1500 : list % 4); ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        lists.back().push_back(static_cast<int64_t>(state));
        digest += state * ops::factor_of_digest(place++);
      }
    }
    gpu::JoinDigestsArgs args{};
    args.digest = output_of<int64_t>(1);
    for (const std::vector<int64_t>& list : lists) {
      args.digests[args.lists] = upload_all(list);
      args.counts[args.lists++] = static_cast<int32_t>(list.size());
      if (args.lists < gpu::kMostLists && &list != &lists.back()) continue;
      launch(gpu::join_digests(), args);
      args.first += std::accumulate(args.counts, args.counts + args.lists, int64_t{0});
      args.lists = 0;
      args.accumulate = 1;
    }
    EXPECT_EQ(read(args.digest, 1)[0], static_cast<int64_t>(digest));
  }
}

TEST_P(GpuState, SumsOfPartials) {
  for (const uint32_t seed : kSeeds) {
    for (const int32_t lists : {0, 1, 5, gpu::kMostLists}) {
      restart(seed);
      gpu::PartialsArgs args{};
      args.sum = output_of<double>(1);
      args.lists = lists;
      double expected = 0;
      for (int32_t list = 0; list < lists; ++list) {
        const int64_t count = list == 3 ? 1000 : list % 5;
        const Values partials = random_values(at(count), seed + static_cast<uint32_t>(list));
        args.partials[list] = upload_all(partials);
        args.counts[list] = static_cast<int32_t>(count);
        for (const double value : partials) expected += value;
      }
      launch(gpu::sum_partials(), args);
      const double once = read(args.sum, 1)[0];
      EXPECT_NEAR(once, expected, 1e-12);
      launch(gpu::sum_partials(), args);
      EXPECT_EQ(read(args.sum, 1)[0], once);
      args.accumulate = 1;
      launch(gpu::sum_partials(), args);
      EXPECT_EQ(read(args.sum, 1)[0], once + once);
    }
    const gpu::RootArgs root{.norm = output_of<float>(1), .sum = upload_all<double>({2.5 * seed})};
    launch(gpu::root_of_sum(), root);
    EXPECT_EQ(read(root.norm, 1)[0], static_cast<float>(std::sqrt(2.5 * seed)));
  }
}

// The last frequency has angles beyond 2^31, which sin and cos reduce by another way.
TEST_P(GpuState, RopeTable) {
  for (const double magnitude : {1.0, 1.1}) {
    restart();
    const int64_t positions = 301;
    const Values frequencies{1, 0.1, 0.0123, 1e-4, 3e7};
    const int64_t pairs = std::ssize(frequencies);
    const gpu::RopeTableArgs args{.table = output_of<float>(positions * pairs * 2),
                                  .frequencies = upload_all(frequencies),
                                  .positions = positions,
                                  .pairs = pairs,
                                  .magnitude = magnitude};
    launch(gpu::rope_table(positions, pairs), args);
    Values expected;
    for (int64_t i = 0; i < positions * pairs; ++i) {
      const int64_t position = i / pairs;
      const double angle = static_cast<double>(position) * frequencies[at(i % pairs)];
      expected.push_back(magnitude * std::cos(angle));
      expected.push_back(magnitude * std::sin(angle));
    }
    // Half a unit in the last place of fp32.
    expect_near(download(kF32, args.table, 2 * positions * pairs), expected, 0x1p-24 * 1.001, 0x1p-20,
                "table");
  }
}

STRATA_GPU_TESTS(GpuState, "sm_80");

}  // namespace
}  // namespace strata::gpu_tests
