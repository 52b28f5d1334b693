// Norms, activations, rope, embeddings, the loss and the optimizer against formulas in fp64.
#include <fmt/core.h>

#include <numeric>
#include <tuple>

#include "kernels/kernel_test.h"
#include "tensor/activation_kind.h"

namespace strata::gpu_tests {
namespace {

using gpu::NormGradients, gpu::NormKind;
constexpr DType kBF16 = DType::kBF16, kF32 = DType::kF32;
constexpr DType kTypes[] = {kBF16, kF32};
using Values = std::vector<double>;

class GpuRows : public KernelTest {
 protected:
  static double tolerance(DType dtype) { return dtype == kBF16 ? 4e-3 : 3e-6; }
  static Values values(DType dtype, int64_t n, uint32_t seed) {
    return rounded_to(dtype, random_values(static_cast<size_t>(n), seed));
  }
  float* floats(const Values& of, const char* name = "") {
    return static_cast<float*>(upload(kF32, of, name));
  }
};
size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

TEST_P(GpuRows, Norms) {
  for (const DType dtype : kTypes) {
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      for (const int64_t dim : {320, 77, 1, 2056}) {
        restart();
        const bool rms = kind == NormKind::kRms;
        const int64_t rows = 5, n = rows * dim;
        const Values x = values(dtype, n, 1), residual = values(dtype, n, 2), dy = values(dtype, n, 3),
                     dh = values(dtype, n, 4), weight = values(kF32, dim, 5), bias = values(kF32, dim, 6);
        const double eps = 1e-5f, offset = rms ? 1 : 0;
        Values h, y(at(n)), mean, rstd, dx(at(n)), dw(at(dim)), db(at(dim));
        for (int64_t i = 0; i < n; ++i) h.push_back(rounded_to(dtype, x[at(i)] + residual[at(i)]));
        for (int64_t r = 0; r < rows; ++r) {
          const double *row = h.data() + r * dim, *gradient = dy.data() + r * dim;
          mean.push_back(rms ? 0 : std::accumulate(row, row + dim, 0.0) / static_cast<double>(dim));
          double squares = 0, slope = 0, shift = 0;
          for (int64_t c = 0; c < dim; ++c) squares += std::pow(row[c] - mean.back(), 2);
          rstd.push_back(1 / std::sqrt(squares / static_cast<double>(dim) + eps));
          const auto normed = [&](int64_t c) { return (row[c] - mean.back()) * rstd.back(); };
          for (int64_t c = 0; c < dim; ++c) {
            const double g = gradient[c] * (weight[at(c)] + offset);
            y[at(r * dim + c)] = normed(c) * (weight[at(c)] + offset) + (rms ? 0 : bias[at(c)]);
            slope += g * normed(c) / static_cast<double>(dim);
            if (!rms) shift += g / static_cast<double>(dim);
            dw[at(c)] += gradient[c] * normed(c);
            db[at(c)] += gradient[c];
          }
          for (int64_t c = 0; c < dim; ++c) {
            dx[at(r * dim + c)] =
                rstd.back() * (gradient[c] * (weight[at(c)] + offset) - shift - normed(c) * slope) +
                dh[at(r * dim + c)];
          }
        }
        const gpu::NormArgs forward{.y = output(dtype, n, "y"),
                                    .h = output(dtype, n, "h"),
                                    .mean = output_of<float>(rows, "mean"),
                                    .rstd = output_of<float>(rows, "rstd"),
                                    .x = upload(dtype, x),
                                    .residual = upload(dtype, residual),
                                    .weight = floats(weight),
                                    .bias = rms ? nullptr : floats(bias),
                                    .dim = static_cast<int32_t>(dim),
                                    .eps = static_cast<float>(eps),
                                    .weight_offset = static_cast<float>(offset)};
        launch(gpu::norm_forward(kind, dtype, rows, dim), forward);
        const std::string what = fmt::format("{} {} {}", rms ? "rms" : "layer", name_of(dtype), dim);
        expect_near(download(dtype, forward.y, n), y, tolerance(dtype), 1, what + " y");
        EXPECT_EQ(download(dtype, forward.h, n), h);
        expect_near(download(kF32, forward.rstd, rows), rstd, 1e-6, 1, what + " rstd");
        for (const NormGradients wanted : {NormGradients::kInput, NormGradients::kWeight}) {
          const gpu::NormGradPlan plan = gpu::norm_backward(kind, wanted, dtype, rows, dim);
          const gpu::NormGradArgs args{.dx = output(dtype, n, "dx"),
                                       .parts = output_of<float>(plan.blocks * dim * 2, "parts"),
                                       .dy = upload(dtype, dy),
                                       .h = forward.h,
                                       .dh = upload(dtype, dh),
                                       .mean = forward.mean,
                                       .rstd = forward.rstd,
                                       .weight = forward.weight,
                                       .rows = static_cast<int32_t>(rows),
                                       .dim = static_cast<int32_t>(dim),
                                       .weight_offset = forward.weight_offset};
          launch(plan.gradients, args);
          if (wanted == NormGradients::kInput) {
            expect_near(download(dtype, args.dx, n), dx, tolerance(dtype), 1, what + " dx");
            continue;
          }
          const int64_t width = rms ? dim : 2 * dim;
          for (int64_t first = 0; first < width; first += dim) {
            Values expected = first == 0 ? dw : db;
            const Values old = values(kF32, dim, 9);
            const gpu::ColumnPartsArgs sum{.parts = args.parts + first,
                                           .out = floats(old),
                                           .count = plan.blocks,
                                           .columns = dim,
                                           .stride = width,
                                           .accumulate = first != 0};
            launch(plan.sum, sum);
            for (int64_t c = 0; c < dim && first != 0; ++c) expected[at(c)] += old[at(c)];
            expect_near(download(kF32, sum.out, dim), expected, 3e-6, 3, what + " dw");
          }
        }
      }
    }
  }
}

TEST_P(GpuRows, Elements) {
  for (const DType dtype : kTypes) {
    restart();
    const int64_t n = 1027;
    const Values a = values(dtype, n, 1), b = values(dtype, n, 2), row = values(kF32, 79, 3);
    Values sum, scaled, with_row;
    for (int64_t i = 0; i < n; ++i) {
      sum.push_back(rounded_to(dtype, a[at(i)] + b[at(i)]));
      scaled.push_back(rounded_to(dtype, a[at(i)] * 0.37f));
      with_row.push_back(rounded_to(dtype, a[at(i)] + row[at(i % 79)]));
    }
    const gpu::ElementArgs args{
        .out = output(dtype, n), .a = upload(dtype, a), .b = upload(dtype, b), .n = n, .factor = 0.37f};
    launch(gpu::elementwise("add", dtype, n), args);
    EXPECT_EQ(download(dtype, args.out, n), sum);
    launch(gpu::elementwise("scale", dtype, n), args);
    EXPECT_EQ(download(dtype, args.out, n), scaled);
    launch(gpu::elementwise("fill", dtype, n), args);
    EXPECT_EQ(download(dtype, args.out, n), Values(static_cast<size_t>(n), rounded_to(dtype, 0.37f)));
    const gpu::AddRowArgs rows{.out = args.out, .x = args.a, .row = floats(row), .rows = 13, .columns = 79};
    launch(gpu::elementwise("add_row", dtype, n), rows);
    EXPECT_EQ(download(dtype, args.out, n), with_row);
    const DType other = dtype == kBF16 ? kF32 : kBF16;
    const gpu::ElementArgs cast{.out = output(other, n), .a = args.a, .b = nullptr, .n = n, .factor = 0};
    launch(gpu::elementwise(dtype == kBF16 ? "cast_f32_bf16" : "cast_bf16_f32", dtype, n), cast);
    EXPECT_EQ(download(other, cast.out, n), rounded_to(other, a));
    const gpu::TransposeArgs turn{.out = output(dtype, 13 * 79), .in = args.a, .rows = 13, .columns = 79};
    launch(gpu::transpose(dtype, 13, 79), turn);
    Values turned;
    for (int64_t i = 0; i < n; ++i) turned.push_back(a[at(i % 13 * 79 + i / 13)]);
    EXPECT_EQ(download(dtype, turn.out, n), turned);

    for (const int64_t columns : {72, 33}) {
      const int64_t tall = 150, stride = columns == 72 ? 80 : 35;
      const Values x = values(dtype, tall * stride, 4);
      const gpu::ColumnSumsPlan plan = gpu::column_sums(dtype, tall, columns, stride);
      const gpu::ColumnSumsArgs sums{.in = upload(dtype, x),
                                     .parts = output_of<float>(plan.parts * columns),
                                     .rows = tall,
                                     .columns = columns,
                                     .stride = stride};
      launch(plan.sums, sums);
      const gpu::ColumnPartsArgs parts{.parts = sums.parts,
                                       .out = output_of<float>(columns),
                                       .count = plan.parts,
                                       .columns = columns,
                                       .stride = columns,
                                       .accumulate = 0};
      launch(plan.sum, parts);
      Values expected(at(columns));
      for (int64_t r = 0; r < tall; ++r) {
        for (int64_t c = 0; c < columns; ++c) expected[at(c)] += x[at(r * stride + c)];
      }
      expect_near(download(kF32, parts.out, columns), expected, 1e-6, 10, "column sums");
    }
  }
}

double activated(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::kGeluErf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2));
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kRelu2:
      return std::pow(std::max(x, 0.0), 2);
  }
  return 0;
}

TEST_P(GpuRows, Activations) {
  for (const DType dtype : kTypes) {
    for (int kind = 0; kind < 5; ++kind) {
      for (const int64_t width : {40, 13}) {
        restart();
        const int64_t rows = 7, n = rows * width;
        Values gates = values(dtype, 2 * n, 1);
        for (double& value : gates) value = rounded_to(dtype, value * 6);
        gates[0] = 80, gates[1] = -80, gates[2] = rounded_to(dtype, 1e19),
        gates[3] = -rounded_to(dtype, 1e19);
        const Values dy = values(dtype, n, 2);
        Values alone, alone_grad, gated, gated_grad(at(2 * n));
        const auto f = [&](double x) { return activated(static_cast<ActivationKind>(kind), x); };
        const auto slope = [&](double x) {
          const double step = 1e-4;
          return std::fabs(x) > 100 ? f(x) / x * (kind == 4 ? 2 : 1)
                                    : (f(x + step) - f(x - step)) / (2 * step);
        };
        for (int64_t i = 0; i < n; ++i) {
          const int64_t g = i / width * 2 * width + i % width;
          alone.push_back(f(gates[at(i)]));
          alone_grad.push_back(dy[at(i)] * slope(gates[at(i)]));
          gated.push_back(f(gates[at(g)]) * gates[at(g + width)]);
          gated_grad[at(g)] = dy[at(i)] * slope(gates[at(g)]) * gates[at(g + width)];
          gated_grad[at(g + width)] = dy[at(i)] * f(gates[at(g)]);
        }
        gpu::ActivationArgs args{.out = output(dtype, 2 * n),
                                 .dy = nullptr,
                                 .x = upload(dtype, gates),
                                 .rows = rows,
                                 .width = width,
                                 .kind = kind};
        const std::string what = fmt::format("activation {} {} {}", kind, name_of(dtype), width);
        const double allowed = dtype == kBF16 ? 4.1e-3 : 1e-5;
        const auto check = [&](bool of_gates, bool back, const Values& expected) {
          args.dy = back ? upload(dtype, dy) : nullptr;
          launch(gpu::activation(of_gates, dtype, rows, width), args);
          expect_near(download(dtype, args.out, std::ssize(expected)), expected, allowed, 0.1, what);
        };
        check(false, false, alone);
        check(false, true, alone_grad);
        check(true, false, gated);
        check(true, true, gated_grad);
      }
    }
  }
}

TEST_P(GpuRows, Rope) {
  for (const DType dtype : kTypes) {
    for (const bool adjacent : {false, true}) {
      for (const auto& [head_dim, rotary, first] : {std::tuple{80, 64, 16}, {80, 20, 3}, {7, 6, 1}}) {
        restart();
        const int64_t rows = 6, heads = 3, width = 5 * head_dim, half = rotary / 2;
        const Values x = values(dtype, rows * width, 1), table = values(kF32, 10 * rotary, 2);
        const std::vector<int32_t> positions{0, 3, 9, 1, 0, 7};
        Values expected = x;
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t i = 0; i < heads * half; ++i) {
            const int64_t begin = r * width + i / half * head_dim + first, pair = i % half;
            const int64_t a = begin + (adjacent ? 2 * pair : pair), b = a + (adjacent ? 1 : half);
            const double cosine = table[at(positions[at(r)] * rotary + 2 * pair)],
                         sine = -table[at(positions[at(r)] * rotary + 2 * pair + 1)];
            expected[at(a)] = x[at(a)] * cosine - x[at(b)] * sine;
            expected[at(b)] = x[at(b)] * cosine + x[at(a)] * sine;
          }
        }
        for (const bool in_place : {false, true}) {
          void* const in = upload(dtype, x);
          const gpu::RopeArgs args{.out = in_place ? in : output(dtype, rows * width),
                                   .in = in,
                                   .table = floats(table),
                                   .positions = static_cast<int32_t*>(upload(positions)),
                                   .row_stride = width,
                                   .rows = static_cast<int32_t>(rows),
                                   .heads = static_cast<int32_t>(heads),
                                   .head_dim = static_cast<int32_t>(head_dim),
                                   .rotary_dim = static_cast<int32_t>(rotary),
                                   .first = static_cast<int32_t>(first),
                                   .width = static_cast<int32_t>(width),
                                   .adjacent = adjacent,
                                   .inverse = 1};
          launch(gpu::rope(dtype, args), args);
          expect_near(download(dtype, args.out, rows * width), expected, tolerance(dtype), 0.5, "rope");
        }
      }
    }
  }
}

TEST_P(GpuRows, Embedding) {
  for (const DType dtype : kTypes) {
    for (const int64_t dim : {24, 9, 1}) {
      restart();
      const int64_t rows = 50, vocab = 11;
      std::vector<int32_t> ids, positions;
      for (int64_t i = 0; i < rows; ++i)
        ids.push_back(static_cast<int32_t>(i * i % 7)), positions.push_back(static_cast<int32_t>(i % 5));
      const Values table = values(kF32, vocab * dim, 1), places = values(kF32, 5 * dim, 2),
                   dy = values(dtype, rows * dim, 3);
      Values expected, gradient = table;
      for (int64_t i = 0; i < rows * dim; ++i) {
        const int64_t id = ids[at(i / dim)] * dim + i % dim;
        expected.push_back(3 * table[at(id)] + places[at(positions[at(i / dim)] * dim + i % dim)]);
        if (ids[at(i / dim)] != 4) gradient[at(id)] += 3 * dy[at(i)];
      }
      const gpu::EmbeddingArgs args{.out = output(dtype, rows * dim),
                                    .ids = static_cast<int32_t*>(upload(ids)),
                                    .table = floats(table),
                                    .position_table = floats(places),
                                    .positions = static_cast<int32_t*>(upload(positions)),
                                    .dim = static_cast<int32_t>(dim),
                                    .scale = 3};
      launch(gpu::embedding(dtype, rows, dim), args);
      expect_near(download(dtype, args.out, rows * dim), expected, tolerance(dtype), 1, "embedding");
      const gpu::EmbeddingGradPlan plan = gpu::embedding_backward(dtype, rows, dim);
      const gpu::EmbeddingSortArgs sort{.sorted = output_of<uint64_t>(plan.run * plan.runs),
                                        .ids = args.ids,
                                        .rows = rows,
                                        .run = static_cast<int32_t>(plan.run),
                                        .padding = 4};
      launch(plan.sort, sort);
      const gpu::EmbeddingGradArgs add{.table = floats(table),
                                       .dy = upload(dtype, dy),
                                       .sorted = sort.sorted,
                                       .number = 0,
                                       .run = sort.run,
                                       .dim = args.dim,
                                       .scale = 3};
      launch(plan.add, add);
      expect_near(download(kF32, add.table, vocab * dim), gradient, 1e-6, 10, "embedding gradient");
    }
  }
}

TEST_P(GpuRows, CrossEntropy) {
  for (const auto& [logit_type, gradient_type] : {std::pair{kBF16, kBF16}, {kF32, kBF16}, {kF32, kF32}}) {
    for (const bool ragged : {false, true}) {
      for (const double softcap : {0.0, 5.0}) {
        restart();
        const int64_t tokens = 6, vocab = ragged ? 301 : 304, valid = 299;
        const std::vector<int32_t> targets{3, 298, -1, 0, 77, 200};
        Values logits = values(logit_type, tokens * vocab, 1);
        for (double& value : logits) value = rounded_to(logit_type, value * 8);
        const double scale = 0.25, z = 1e-2f;
        // The target of this token is one of two likeliest.
        logits[at(4 * vocab + 77)] = logits[at(4 * vocab + 12)] = 9;
        Values losses(at(tokens)), gradient(at(tokens * vocab)), lses(at(tokens)), greedy(at(tokens));
        for (int64_t t = 0; t < tokens; ++t) {
          if (targets[at(t)] < 0) continue;
          const auto cap = [&](int64_t c) {
            const double l = logits[at(t * vocab + c)];
            return softcap > 0 ? softcap * std::tanh(l / softcap) : l;
          };
          double sum = 0;
          for (int64_t c = 0; c < valid; ++c) sum += std::exp(cap(c));
          const double lse = lses[at(t)] = std::log(sum);
          losses[at(t)] = lse - cap(targets[at(t)]) + z * lse * lse;
          greedy[at(t)] = 1;
          for (int64_t c = 0; c < valid; ++c) {
            if (cap(c) > cap(targets[at(t)])) greedy[at(t)] = 0;
          }
          for (int64_t c = 0; c < valid; ++c) {
            const double bend = softcap > 0 ? cap(c) / softcap : 0;
            gradient[at(t * vocab + c)] =
                scale * (1 - bend * bend) *
                ((1 + 2 * z * lse) * std::exp(cap(c) - lse) - (c == targets[at(t)] ? 1 : 0));
          }
        }
        void* const in = upload(logit_type, logits);
        const gpu::CrossEntropyArgs args{
            .logits = in,
            .gradient = logit_type == gradient_type ? in : output(gradient_type, tokens * vocab),
            .targets = static_cast<int32_t*>(upload(targets)),
            .losses = output_of<float>(tokens),
            .lse = output_of<float>(tokens),
            .greedy = output_of<int32_t>(tokens),
            .scale = floats({0.5}),
            .stride = vocab,
            .vocab = static_cast<int32_t>(vocab),
            .valid = static_cast<int32_t>(valid),
            .grad_scale = 0.5f,
            .z_loss = static_cast<float>(z),
            .softcap = static_cast<float>(softcap)};
        launch(gpu::cross_entropy(logit_type, gradient_type, tokens, vocab, vocab), args);
        expect_near(download(kF32, args.losses, tokens), losses, 2e-6, 1, "losses");
        expect_near(download(kF32, args.lse, tokens), lses, 2e-6, 1, "lse");
        EXPECT_EQ(download(DType::kI32, args.greedy, tokens), greedy);
        EXPECT_EQ(std::accumulate(greedy.begin(), greedy.end(), 0.0), 1);
        expect_near(download(gradient_type, args.gradient, tokens * vocab), gradient,
                    tolerance(gradient_type), 1e-2, "gradient");
        const gpu::LossSumArgs sum{.sum = output_of<double>(1),
                                   .count = output_of<int64_t>(1),
                                   .losses = args.losses,
                                   .targets = args.targets,
                                   .tokens = static_cast<int32_t>(tokens),
                                   .accumulate = 0};
        launch(gpu::loss_sum(), sum);
        expect_near(download(DType::kF64, sum.sum, 1), {std::accumulate(losses.begin(), losses.end(), 0.0)},
                    2e-6, 1, "sum");
      }
    }
  }
}

TEST_P(GpuRows, Optimizer) {
  for (const int64_t n : {1000, 999}) {
    restart();
    const Values p = values(kF32, n, 1), m = values(kF32, n, 2), g = values(kF32, n, 4);
    Values v = values(kF32, n, 3), new_p, new_m, new_v;
    for (double& value : v) value = std::fabs(value);
    const double b1 = 0.9, b2 = 0.95, lr = 0.01f, decay = 0.1f, eps = 1e-8f;
    const int t = 7;
    for (int64_t i = 0; i < n; ++i) {
      const double gradient = 0.5 * g[at(i)];
      new_m.push_back(m[at(i)] + (1 - b1) * (gradient - m[at(i)]));
      new_v.push_back(b2 * v[at(i)] + (1 - b2) * gradient * gradient);
      new_p.push_back(p[at(i)] * (1 - lr * decay) -
                      lr / (1 - std::pow(b1, t)) * new_m.back() /
                          (std::sqrt(new_v.back() / (1 - std::pow(b2, t))) + eps));
    }
    for (const bool skip : {true, false}) {
      const gpu::GpuUpdateScalars scalars{
          .lr = static_cast<float>(lr), .grad_scale = 0.5f, .skip = skip, .update = t};
      const uint64_t at_scalars = device().allocate(sizeof scalars, "scalars");
      device().write(at_scalars, &scalars.lr, 4);
      device().write(at_scalars + 4, &scalars.grad_scale, 4);
      device().write(at_scalars + 8, &scalars.skip, 4);
      device().write(at_scalars + 16, &scalars.update, 8);
      const gpu::ElementUpdateArgs args{.master = floats(p),
                                        .m = floats(m),
                                        .v = floats(v),
                                        .grad = floats(g),
                                        .copy = upload(kBF16, p),
                                        .scalars = reinterpret_cast<const gpu::GpuUpdateScalars*>(at_scalars),
                                        .n = n,
                                        .beta1 = b1,
                                        .beta2 = b2,
                                        .eps = static_cast<float>(eps),
                                        .weight_decay = static_cast<float>(decay),
                                        .lr_scale = 1};
      launch(gpu::element_update("adamw", n), args);
      const Values result = download(kF32, args.master, n);
      expect_near(result, skip ? p : new_p, 1e-6, 1, "master");
      expect_near(download(kF32, args.m, n), skip ? m : new_m, 1e-6, 1, "m");
      expect_near(download(kF32, args.v, n), skip ? v : new_v, 1e-6, 1, "v");
      EXPECT_EQ(download(kBF16, args.copy, n), rounded_to(kBF16, skip ? p : result));
    }
  }
  const int64_t n = 65536 + 4099;
  const Values x = values(kF32, n, 5);
  double expected = 0;
  for (const double value : x) expected += value * value;
  const gpu::SquaresArgs squares{.partials = output_of<double>(2), .x = floats(x), .n = n};
  launch(gpu::sum_of_squares(n), squares);
  const gpu::ReduceArgs reduce{.out = output_of<double>(1), .partials = squares.partials, .n = 2};
  launch(gpu::reduce_sum(), reduce);
  expect_near(download(DType::kF64, reduce.out, 1), {expected}, 1e-6, 1, "squares");
}

// Without rows there are no blocks, which callers do not launch; weight gradients and sums are then 0.
TEST_P(GpuRows, NoRowsAndManyRows) {
  for (const DType dtype : kTypes) {
    restart();
    const auto is_empty = [](const gpu::KernelLaunch& call) {
      return call.grid_x == 0 || call.grid_y == 0 || call.grid_z == 0;
    };
    for (const int64_t dim : {1, 9, 24}) {
      EXPECT_TRUE(is_empty(gpu::embedding(dtype, 0, dim)));
      EXPECT_EQ(gpu::embedding_backward(dtype, 0, dim).runs, 0);
      EXPECT_TRUE(is_empty(gpu::activation(true, dtype, 0, dim)));
      const auto width = static_cast<int32_t>(2 * dim);
      gpu::RopeArgs rope{};
      rope.heads = 1;
      rope.row_stride = rope.head_dim = rope.rotary_dim = rope.width = width;
      EXPECT_TRUE(is_empty(gpu::rope(dtype, rope)));
      // More rows than blocks in y.
      rope.rows = 1 << 20;
      EXPECT_LE(gpu::rope(dtype, rope).grid_y, 65535u);
      EXPECT_LE(gpu::embedding(dtype, rope.rows, dim).grid_y, 65535u);
      for (const gpu::NormKind kind : {gpu::NormKind::kRms, gpu::NormKind::kLayer}) {
        EXPECT_TRUE(is_empty(gpu::norm_forward(kind, dtype, 0, dim)));
        const gpu::NormGradPlan plan = gpu::norm_backward(kind, gpu::NormGradients::kWeight, dtype, 0, dim);
        EXPECT_TRUE(is_empty(plan.gradients));
        const gpu::ColumnPartsArgs sum{.parts = nullptr,
                                       .out = output_of<float>(dim),
                                       .count = plan.blocks,
                                       .columns = dim,
                                       .stride = dim,
                                       .accumulate = 0};
        launch(plan.sum, sum);
        EXPECT_EQ(read(sum.out, dim), std::vector<float>(at(dim), 0.0f));
      }
    }
  }
}

STRATA_GPU_TESTS(GpuRows, "sm_80");

}  // namespace
}  // namespace strata::gpu_tests
