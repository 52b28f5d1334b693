// Flash attention of 8,192 tokens; checks sampled rows and keys against the formula.
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
  DType dtype = kBF16;
  bool sinks = false;
};

struct Attention {
  Bench& bench;
  Problem p;
  RandomArray q, k, v, dout, sinks;
  double scale;

  int64_t begin(int64_t i) const { return p.document > 0 ? i / p.document * p.document : 0; }
  int64_t end(int64_t i) const {
    return p.causal ? i + 1 : p.document > 0 ? std::min(p.length, begin(i) + p.document) : p.length;
  }
  int64_t q_at(int64_t b, int64_t h, int64_t i) const { return ((b * p.length + i) * p.heads + h) * p.dim; }
  int64_t k_at(int64_t b, int64_t h, int64_t j) const {
    return ((b * p.length + j) * p.kv_heads + h) * p.dim;
  }
  double product(const RandomArray& x, int64_t at, const RandomArray& y, int64_t to) const {
    double sum = 0;
    for (int64_t c = 0; c < p.dim; ++c) sum += x[at + c] * y[to + c];
    return sum;
  }

  void check_row(const gpu::AttentionArgs& args, int64_t b, int64_t h, int64_t i, Check& forward,
                 Check& backward) const {
    const int64_t kv = h / (p.heads / p.kv_heads), at = q_at(b, h, i);
    std::vector<double> scores;
    double most = -INFINITY, total = 0, drift = 0, size = 0;
    for (int64_t j = begin(i); j < end(i); ++j) scores.push_back(scale * product(q, at, k, k_at(b, kv, j)));
    for (const double s : scores) most = std::max(most, s);
    if (p.sinks) most = std::max(most, sinks[h]);
    for (double& s : scores) total += s = std::exp(s - most);
    if (p.sinks) total += std::exp(sinks[h] - most);
    std::vector<double> out(static_cast<size_t>(p.dim)), dq(static_cast<size_t>(p.dim));
    for (int64_t j = begin(i); j < end(i); ++j) {
      for (int64_t c = 0; c < p.dim; ++c)
        out[static_cast<size_t>(c)] +=
            scores[static_cast<size_t>(j - begin(i))] / total * v[k_at(b, kv, j) + c];
    }
    for (int64_t c = 0; c < p.dim; ++c)
      drift += out[static_cast<size_t>(c)] * dout[at + c], size += std::pow(out[static_cast<size_t>(c)], 2);
    size = 2 * std::sqrt(size / static_cast<double>(p.dim));
    for (int64_t c = 0; c < p.dim; ++c)
      forward.value(bench.read(p.dtype, args.out, at + c), out[static_cast<size_t>(c)], size);
    forward.value(bench.read(DType::kF32, args.lse, (b * p.heads + h) * p.length + i), most + std::log(total),
                  1);
    for (int64_t j = begin(i); j < end(i); ++j) {
      const double ds = scale * scores[static_cast<size_t>(j - begin(i))] / total *
                        (product(dout, at, v, k_at(b, kv, j)) - drift);
      for (int64_t c = 0; c < p.dim; ++c) dq[static_cast<size_t>(c)] += ds * k[k_at(b, kv, j) + c];
    }
    size = 0;
    for (const double value : dq) size += value * value;
    size = 2 * std::sqrt(size / static_cast<double>(p.dim));
    for (int64_t c = 0; c < p.dim; ++c)
      backward.value(bench.read(p.dtype, args.dq, at + c), dq[static_cast<size_t>(c)], size);
  }

  // From the device's lse and delta.
  void check_sinks(const gpu::SinkGradArgs& args, Check& check) const {
    std::vector<float> lse(static_cast<size_t>(p.length)), delta(static_cast<size_t>(p.length));
    for (int64_t h = 0; h < p.heads; ++h) {
      double sum = 0, size = 0;
      for (int64_t b = 0; b < p.batch; ++b) {
        bench.driver().read(lse.data(), args.lse + (b * p.heads + h) * p.length, p.length * 4);
        bench.driver().read(delta.data(), args.delta + (b * p.heads + h) * p.length, p.length * 4);
        for (size_t i = 0; i < lse.size(); ++i) {
          const double more =
              std::exp(sinks[h] - static_cast<double>(lse[i])) * static_cast<double>(delta[i]);
          sum -= more, size += std::fabs(more);
        }
      }
      check.value(bench.read(DType::kF32, args.dsinks, h), sum, size);
    }
  }
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
        const double weight = std::exp(scale * product(q, at, k, k_at(b, kv, j)) -
                                       static_cast<double>(lse[static_cast<size_t>(i)]));
        const double ds =
            scale * weight *
            (product(dout, at, v, k_at(b, kv, j)) - static_cast<double>(delta[static_cast<size_t>(i)]));
        for (int64_t c = 0; c < p.dim; ++c) {
          dk[static_cast<size_t>(c)] += ds * q[at + c];
          dv[static_cast<size_t>(c)] += weight * dout[at + c];
        }
      }
    }
    for (const auto& [is, expected] :
         {std::pair<void*, const std::vector<double>&>{args.dk, dk}, {args.dv, dv}}) {
      double size = 0;
      for (const double value : expected) size += value * value;
      size = 2 * std::sqrt(size / static_cast<double>(p.dim));
      for (int64_t c = 0; c < p.dim; ++c)
        check.value(bench.read(p.dtype, is, k_at(b, kv, j) + c), expected[static_cast<size_t>(c)], size);
    }
  }
};

// `wgmma`: the forward kernel with warpgroup MMA, if the device has one.
void run(Bench& bench, const Problem& p, bool wgmma) {
  Driver& driver = bench.driver();
  const int64_t rows = p.batch * p.length, n = rows * p.heads * p.dim, kv_n = rows * p.kv_heads * p.dim;
  const Attention attention{.bench = bench,
                            .p = p,
                            .q = bench.random(p.dtype, n, 2),
                            .k = bench.random(p.dtype, kv_n, 2),
                            .v = bench.random(p.dtype, kv_n),
                            .dout = bench.random(p.dtype, n),
                            .sinks = bench.random(DType::kF32, p.heads),
                            .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(p.dim)))};
  const gpu::AttentionShape shape{.dtype = p.dtype,
                                  .batch = p.batch,
                                  .length = p.length,
                                  .kv_length = p.length,
                                  .heads = p.heads,
                                  .kv_heads = p.kv_heads,
                                  .head_dim = p.dim,
                                  .value_dim = p.dim};
  std::vector<int32_t> begins, ends;
  for (int64_t row = 0; row < rows; ++row) {
    begins.push_back(static_cast<int32_t>(attention.begin(row % p.length)));
    ends.push_back(static_cast<int32_t>(attention.end(row % p.length)));
  }
  int32_t* const begin = driver.allocate<int32_t>(rows * 4);
  int32_t* const end = driver.allocate<int32_t>(rows * 4);
  driver.write(begin, begins.data(), rows * 4);
  driver.write(end, ends.data(), rows * 4);
  const gpu::AttentionRangesArgs ranges{
      .rows = driver.allocate<int32_t>(rows * 8),
      .tiles = driver.allocate<int32_t>(p.batch * gpu::blocks_of(p.length, 64) * 16),
      .kv_begin = begin,
      .kv_end = end,
      .position = nullptr,
      .batch = static_cast<int32_t>(p.batch),
      .length = static_cast<int32_t>(p.length),
      .kv_length = static_cast<int32_t>(p.length),
      .causal = p.causal,
      .window = 0,
      .chunked = 0};
  const gpu::AttentionArgs args{.q = attention.q.at,
                                .k = attention.k.at,
                                .v = attention.v.at,
                                .out = bench.output(p.dtype, n),
                                .lse = static_cast<float*>(bench.output(DType::kF32, rows * p.heads)),
                                .sinks = p.sinks ? static_cast<float*>(attention.sinks.at) : nullptr,
                                .rows = ranges.rows,
                                .tiles = ranges.tiles,
                                .entries = nullptr,
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
                                .dq = bench.output(p.dtype, n),
                                .dk = bench.output(p.dtype, kv_n),
                                .dv = bench.output(p.dtype, kv_n)};
  const std::optional<gpu::AttentionMapsPlan> plan =
      wgmma ? gpu::plan_attention_maps(shape, args) : std::nullopt;
  if (wgmma && !plan) {
    driver.free_all();
    return;
  }
  gpu::AttentionMapsArgs maps{.q = {}, .k = {}, .v = {}, .dout = {}, .attention = args};
  if (plan) {
    maps.q = driver.tensor_map(plan->q_map, args.q);
    maps.k = driver.tensor_map(plan->k_map, args.k);
    maps.v = driver.tensor_map(plan->v_map, args.v);
    maps.dout = driver.tensor_map(plan->dout_map, args.dout);
  }
  std::vector<gpu::KernelLaunch> backward_launches = gpu::attention_backward(shape);
  if (plan) backward_launches = {plan->delta, plan->backward[0], plan->backward[1]};
  const auto launch = [&](const gpu::KernelLaunch& one) {
    if (one.kernel.find("wgmma") != std::string::npos) {
      driver.launch(one, maps);
    } else {
      driver.launch(one, args);
    }
  };
  const gpu::KernelLaunch forward_launch = plan ? plan->forward : gpu::attention_forward(shape);
  const auto forward = [&] { launch(forward_launch); };
  const auto backward = [&] {
    for (const gpu::KernelLaunch& one : backward_launches) launch(one);
  };
  const gpu::SinkGradArgs sinks{.dsinks = static_cast<float*>(bench.output(DType::kF32, p.heads)),
                                .sinks = args.sinks,
                                .lse = args.lse,
                                .delta = args.delta,
                                .batch = args.batch,
                                .heads = args.heads,
                                .length = args.length};
  const auto all = [&] {
    driver.launch(gpu::attention_ranges(shape), ranges);
    forward();
    backward();
    if (!p.sinks) return;
    driver.fill(sinks.dsinks, 0, p.heads * 4);
    driver.launch(gpu::sink_gradient(shape), sinks);
  };
  all();
  const bool narrow = p.dtype == kBF16;
  Check rows_check(narrow ? 2e-2 : 1e-4), gradients_check(narrow ? 4e-2 : 1e-3), sinks_check(1e-3);
  if (p.sinks) attention.check_sinks(sinks, sinks_check);
  for (const int64_t sample : {0, 1, 2, 3}) {
    const auto pick = [&](uint64_t of, int64_t limit) {
      return static_cast<int64_t>(random_bits(static_cast<uint64_t>(sample), of) % limit);
    };
    const int64_t b = pick(11, p.batch), h = pick(12, p.heads), kv = pick(13, p.kv_heads);
    attention.check_row(args, b, h, sample == 0 ? p.length - 1 : pick(14, p.length), rows_check,
                        gradients_check);
    if (sample < 2)
      attention.check_key(args, b, kv, p.length - 1 - pick(15, std::min<int64_t>(p.length, 1000)),
                          gradients_check);
  }
  const std::string name = std::to_string(p.batch) + "x" + std::to_string(p.length) + " heads " +
                           std::to_string(p.heads) + "/" + std::to_string(p.kv_heads) + "x" +
                           std::to_string(p.dim) + (p.causal ? " causal" : "") +
                           (p.document > 0 ? " documents " + std::to_string(p.document) : "") +
                           (p.sinks ? " sinks" : "") + (narrow ? "" : " f32");
  bench.verify("attention_forward " + forward_launch.kernel, name, rows_check,
               {{p.dtype, args.out, n}, {DType::kF32, args.lse, rows * p.heads}}, all);
  bench.verify("attention_backward " + backward_launches.back().kernel, name, gradients_check,
               {{p.dtype, args.dq, n}, {p.dtype, args.dk, kv_n}, {p.dtype, args.dv, kv_n}}, all);
  if (p.sinks) bench.verify("sink_gradient", name, sinks_check, {{DType::kF32, sinks.dsinks, p.heads}}, all);
  double pairs = 0;
  for (int64_t i = 0; i < p.length; ++i) pairs += static_cast<double>(attention.end(i) - attention.begin(i));
  const double product = 2.0 * pairs * static_cast<double>(p.batch * p.heads * p.dim);
  bench.report("attention_forward", name, forward_launch.kernel, 2 * product, 0, forward);
  bench.report("attention_backward", name, plan ? "all, wgmma" : "all", 5 * product, 0, backward);
  for (const gpu::KernelLaunch& one : backward_launches)
    bench.report("part of attention_backward", name, one.kernel,
                 (one.kernel.find("keys") != std::string::npos ? 4 : 3) * product, 0, [&] { launch(one); });
  if (p.sinks)
    bench.report("sink_gradient", name, "", 0, static_cast<double>(rows * p.heads * 8),
                 [&] { driver.launch(gpu::sink_gradient(shape), sinks); });
  driver.free_all();
}

}  // namespace

void bench_attention(Bench& bench, bool wgmma) {
  const Problem problems[] = {{1, 8192, 32, 8, 128},
                              {4, 2048, 32, 8, 128},
                              {4, 2048, 32, 8, 128, false},
                              {1, 8192, 32, 32, 64},
                              {8, 1024, 16, 16, 64},
                              {4, 2048, 32, 8, 64},
                              {1, 8192, 32, 8, 128, true, 1024},
                              {4, 2048, 32, 8, 64, true, 0, kBF16, true},
                              {3, 1000, 8, 2, 128, true, 300},
                              {3, 1000, 8, 2, 64, false, 300},
                              {4, 2048, 16, 16, 96},
                              {4, 2048, 16, 8, 256},
                              {2, 1024, 16, 4, 64, true, 0, DType::kF32, true},
                              {2, 1024, 16, 4, 128, true, 0, DType::kF32}};
  for (const Problem& problem : problems) run(bench, problem, wgmma);
}

}  // namespace strata::gpu_bench
