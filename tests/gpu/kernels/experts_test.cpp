// Grouped GEMMs of experts against sums in fp64, for both row orders of src/ops/experts.
#include <fmt/core.h>

#include <algorithm>

#include "kernels/kernel_test.h"

namespace strata::gpu_tests {
namespace {

constexpr DType kBF16 = DType::kBF16, kF32 = DType::kF32;

struct Problem {
  int64_t tokens, per_token, experts, outputs, inputs;
  bool offsets = false;  // tokens have 0, 1, 2, … pairs in turn
};

class GpuExperts : public KernelTest {
 protected:
  // Returns everything that is computed, to compare bits.
  std::vector<double> run(const Problem& p, bool check) {
    restart();
    // The pairs of each token, and the token of each pair.
    std::vector<int32_t> offsets{0}, token_of;
    for (int64_t n = 0; n < p.tokens; ++n) {
      const int64_t slots = p.offsets ? n % (2 * p.per_token) : p.per_token;
      for (int64_t s = 0; s < slots; ++s) token_of.push_back(static_cast<int32_t>(n));
      offsets.push_back(static_cast<int32_t>(token_of.size()));
    }
    const int64_t used = std::ssize(token_of), slots = used + (p.offsets ? 9 : 0);
    std::vector<int32_t> ids;
    for (const double value : random_values(static_cast<size_t>(slots), 7)) {
      // The last expert has no pair, and some pairs have no expert.
      ids.push_back(static_cast<int32_t>((value + 1) / 2 * static_cast<double>(p.experts)) - 1);
    }
    const std::vector<double> x = values(p.tokens * p.inputs, 1), dy = values(slots * p.outputs, 2),
                              w = values(p.experts * p.outputs * p.inputs, 3);

    const gpu::ExpertsPlan plan = gpu::plan_experts(slots, p.experts);
    const gpu::ExpertsSortArgs sort{
        .ids = static_cast<int32_t*>(upload(ids, "ids")),
        .token_offsets = p.offsets ? static_cast<int32_t*>(upload(offsets, "token_offsets")) : nullptr,
        .counts = output_of<int32_t>(plan.chunks * (p.experts + 1), "counts"),
        .offsets = output_of<int32_t>(p.experts + 2, "offsets"),
        .tiles = output_of<int32_t>(2 * plan.tile_count, "tiles"),
        .slots = output_of<int32_t>(slots, "slots"),
        .tokens = output_of<int32_t>(slots, "tokens"),
        .count = static_cast<int32_t>(slots),
        .experts = static_cast<int32_t>(p.experts),
        .per_token = static_cast<int32_t>(p.per_token),
        .token_count = static_cast<int32_t>(p.tokens),
        .chunks = plan.chunks,
        .tile_count = plan.tile_count,
        .sequence = 0,
        .idle = 0};
    for (const gpu::KernelLaunch& one : plan.sort) launch(one, sort);

    // y of every pair from its token, the sum over a token's pairs of the same matmul, and the gradients of x
    // and w.
    const auto m = static_cast<int32_t>(p.outputs), k = static_cast<int32_t>(p.inputs);
    void *const x_at = upload(kBF16, x, "x"), *const dy_at = upload(kBF16, dy, "dy"),
                *const w_at = upload(kBF16, w, "w");
    gpu::ExpertsArgs args{.gemm = {.a = x_at,
                                   .b = w_at,
                                   .c = output(kBF16, slots * m, "y"),
                                   .bias = nullptr,
                                   .a_stride = k,
                                   .b_stride = k,
                                   .c_stride = m,
                                   .m = 0,
                                   .n = m,
                                   .k = k,
                                   .accumulate = 0,
                                   .splits = 1,
                                   .split_depth = 0},
                          .a_rows = sort.tokens,
                          .b_rows = nullptr,
                          .c_rows = sort.slots,
                          .tiles = sort.tiles,
                          .offsets = sort.offsets,
                          .expert_stride = int64_t{m} * k,
                          .experts = sort.experts,
                          .tile_count = plan.tile_count};
    launch(gpu::experts_rows(gpu::GemmLayout::kNT, kBF16, plan, m), args);
    const std::vector<double> y = download(kBF16, args.gemm.c, slots * m);

    args.gemm.a = dy_at, args.gemm.a_stride = m, args.gemm.c = output(kF32, slots * k, "parts"),
    args.gemm.c_stride = k;
    args.gemm.n = k, args.gemm.k = m, args.a_rows = sort.slots;
    launch(gpu::experts_rows(gpu::GemmLayout::kNN, kF32, plan, k), args);
    const gpu::ExpertsSumArgs sum{.out = output(kBF16, p.tokens * k, "dx"),
                                  .parts = static_cast<float*>(args.gemm.c),
                                  .token_offsets = sort.token_offsets,
                                  .per_token = sort.per_token,
                                  .columns = k};
    launch(gpu::experts_sum(kBF16, p.tokens, k), sum);
    const std::vector<double> dx = download(kBF16, sum.out, p.tokens * k);

    const std::vector<double> old(static_cast<size_t>(p.experts * m * k), 0.5);
    args.gemm.b = x_at, args.gemm.b_stride = k, args.gemm.c = upload(kF32, old, "dw"),
    args.gemm.accumulate = 1;
    args.gemm.m = m, args.gemm.n = k, args.b_rows = sort.tokens;
    launch(gpu::experts_weights(p.experts, m, k), args);
    const std::vector<double> dw = download(kF32, args.gemm.c, p.experts * m * k);

    if (check) {
      std::vector<double> y_is(y.size()), dx_is(dx.size()), dw_is(old);
      for (int64_t slot = 0; slot < used; ++slot) {
        const int64_t expert = ids[static_cast<size_t>(slot)], token = token_of[static_cast<size_t>(slot)];
        if (expert < 0) continue;
        for (int64_t i = 0; i < m; ++i) {
          const double gradient = dy[static_cast<size_t>(slot * m + i)];
          for (int64_t j = 0; j < k; ++j) {
            const auto at = static_cast<size_t>((expert * m + i) * k + j),
                       from = static_cast<size_t>(token * k + j);
            y_is[static_cast<size_t>(slot * m + i)] += w[at] * x[from];
            dx_is[from] += w[at] * gradient;
            dw_is[at] += gradient * x[from];
          }
        }
      }
      const std::string what = fmt::format("{} tokens, {} experts", p.tokens, p.experts);
      expect_near(y, y_is, 4.1e-3, std::sqrt(static_cast<double>(k)), what + " y");
      expect_near(dx, dx_is, 4.1e-3, std::sqrt(static_cast<double>(m)), what + " dx");
      expect_near(dw, dw_is, 2e-6, std::sqrt(static_cast<double>(slots)), what + " dw");
    }
    std::vector<double> all = y;
    all.insert(all.end(), dx.begin(), dx.end());
    all.insert(all.end(), dw.begin(), dw.end());
    return all;
  }

 private:
  static std::vector<double> values(int64_t n, uint32_t seed) {
    return rounded_to(kBF16, random_values(static_cast<size_t>(n), seed));
  }
};

TEST_P(GpuExperts, Products) {
  const Problem two{.tokens = 90, .per_token = 2, .experts = 4, .outputs = 40, .inputs = 72};
  EXPECT_EQ(run(two, true), run(two, false));
  run({.tokens = 60, .per_token = 2, .experts = 3, .outputs = 136, .inputs = 24, .offsets = true}, true);
  // Two chunks of pairs, and more than one tile per expert.
  run({.tokens = 260, .per_token = 4, .experts = 5, .outputs = 8, .inputs = 16}, true);
}

STRATA_GPU_TESTS(GpuExperts, "sm_80", "sm_90a");

}  // namespace
}  // namespace strata::gpu_tests
