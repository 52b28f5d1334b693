// Flash attention of 8,192 tokens; sampled rows and keys against the formula.
#include <algorithm>
#include <cmath>

#include "bench.h"

namespace strata::gpu_bench {
namespace {

constexpr DType kBF16 = DType::kBF16;

struct Problem {
  int64_t batch, length, heads, kv_heads, dim;
  bool causal = true;
  int64_t document = 0;
};

struct Attention {
  Bench& bench;
  Problem p;
  RandomArray q, k, v, dout;
  double scale;

  int64_t begin(int64_t i) const { return p.document > 0 ? i / p.document * p.document : 0; }
  int64_t end(int64_t i) const { return p.causal ? i + 1 : p.document > 0 ? std::min(p.length, begin(i) + p.document) : p.length; }
  int64_t q_at(int64_t b, int64_t h, int64_t i) const { return ((b * p.length + i) * p.heads + h) * p.dim; }
  int64_t k_at(int64_t b, int64_t h, int64_t j) const { return ((b * p.length + j) * p.kv_heads + h) * p.dim; }
  double product(const RandomArray& x, int64_t at, const RandomArray& y, int64_t to) const {
    double sum = 0;
    for (int64_t c = 0; c < p.dim; ++c) sum += x[at + c] * y[to + c];
    return sum;
  }

  void check_row(const gpu::AttentionArgs& args, int64_t b, int64_t h, int64_t i, Check& forward, Check& backward) const {
    const int64_t kv = h / (p.heads / p.kv_heads), at = q_at(b, h, i);
    std::vector<double> scores;
    double most = -INFINITY, total = 0, drift = 0, size = 0;
    for (int64_t j = begin(i); j < end(i); ++j) scores.push_back(scale * product(q, at, k, k_at(b, kv, j)));
    for (const double s : scores) most = std::max(most, s);
    for (double& s : scores) total += s = std::exp(s - most);
    std::vector<double> out(static_cast<size_t>(p.dim)), dq(static_cast<size_t>(p.dim));
    for (int64_t j = begin(i); j < end(i); ++j) {
      for (int64_t c = 0; c < p.dim; ++c)
        out[static_cast<size_t>(c)] += scores[static_cast<size_t>(j - begin(i))] / total * v[k_at(b, kv, j) + c];
    }
    for (int64_t c = 0; c < p.dim; ++c) drift += out[static_cast<size_t>(c)] * dout[at + c], size += std::pow(out[static_cast<size_t>(c)], 2);
    size = 2 * std::sqrt(size / static_cast<double>(p.dim));
    for (int64_t c = 0; c < p.dim; ++c) forward.value(bench.read(kBF16, args.out, at + c), out[static_cast<size_t>(c)], size);
    forward.value(bench.read(DType::kF32, args.lse, (b * p.heads + h) * p.length + i), most + std::log(total), 1);
    for (int64_t j = begin(i); j < end(i); ++j) {
      const double ds = scale * scores[static_cast<size_t>(j - begin(i))] / total * (product(dout, at, v, k_at(b, kv, j)) - drift);
      for (int64_t c = 0; c < p.dim; ++c) dq[static_cast<size_t>(c)] += ds * k[k_at(b, kv, j) + c];
    }
    size = 0;
    for (const double value : dq) size += value * value;
    size = 2 * std::sqrt(size / static_cast<double>(p.dim));
    for (int64_t c = 0; c < p.dim; ++c) backward.value(bench.read(kBF16, args.dq, at + c), dq[static_cast<size_t>(c)], size);
  }

  // By the lse and delta that the device has.
  void check_key(const gpu::AttentionArgs& args, int64_t b, int64_t kv, int64_t j, Check& check) const {
    std::vector<double> dk(static_cast<size_t>(p.dim)), dv(static_cast<size_t>(p.dim));
    std::vector<float> lse(static_cast<size_t>(p.length)), delta(static_cast<size_t>(p.length));
    const int64_t group = p.heads / p.kv_heads;
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      bench.driver().read(lse.data(), args.lse + (b * p.heads + h) * p.length, p.length * 4);
      bench.driver().read(delta.data(), args.delta + (b * p.heads + h) * p.length, p.length * 4);
      for (int64_t i = 0; i < p.length; ++i) {
        if (j < begin(i) || j >= end(i)) continue;
        const int64_t at = q_at(b, h, i);
        const double weight = std::exp(scale * product(q, at, k, k_at(b, kv, j)) - static_cast<double>(lse[static_cast<size_t>(i)]));
        const double ds = scale * weight * (product(dout, at, v, k_at(b, kv, j)) - static_cast<double>(delta[static_cast<size_t>(i)]));
        for (int64_t c = 0; c < p.dim; ++c) {
          dk[static_cast<size_t>(c)] += ds * q[at + c];
          dv[static_cast<size_t>(c)] += weight * dout[at + c];
        }
      }
    }
    for (const auto& [is, expected] : {std::pair<void*, const std::vector<double>&>{args.dk, dk}, {args.dv, dv}}) {
      double size = 0;
      for (const double value : expected) size += value * value;
      size = 2 * std::sqrt(size / static_cast<double>(p.dim));
      for (int64_t c = 0; c < p.dim; ++c) check.value(bench.read(kBF16, is, k_at(b, kv, j) + c), expected[static_cast<size_t>(c)], size);
    }
  }
};

void run(Bench& bench, const Problem& p) {
  Driver& driver = bench.driver();
  const int64_t rows = p.batch * p.length, n = rows * p.heads * p.dim, kv_n = rows * p.kv_heads * p.dim;
  const Attention attention{.bench = bench,
                            .p = p,
                            .q = bench.random(kBF16, n, 2),
                            .k = bench.random(kBF16, kv_n, 2),
                            .v = bench.random(kBF16, kv_n),
                            .dout = bench.random(kBF16, n),
                            .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(p.dim)))};
  const gpu::AttentionShape shape{
      .batch = p.batch, .length = p.length, .kv_length = p.length, .heads = p.heads, .kv_heads = p.kv_heads, .head_dim = p.dim, .value_dim = p.dim};
  std::vector<int32_t> begins, ends;
  for (int64_t row = 0; row < rows; ++row) {
    begins.push_back(static_cast<int32_t>(attention.begin(row % p.length)));
    ends.push_back(static_cast<int32_t>(attention.end(row % p.length)));
  }
  int32_t* const begin = driver.allocate<int32_t>(rows * 4);
  int32_t* const end = driver.allocate<int32_t>(rows * 4);
  driver.write(begin, begins.data(), rows * 4);
  driver.write(end, ends.data(), rows * 4);
  const gpu::AttentionRangesArgs ranges{.rows = driver.allocate<int32_t>(rows * 8),
                                        .tiles = driver.allocate<int32_t>(p.batch * gpu::blocks_of(p.length, 64) * 16),
                                        .kv_begin = begin,
                                        .kv_end = end,
                                        .batch = static_cast<int32_t>(p.batch),
                                        .length = static_cast<int32_t>(p.length),
                                        .kv_length = static_cast<int32_t>(p.length),
                                        .causal = p.causal,
                                        .window = 0};
  const gpu::AttentionArgs args{.q = attention.q.at,
                                .k = attention.k.at,
                                .v = attention.v.at,
                                .out = bench.output(kBF16, n),
                                .lse = static_cast<float*>(bench.output(DType::kF32, rows * p.heads)),
                                .sinks = nullptr,
                                .rows = ranges.rows,
                                .tiles = ranges.tiles,
                                .q_stride = p.heads * p.dim,
                                .k_stride = p.kv_heads * p.dim,
                                .v_stride = p.kv_heads * p.dim,
                                .out_stride = p.heads * p.dim,
                                .batch = static_cast<int32_t>(p.batch),
                                .length = static_cast<int32_t>(p.length),
                                .kv_length = static_cast<int32_t>(p.length),
                                .heads = static_cast<int32_t>(p.heads),
                                .kv_heads = static_cast<int32_t>(p.kv_heads),
                                .head_dim = static_cast<int32_t>(p.dim),
                                .value_dim = static_cast<int32_t>(p.dim),
                                .scale = static_cast<float>(attention.scale),
                                .softcap = 0,
                                .dout = attention.dout.at,
                                .delta = static_cast<float*>(bench.output(DType::kF32, rows * p.heads)),
                                .dq = bench.output(kBF16, n),
                                .dk = bench.output(kBF16, kv_n),
                                .dv = bench.output(kBF16, kv_n)};
  const std::vector<gpu::KernelLaunch> backward_launches = gpu::attention_backward(shape);
  const auto forward = [&] { driver.launch(gpu::attention_forward(shape), args); };
  const auto backward = [&] {
    for (const gpu::KernelLaunch& one : backward_launches) driver.launch(one, args);
  };
  const auto all = [&] {
    driver.launch(gpu::attention_ranges(shape), ranges);
    forward();
    backward();
  };
  all();
  Check rows_check(2e-2), gradients_check(4e-2);
  for (const int64_t sample : {0, 1, 2, 3}) {
    const auto pick = [&](uint64_t of, int64_t limit) { return static_cast<int64_t>(random_bits(static_cast<uint64_t>(sample), of) % limit); };
    const int64_t b = pick(11, p.batch), h = pick(12, p.heads), kv = pick(13, p.kv_heads);
    attention.check_row(args, b, h, sample == 0 ? p.length - 1 : pick(14, p.length), rows_check, gradients_check);
    if (sample < 2) attention.check_key(args, b, kv, p.length - 1 - pick(15, std::min<int64_t>(p.length, 1000)), gradients_check);
  }
  const std::string name = std::to_string(p.batch) + "x" + std::to_string(p.length) + " heads " + std::to_string(p.heads) + "/" +
                           std::to_string(p.kv_heads) + "x" + std::to_string(p.dim) + (p.causal ? " causal" : "") +
                           (p.document > 0 ? " documents " + std::to_string(p.document) : "");
  bench.verify("attention_forward", name, rows_check, {{kBF16, args.out, n}, {DType::kF32, args.lse, rows * p.heads}}, all);
  bench.verify("attention_backward", name, gradients_check, {{kBF16, args.dq, n}, {kBF16, args.dk, kv_n}, {kBF16, args.dv, kv_n}}, all);
  double pairs = 0;
  for (int64_t i = 0; i < p.length; ++i) pairs += static_cast<double>(attention.end(i) - attention.begin(i));
  const double product = 2.0 * pairs * static_cast<double>(p.batch * p.heads * p.dim);
  bench.report("attention_forward", name, gpu::attention_forward(shape).kernel, 2 * product, 0, forward);
  bench.report("attention_backward", name, "all", 5 * product, 0, backward);
  for (const gpu::KernelLaunch& one : backward_launches)
    bench.report("part of attention_backward", name, one.kernel, (one.kernel.find("keys") != std::string::npos ? 4 : 3) * product, 0,
                 [&] { driver.launch(one, args); });
  driver.free_all();
}

}  // namespace

void bench_attention(Bench& bench) {
  run(bench, {1, 8192, 32, 8, 128});
  run(bench, {4, 2048, 32, 8, 128});
  run(bench, {4, 2048, 32, 8, 128, false});
  run(bench, {1, 8192, 32, 32, 64});
  run(bench, {8, 1024, 16, 16, 64});
  run(bench, {4, 2048, 32, 8, 64});
  run(bench, {1, 8192, 32, 8, 128, true, 1024});
  run(bench, {4, 2048, 16, 16, 96});
  run(bench, {4, 2048, 16, 8, 256});
}

}  // namespace strata::gpu_bench
