// Expert GEMMs at 8,192 tokens: y of every token–expert pair, the gradient of x, and that of the weights.
// Checks sampled elements against sums.
#include <cmath>

#include "bench.h"

namespace strata::gpu_bench {
namespace {

constexpr DType kBF16 = DType::kBF16, kF32 = DType::kF32;

struct Problem {
  int64_t tokens, per_token, experts, outputs, inputs;
};

void run(Bench& bench, const Problem& p) {
  Driver& driver = bench.driver();
  const int64_t slots = p.tokens * p.per_token, m = p.outputs, k = p.inputs;
  constexpr uint64_t kSeed = 991;
  const auto expert_of = [&](int64_t slot) {
    return random_id(static_cast<uint64_t>(slot), kSeed, static_cast<uint32_t>(p.experts));
  };
  const RandomArray x = bench.random(kBF16, p.tokens * k), dy = bench.random(kBF16, slots * m),
                    w = bench.random(kBF16, p.experts * m * k);
  const gpu::ExpertsPlan plan = gpu::plan_experts(slots, p.experts);
  const gpu::ExpertsSortArgs sort{.ids = bench.ids(slots, static_cast<uint32_t>(p.experts), kSeed),
                                  .token_offsets = nullptr,
                                  .counts = driver.allocate<int32_t>(plan.chunks * (p.experts + 1) * 4),
                                  .offsets = driver.allocate<int32_t>((p.experts + 2) * 4),
                                  .tiles = driver.allocate<int32_t>(plan.tile_count * 8),
                                  .slots = driver.allocate<int32_t>(slots * 4),
                                  .tokens = driver.allocate<int32_t>(slots * 4),
                                  .count = static_cast<int32_t>(slots),
                                  .experts = static_cast<int32_t>(p.experts),
                                  .per_token = static_cast<int32_t>(p.per_token),
                                  .token_count = static_cast<int32_t>(p.tokens),
                                  .chunks = plan.chunks,
                                  .tile_count = plan.tile_count,
                                  .sequence = 0,
                                  .idle = 0};
  const gpu::ExpertsArgs forward{.gemm = {.a = x.at,
                                          .b = w.at,
                                          .c = bench.output(kBF16, slots * m),
                                          .bias = nullptr,
                                          .a_stride = k,
                                          .b_stride = k,
                                          .c_stride = m,
                                          .m = 0,
                                          .n = static_cast<int32_t>(m),
                                          .k = static_cast<int32_t>(k),
                                          .accumulate = 0,
                                          .splits = 1,
                                          .split_depth = 0},
                                 .a_rows = sort.tokens,
                                 .b_rows = nullptr,
                                 .c_rows = sort.slots,
                                 .tiles = sort.tiles,
                                 .offsets = sort.offsets,
                                 .expert_stride = m * k,
                                 .experts = sort.experts,
                                 .tile_count = plan.tile_count};
  gpu::ExpertsArgs input = forward;
  input.gemm.a = dy.at, input.gemm.a_stride = m, input.gemm.c = bench.output(kF32, slots * k),
  input.gemm.c_stride = k;
  input.gemm.n = static_cast<int32_t>(k), input.gemm.k = static_cast<int32_t>(m), input.a_rows = sort.slots;
  gpu::ExpertsArgs weights = input;
  weights.gemm.b = x.at, weights.gemm.c = bench.output(kF32, p.experts * m * k);
  weights.gemm.m = static_cast<int32_t>(m), weights.b_rows = sort.tokens;
  const gpu::ExpertsSumArgs sum{.out = bench.output(kBF16, p.tokens * k),
                                .parts = static_cast<float*>(input.gemm.c),
                                .token_offsets = nullptr,
                                .per_token = sort.per_token,
                                .columns = static_cast<int32_t>(k)};
  const auto sort_slots = [&] {
    for (const gpu::KernelLaunch& one : plan.sort) driver.launch(one, sort);
  };
  const auto run_forward = [&] {
    driver.launch(gpu::experts_rows(gpu::GemmLayout::kNT, kBF16, plan, m), forward);
  };
  const auto run_sum = [&] { driver.launch(gpu::experts_sum(kBF16, p.tokens, k), sum); };
  const auto run_input = [&] {
    driver.launch(gpu::experts_rows(gpu::GemmLayout::kNN, kF32, plan, k), input);
    run_sum();
  };
  const auto run_weights = [&] { driver.launch(gpu::experts_weights(p.experts, m, k), weights); };
  const auto all = [&] {
    sort_slots();
    run_forward();
    run_input();
    run_weights();
  };
  all();
  Check forward_check(5e-3), input_check(5e-3), weights_check(1e-4);
  for (uint64_t sample = 0; sample < 60; ++sample) {
    const auto pick = [&](uint64_t of, int64_t limit) {
      return static_cast<int64_t>(random_bits(sample, of)) % limit;
    };
    const int64_t slot = sample == 0 ? slots - 1 : pick(1, slots), i = pick(2, m), j = pick(3, k),
                  token = slot / p.per_token;
    double y = 0, dx = 0;
    for (int64_t c = 0; c < k; ++c) y += w[(expert_of(slot) * m + i) * k + c] * x[token * k + c];
    for (int64_t s = token * p.per_token; s < (token + 1) * p.per_token; ++s) {
      for (int64_t c = 0; c < m; ++c) dx += w[(expert_of(s) * m + c) * k + j] * dy[s * m + c];
    }
    forward_check.value(bench.read(kBF16, forward.gemm.c, slot * m + i), y,
                        std::sqrt(static_cast<double>(k)) / 3);
    input_check.value(bench.read(kBF16, sum.out, token * k + j), dx,
                      std::sqrt(static_cast<double>(m * p.per_token)) / 3);
    if (sample >= 20) continue;
    const int64_t expert = pick(4, p.experts);
    double dw = 0;
    for (int64_t s = 0; s < slots; ++s) {
      if (expert_of(s) == expert) dw += dy[s * m + i] * x[s / p.per_token * k + j];
    }
    weights_check.value(bench.read(kF32, weights.gemm.c, (expert * m + i) * k + j), dw,
                        std::sqrt(static_cast<double>(slots / p.experts)) / 3);
  }
  const std::string shape = std::to_string(p.tokens) + "x" + std::to_string(p.per_token) + " of " +
                            std::to_string(p.experts) + " " + std::to_string(m) + "x" + std::to_string(k);
  bench.verify("experts_forward", shape, forward_check, {{kBF16, forward.gemm.c, slots * m}}, all);
  bench.verify("experts_grad_input", shape, input_check, {{kBF16, sum.out, p.tokens * k}}, all);
  bench.verify("experts_grad_weight", shape, weights_check, {{kF32, weights.gemm.c, p.experts * m * k}}, all);
  const double flops = 2.0 * static_cast<double>(slots) * static_cast<double>(m) * static_cast<double>(k);
  bench.report("experts_sort", shape, "three kernels", 0, 0, sort_slots);
  bench.report("experts_forward", shape, "experts_nt_bf16", flops, 0, run_forward);
  bench.report("experts_grad_input", shape, "experts_nn_f32, experts_sum_bf16", flops, 0, run_input);
  bench.report("part of experts_grad_input", shape, "experts_sum_bf16", 0,
               static_cast<double>(slots * k * 4 + p.tokens * k * 2), run_sum);
  bench.report("experts_grad_weight", shape, "experts_tn_f32", flops, 0, run_weights);
  driver.free_all();
}

}  // namespace

void bench_experts(Bench& bench) {
  run(bench, {8192, 2, 8, 7168, 4096});
  run(bench, {8192, 8, 64, 1024, 2048});
}

}  // namespace strata::gpu_bench
