// Norms, rope, activations, embeddings, the loss and the optimizer at 8,192 tokens; checks sampled results
// against the formulas.
#include <algorithm>
#include <cmath>

#include "bench.h"

namespace strata::gpu_bench {
namespace {

constexpr DType kBF16 = DType::kBF16, kF32 = DType::kF32;
constexpr int64_t kTokens = 8192;

std::string shape_of(int64_t rows, int64_t columns) {
  return std::to_string(rows) + "x" + std::to_string(columns);
}
int64_t pick(uint64_t sample, uint64_t of, int64_t limit) {
  return static_cast<int64_t>(random_bits(sample, of) % static_cast<uint64_t>(limit));
}
double rounded(double value) {
  return static_cast<float>(BF16(static_cast<float>(value)));
}

void norms(Bench& bench, gpu::NormKind kind, int64_t dim) {
  Driver& driver = bench.driver();
  const bool rms = kind == gpu::NormKind::kRms;
  const int64_t n = kTokens * dim;
  const RandomArray x = bench.random(kBF16, n), residual = bench.random(kBF16, n),
                    dy = bench.random(kBF16, n), dh = bench.random(kBF16, n),
                    weight = bench.random(kF32, dim), bias = bench.random(kF32, dim);
  const gpu::NormArgs forward{.y = bench.output(kBF16, n),
                              .h = bench.output(kBF16, n),
                              .mean = driver.allocate<float>(kTokens * 4),
                              .rstd = driver.allocate<float>(kTokens * 4),
                              .x = x.at,
                              .residual = residual.at,
                              .weight = static_cast<float*>(weight.at),
                              .bias = rms ? nullptr : static_cast<float*>(bias.at),
                              .dim = static_cast<int32_t>(dim),
                              .eps = 1e-5f,
                              .weight_offset = 0};
  const auto run_forward = [&] { driver.launch(gpu::norm_forward(kind, kBF16, kTokens, dim), forward); };
  gpu::NormArgs plain = forward;
  plain.residual = nullptr;
  plain.h = const_cast<void*>(plain.x);
  const gpu::NormGradPlan input = gpu::norm_backward(kind, gpu::NormGradients::kInput, kBF16, kTokens, dim);
  const gpu::NormGradPlan weights =
      gpu::norm_backward(kind, gpu::NormGradients::kWeight, kBF16, kTokens, dim);
  gpu::NormGradArgs backward{.dx = bench.output(kBF16, n),
                             .parts = driver.allocate<float>(weights.blocks * dim * 8),
                             .dy = dy.at,
                             .h = forward.h,
                             .dh = dh.at,
                             .mean = forward.mean,
                             .rstd = forward.rstd,
                             .weight = forward.weight,
                             .rows = kTokens,
                             .dim = static_cast<int32_t>(dim),
                             .weight_offset = 0};
  const int64_t width = rms ? dim : 2 * dim;
  const gpu::ColumnPartsArgs sum{.parts = backward.parts,
                                 .out = static_cast<float*>(bench.output(kF32, width)),
                                 .count = weights.blocks,
                                 .columns = width,
                                 .stride = width,
                                 .accumulate = 0};
  const auto run_backward = [&](const gpu::NormGradPlan& of) {
    driver.launch(of.gradients, backward);
    if (!of.sum.kernel.empty()) driver.launch(gpu::column_parts(width), sum);
  };
  run_forward();
  run_backward(input);
  run_backward(weights);
  Check y_check(5e-3), dx_check(5e-3), dw_check(1e-3);
  const auto row_of = [&](int64_t r, std::vector<double>* normed) {
    double mean = 0, squares = 0;
    std::vector<double> h;
    for (int64_t c = 0; c < dim; ++c) h.push_back(rounded(x[r * dim + c] + residual[r * dim + c]));
    for (const double value : h) mean += value / static_cast<double>(dim);
    if (rms) mean = 0;
    for (const double value : h) squares += (value - mean) * (value - mean) / static_cast<double>(dim);
    const double rstd = 1 / std::sqrt(squares + static_cast<double>(1e-5f));
    for (double& value : h) value = (value - mean) * rstd;
    *normed = h;
    return rstd;
  };
  for (uint64_t sample = 0; sample < 8; ++sample) {
    const int64_t r = sample == 0 ? kTokens - 1 : pick(sample, 5, kTokens);
    std::vector<double> normed, g;
    const double rstd = row_of(r, &normed);
    double slope = 0, shift = 0;
    for (int64_t c = 0; c < dim; ++c) {
      g.push_back(dy[r * dim + c] * weight[c]);
      slope += g.back() * normed[static_cast<size_t>(c)] / static_cast<double>(dim);
      shift += rms ? 0 : g.back() / static_cast<double>(dim);
    }
    for (int64_t c = sample; c < dim; c += 37) {
      const size_t i = static_cast<size_t>(c);
      y_check.value(bench.read(kBF16, forward.y, r * dim + c), normed[i] * weight[c] + (rms ? 0 : bias[c]),
                    0.5);
      dx_check.value(bench.read(kBF16, backward.dx, r * dim + c),
                     rstd * (g[i] - shift - normed[i] * slope) + dh[r * dim + c], 0.5);
    }
  }
  if (dim <= 2048) {
    std::vector<double> dw(4), db(4);
    for (int64_t r = 0; r < kTokens; ++r) {
      std::vector<double> normed;
      row_of(r, &normed);
      for (size_t s = 0; s < 4; ++s) {
        const int64_t c = pick(s, 6, dim);
        dw[s] += dy[r * dim + c] * normed[static_cast<size_t>(c)];
        db[s] += dy[r * dim + c];
      }
    }
    for (size_t s = 0; s < 4; ++s) {
      dw_check.value(bench.read(kF32, sum.out, pick(s, 6, dim)), dw[s], 30);
      if (!rms) dw_check.value(bench.read(kF32, sum.out, dim + pick(s, 6, dim)), db[s], 30);
    }
  }
  const std::string name = rms ? "rms_norm" : "layer_norm", shape = shape_of(kTokens, dim);
  bench.verify(name + "_forward", shape, y_check, {{kBF16, forward.y, n}, {kBF16, forward.h, n}},
               run_forward);
  bench.verify(name + "_backward dx", shape, dx_check, {{kBF16, backward.dx, n}},
               [&] { run_backward(input); });
  bench.verify(name + "_backward dw", shape, dw_check, {{kF32, sum.out, width}},
               [&] { run_backward(weights); });
  const double bytes = static_cast<double>(2 * n);
  bench.report(name + "_forward", shape, "plain", 0, 2 * bytes,
               [&] { driver.launch(gpu::norm_forward(kind, kBF16, kTokens, dim), plain); });
  bench.report("residual_" + name + "_forward", shape, "with residual", 0, 4 * bytes, run_forward);
  const auto run_both = [&] { run_backward(input), run_backward(weights); };
  // The least is that of one pass over dy and h, though each of the two kernels reads them.
  bench.report("residual_" + name + "_backward", shape, "dx and dw, with dh", 0, 4 * bytes, run_both);
  bench.report("residual_" + name + "_backward_input", shape, "dx, with dh", 0, 4 * bytes,
               [&] { run_backward(input); });
  backward.dh = nullptr;
  bench.report(name + "_backward", shape, "dx and dw", 0, 3 * bytes, run_both);
  bench.report(name + "_backward_weight", shape, "dw", 0, 2 * bytes, [&] { run_backward(weights); });
  driver.free_all();
}

void ropes(Bench& bench, int64_t heads, int64_t kv_heads, int64_t dim) {
  Driver& driver = bench.driver();
  const int64_t width = (heads + 2 * kv_heads) * dim, n = kTokens * width;
  const RandomArray x = bench.random(kBF16, n), table = bench.random(kF32, kTokens * dim);
  void* const data = driver.allocate(2 * n);
  driver.copy(data, x.at, 2 * n);
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < kTokens; ++i) positions.push_back(static_cast<int32_t>(i % 4096));
  int32_t* const places = driver.allocate<int32_t>(kTokens * 4);
  driver.write(places, positions.data(), kTokens * 4);
  const gpu::RopeArgs args{.out = data,
                           .in = data,
                           .table = static_cast<float*>(table.at),
                           .positions = places,
                           .row_stride = width,
                           .rows = kTokens,
                           .heads = static_cast<int32_t>(heads + kv_heads),
                           .head_dim = static_cast<int32_t>(dim),
                           .rotary_dim = static_cast<int32_t>(dim),
                           .first = 0,
                           .width = static_cast<int32_t>(width),
                           .adjacent = 0,
                           .inverse = 0};
  const auto work = [&] { driver.launch(gpu::rope(kBF16, args), args); };
  work();
  Check check(5e-3);
  for (uint64_t sample = 0; sample < 100; ++sample) {
    const int64_t r = pick(sample, 3, kTokens), head = pick(sample, 4, heads + kv_heads),
                  i = pick(sample, 5, dim / 2), at = r * width + head * dim + i;
    const double cosine = table[positions[static_cast<size_t>(r)] * dim + 2 * i],
                 sine = table[positions[static_cast<size_t>(r)] * dim + 2 * i + 1];
    check.value(bench.read(kBF16, data, at), x[at] * cosine - x[at + dim / 2] * sine, 0.5);
    check.value(bench.read(kBF16, data, at + dim / 2), x[at + dim / 2] * cosine + x[at] * sine, 0.5);
  }
  const std::string shape =
      shape_of(kTokens, heads) + "+" + std::to_string(kv_heads) + "x" + std::to_string(dim);
  bench.verify("rope", shape, check, {}, [] {});
  bench.report("rope", shape, "in place", 0, static_cast<double>(4 * kTokens * (heads + kv_heads) * dim),
               work);
  driver.free_all();
}

void gated(Bench& bench, int64_t width) {
  Driver& driver = bench.driver();
  const int64_t n = kTokens * width;
  const RandomArray x = bench.random(kBF16, 2 * n, 4), dy = bench.random(kBF16, n);
  gpu::ActivationArgs args{.out = bench.output(kBF16, 2 * n),
                           .dy = nullptr,
                           .x = x.at,
                           .rows = kTokens,
                           .width = width,
                           .kind = 0};
  const auto work = [&] { driver.launch(gpu::activation(true, kBF16, kTokens, width), args); };
  work();
  Check check(6e-3), grad_check(6e-3);
  const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  for (uint64_t sample = 0; sample < 200; ++sample) {
    const int64_t i = pick(sample, 3, n), at = i / width * 2 * width + i % width;
    check.value(bench.read(kBF16, args.out, i), silu(x[at]) * x[at + width], 0.1);
  }
  const std::string shape = shape_of(kTokens, width);
  bench.verify("swiglu_forward", shape, check, {{kBF16, args.out, n}}, work);
  bench.report("swiglu_forward", shape, "", 0, static_cast<double>(6 * n), work);
  args.dy = dy.at;
  work();
  for (uint64_t sample = 0; sample < 200; ++sample) {
    const int64_t i = pick(sample, 3, n), at = i / width * 2 * width + i % width;
    const double s = 1 / (1 + std::exp(-x[at]));
    grad_check.value(bench.read(kBF16, args.out, at), dy[i] * x[at + width] * (s + x[at] * s * (1 - s)), 0.1);
    grad_check.value(bench.read(kBF16, args.out, at + width), dy[i] * silu(x[at]), 0.1);
  }
  bench.verify("swiglu_backward", shape, grad_check, {{kBF16, args.out, 2 * n}}, work);
  bench.report("swiglu_backward", shape, "", 0, static_cast<double>(10 * n), work);
  driver.free_all();
}

void embeddings(Bench& bench, int64_t vocab, int64_t dim) {
  Driver& driver = bench.driver();
  const int64_t n = kTokens * dim;
  // Skewed frequencies: some ids are very frequent.
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < kTokens; ++i) {
    const double u = (static_cast<double>(random_bits(static_cast<uint64_t>(i), 91)) + 1) / 4294967297.0;
    ids.push_back(static_cast<int32_t>(
        std::min<double>(static_cast<double>(vocab - 1), std::pow(static_cast<double>(vocab), u) - 1)));
  }
  int32_t* const id = driver.allocate<int32_t>(kTokens * 4);
  driver.write(id, ids.data(), kTokens * 4);
  const RandomArray table = bench.random(kF32, vocab * dim), dy = bench.random(kBF16, n);
  const gpu::EmbeddingArgs args{.out = bench.output(kBF16, n),
                                .ids = id,
                                .table = static_cast<float*>(table.at),
                                .position_table = nullptr,
                                .positions = nullptr,
                                .dim = static_cast<int32_t>(dim),
                                .scale = 1};
  const auto forward = [&] { driver.launch(gpu::embedding(kBF16, kTokens, dim), args); };
  const gpu::EmbeddingGradPlan plan = gpu::embedding_backward(kBF16, kTokens, dim);
  const gpu::EmbeddingSortArgs sort{.sorted = driver.allocate<uint64_t>(plan.run * plan.runs * 8),
                                    .ids = id,
                                    .rows = kTokens,
                                    .run = static_cast<int32_t>(plan.run),
                                    .padding = -1};
  const gpu::EmbeddingGradArgs add{.table = driver.allocate<float>(vocab * dim * 4),
                                   .dy = dy.at,
                                   .sorted = sort.sorted,
                                   .number = 0,
                                   .run = sort.run,
                                   .dim = args.dim,
                                   .scale = 1};
  const auto backward = [&] {
    driver.launch(plan.sort, sort);
    driver.launch(plan.add, add);
  };
  const auto fresh = [&] {
    driver.fill(add.table, 0, vocab * dim * 4);
    backward();
  };
  forward();
  fresh();
  Check check(4e-3), grad_check(1e-5);
  for (uint64_t sample = 0; sample < 100; ++sample) {
    const int64_t i = pick(sample, 3, n);
    check.value(bench.read(kBF16, args.out, i), table[ids[static_cast<size_t>(i / dim)] * dim + i % dim],
                0.1);
    double sum = 0;
    for (int64_t r = 0; r < kTokens; ++r) {
      if (ids[static_cast<size_t>(r)] == ids[static_cast<size_t>(i / dim)]) sum += dy[r * dim + i % dim];
    }
    grad_check.value(bench.read(kF32, add.table, ids[static_cast<size_t>(i / dim)] * dim + i % dim), sum, 10);
  }
  const std::string shape = shape_of(vocab, dim);
  bench.verify("embedding_forward", shape, check, {{kBF16, args.out, n}}, forward);
  bench.verify("embedding_backward", shape, grad_check, {{kF32, add.table, vocab * dim}}, fresh);
  bench.report("embedding_forward", shape, "", 0, static_cast<double>(6 * n), forward);
  bench.report("embedding_backward", shape, "sort and add, table not cleared", 0, static_cast<double>(2 * n),
               backward);
  bench.report("part of embedding_backward", shape, "sort", 0, 0, [&] { driver.launch(plan.sort, sort); });
  driver.free_all();
}

void losses(Bench& bench, int64_t tokens, int64_t vocab) {
  Driver& driver = bench.driver();
  const int64_t n = tokens * vocab;
  const RandomArray logits = bench.random(kBF16, n, 8);
  int32_t* const targets = bench.ids(tokens, static_cast<uint32_t>(vocab), 55);
  gpu::CrossEntropyArgs args{.logits = logits.at,
                             .gradient = bench.output(kBF16, n),
                             .targets = targets,
                             .losses = static_cast<float*>(bench.output(kF32, tokens)),
                             .lse = nullptr,
                             .greedy = nullptr,
                             .scale = nullptr,
                             .stride = vocab,
                             .vocab = static_cast<int32_t>(vocab),
                             .valid = static_cast<int32_t>(vocab),
                             .grad_scale = 1,
                             .z_loss = 0,
                             .softcap = 0};
  const auto work = [&] { driver.launch(gpu::cross_entropy(kBF16, kBF16, tokens, vocab, vocab), args); };
  work();
  Check check(1e-5), grad_check(6e-3);
  for (uint64_t sample = 0; sample < 6; ++sample) {
    const int64_t t = pick(sample, 3, tokens),
                  target = random_id(static_cast<uint64_t>(t), 55, static_cast<uint32_t>(vocab));
    double sum = 0;
    for (int64_t c = 0; c < vocab; ++c) sum += std::exp(logits[t * vocab + c]);
    check.value(bench.read(kF32, args.losses, t), std::log(sum) - logits[t * vocab + target], 1);
    for (int64_t c = 0; c < vocab; c += vocab / 50)
      grad_check.value(bench.read(kBF16, args.gradient, t * vocab + c),
                       std::exp(logits[t * vocab + c]) / sum - (c == target ? 1 : 0), 1e-6);
    grad_check.value(bench.read(kBF16, args.gradient, t * vocab + target),
                     std::exp(logits[t * vocab + target]) / sum - 1, 1e-3);
  }
  const std::string shape = shape_of(tokens, vocab);
  bench.verify("cross_entropy loss", shape, check, {{kF32, args.losses, tokens}}, work);
  bench.verify("cross_entropy gradient", shape, grad_check, {{kBF16, args.gradient, n}}, work);
  bench.report("cross_entropy", shape, "loss and gradient, to another array", 0, static_cast<double>(4 * n),
               work);
  void* const other = args.gradient;
  args.gradient = const_cast<void*>(args.logits);
  bench.report("part of cross_entropy", shape, "loss and gradient, in place", 0, static_cast<double>(4 * n),
               work);
  args.gradient = nullptr;
  args.logits = other;
  bench.report("cross_entropy_forward", shape, "loss", 0, static_cast<double>(2 * n), work);
  driver.free_all();
}

void optimizer(Bench& bench, int64_t n) {
  Driver& driver = bench.driver();
  const RandomArray p = bench.random(kF32, n), g = bench.random(kF32, n);
  gpu::GpuUpdateScalars scalars{.lr = 1e-2f, .grad_scale = 0.5f, .skip = 0, .update = 1};
  auto* const on_device = driver.allocate<gpu::GpuUpdateScalars>(sizeof scalars);
  driver.write(on_device, &scalars, sizeof scalars);
  const gpu::ElementUpdateArgs args{.master = driver.allocate<float>(4 * n),
                                    .m = driver.allocate<float>(4 * n),
                                    .v = driver.allocate<float>(4 * n),
                                    .grad = static_cast<float*>(g.at),
                                    .copy = bench.output(kBF16, n),
                                    .scalars = on_device,
                                    .n = n,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .eps = 1e-8f,
                                    .weight_decay = 0.1f,
                                    .lr_scale = 1};
  const auto work = [&] { driver.launch(gpu::element_update("adamw", n), args); };
  const auto fresh = [&] {
    driver.copy(args.master, p.at, 4 * n);
    driver.fill(args.m, 0, 4 * n);
    driver.fill(args.v, 0, 4 * n);
    work();
  };
  fresh();
  Check check(1e-6), norm_check(1e-6);
  for (uint64_t sample = 0; sample < 100; ++sample) {
    const int64_t i = pick(sample, 3, n);
    const double gradient = 0.5 * g[i], step = static_cast<double>(1e-2f);
    const double expected =
        p[i] * (1 - step * static_cast<double>(0.1f)) - step * gradient / (std::fabs(gradient) + 1e-8);
    check.value(bench.read(kF32, args.master, i), expected, 1);
  }
  const std::string shape = std::to_string(n);
  bench.verify("adamw", shape, check, {{kF32, args.master, n}, {kBF16, args.copy, n}}, fresh);
  bench.report("adamw", shape, "fp32 states and a bf16 copy", 0, static_cast<double>(30 * n), work);
  const gpu::SquaresArgs squares{.partials = driver.allocate<double>(gpu::blocks_of(n, gpu::kNormBlock) * 8),
                                 .x = static_cast<float*>(g.at),
                                 .n = n};
  const gpu::ReduceArgs reduce{.out = driver.allocate<double>(8),
                               .partials = squares.partials,
                               .n = gpu::blocks_of(n, gpu::kNormBlock)};
  const auto norm = [&] {
    driver.launch(gpu::sum_of_squares(n), squares);
    driver.launch(gpu::reduce_sum(), reduce);
  };
  norm();
  double is = 0, expected = 0;
  driver.read(&is, reduce.out, 8);
  for (int64_t i = 0; i < n; ++i) expected += g[i] * g[i];
  norm_check.value(is, expected, 1);
  bench.verify("norm", shape, norm_check, {}, [] {});
  bench.report("norm", shape, "", 0, static_cast<double>(4 * n), norm);
  driver.free_all();
}

void elements(Bench& bench, int64_t rows, int64_t columns) {
  Driver& driver = bench.driver();
  const int64_t n = rows * columns;
  const RandomArray a = bench.random(kBF16, n), b = bench.random(kBF16, n), wide = bench.random(kF32, n);
  const gpu::ElementArgs args{.out = bench.output(kBF16, n), .a = a.at, .b = b.at, .n = n, .factor = 2};
  const std::string shape = shape_of(rows, columns);
  const double bytes = static_cast<double>(2 * n);
  // The upper limit set by memory bandwidth.
  bench.report("copy", shape, "the driver's", 0, 2 * bytes, [&] { driver.copy(args.out, a.at, 2 * n); });
  bench.report("add", shape, "", 0, 3 * bytes,
               [&] { driver.launch(gpu::elementwise("add", kBF16, n), args); });
  Check check(4e-3);
  for (uint64_t sample = 0; sample < 50; ++sample)
    check.value(bench.read(kBF16, args.out, pick(sample, 3, n)),
                a[pick(sample, 3, n)] + b[pick(sample, 3, n)], 0.1);
  bench.verify("add", shape, check, {}, [] {});
  const gpu::ElementArgs cast{.out = args.out, .a = wide.at, .b = nullptr, .n = n, .factor = 0};
  bench.report("cast_bf16_f32", shape, "", 0, 3 * bytes,
               [&] { driver.launch(gpu::elementwise("cast_bf16_f32", kBF16, n), cast); });
  const gpu::TransposeArgs turn{.out = args.out, .in = a.at, .rows = rows, .columns = columns};
  bench.report("transpose", shape, "", 0, 2 * bytes,
               [&] { driver.launch(gpu::transpose(kBF16, rows, columns), turn); });
  const gpu::ColumnSumsPlan plan = gpu::column_sums(kBF16, rows, columns, columns);
  const gpu::ColumnSumsArgs sums{.in = a.at,
                                 .parts = driver.allocate<float>(plan.parts * columns * 4),
                                 .rows = rows,
                                 .columns = columns,
                                 .stride = columns};
  const gpu::ColumnPartsArgs parts{.parts = sums.parts,
                                   .out = driver.allocate<float>(columns * 4),
                                   .count = plan.parts,
                                   .columns = columns,
                                   .stride = columns,
                                   .accumulate = 0};
  bench.report("column_sums", shape, "", 0, bytes, [&] {
    driver.launch(plan.sums, sums);
    driver.launch(plan.sum, parts);
  });
  driver.free_all();
}

}  // namespace

void bench_rows(Bench& bench) {
  elements(bench, kTokens, 4096);
  elements(bench, kTokens, 14336);
  for (const int64_t dim : {1024, 2048, 4096}) norms(bench, gpu::NormKind::kRms, dim);
  norms(bench, gpu::NormKind::kLayer, 2048);
  ropes(bench, 32, 8, 128);
  ropes(bench, 32, 8, 64);
  gated(bench, 5632);
  gated(bench, 14336);
  embeddings(bench, 32768, 2048);
  embeddings(bench, 131072, 2048);
  losses(bench, 8192, 32768);
  losses(bench, 2048, 131072);
  optimizer(bench, int64_t{1} << 26);
}

}  // namespace strata::gpu_bench
