// Kernels of generation, norms of q and k, limits on elements, and updates by elements, against formulas in fp64.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/kernel_test.h"

namespace strata::gpu_tests {
namespace {

constexpr DType kBF16 = DType::kBF16, kF32 = DType::kF32;
constexpr DType kTypes[] = {kBF16, kF32};
using Values = std::vector<double>;

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

class GpuDecoder : public KernelTest {
 protected:
  static double tolerance(DType dtype) { return dtype == kBF16 ? 4e-3 : 3e-6; }
  static Values values(DType dtype, int64_t n, uint32_t seed) {
    return rounded_to(dtype, random_values(at(n), seed));
  }
  float* floats(const Values& of) { return static_cast<float*>(upload(kF32, of)); }
  int32_t* integers(const std::vector<int32_t>& of) { return static_cast<int32_t*>(upload(of)); }
};

// --- Attention with a cache

struct Cached {
  DType dtype = kBF16;
  int64_t length = 1, heads = 4, kv_heads = 2, dim = 16, window = 0;
  bool chunked = false;
  double softcap = 0;
  std::string name() const {
    return fmt::format("{} length {} window {}{} dim {}", name_of(dtype), length, window,
                       chunked ? " chunked" : "", dim);
  }
};

class GpuCache : public GpuDecoder {
 protected:
  static constexpr int64_t kSequences = 2, kEntries = 3, kCapacity = 150;
  const std::vector<int32_t> position_{70, 3}, entries_{2, 0};

  // Rows are [q | k | v]; the caches hold the keys and values before a sequence's position, and nothing else is written.
  Values run(const Cached& p, uint64_t seed) {
    restart(seed);
    const int64_t q = p.heads * p.dim, kv = p.kv_heads * p.dim, width = q + 2 * kv,
                  rows = kSequences * p.length;
    const Values qkv = values(p.dtype, rows * width, 1);
    Values caches[2];
    void* places[2];
    for (const int which : {0, 1}) {
      caches[which] = values(p.dtype, kEntries * kCapacity * kv, 2 + static_cast<uint32_t>(which));
      places[which] = output(p.dtype, kEntries * kCapacity * kv, "cache");
      for (int64_t s = 0; s < kSequences; ++s) write_rows(p.dtype, places[which], caches[which], s, kv);
    }
    std::byte* const from = static_cast<std::byte*>(upload(p.dtype, qkv));
    const int64_t size = size_of(p.dtype);
    const gpu::CacheRowsArgs store{.key_cache = places[0],
                                   .value_cache = places[1],
                                   .keys = from + q * size,
                                   .values = from + (q + kv) * size,
                                   .position = integers(position_),
                                   .entries = integers(entries_),
                                   .stride = width,
                                   .length = static_cast<int32_t>(p.length),
                                   .capacity = kCapacity,
                                   .key_width = static_cast<int32_t>(kv),
                                   .value_width = static_cast<int32_t>(kv)};
    launch(gpu::store_cache_rows(p.dtype, rows, store), store);
    const gpu::AttentionShape shape{.dtype = p.dtype,
                                    .batch = kSequences,
                                    .length = p.length,
                                    .kv_length = kCapacity,
                                    .heads = p.heads,
                                    .kv_heads = p.kv_heads,
                                    .head_dim = p.dim,
                                    .value_dim = p.dim,
                                    .softcap = p.softcap > 0};
    const gpu::AttentionRangesArgs ranges{.rows = output_of<int32_t>(rows * 2),
                                          .tiles = output_of<int32_t>(kSequences * (p.length + 63) / 64 * 4),
                                          .kv_begin = nullptr,
                                          .kv_end = nullptr,
                                          .position = store.position,
                                          .batch = kSequences,
                                          .length = store.length,
                                          .kv_length = kCapacity,
                                          .causal = 1,
                                          .window = static_cast<int32_t>(p.window),
                                          .chunked = p.chunked ? 1 : 0};
    launch(gpu::attention_ranges(shape), ranges);
    gpu::AttentionArgs args{};
    args.q = from;
    args.k = places[0];
    args.v = places[1];
    args.out = output(p.dtype, rows * q, "out");
    args.lse = output_of<float>(rows * p.heads);
    args.rows = ranges.rows;
    args.tiles = ranges.tiles;
    args.entries = store.entries;
    args.q_stride = width;
    args.k_stride = args.v_stride = kv;
    args.out_stride = q;
    args.batch = kSequences;
    args.length = store.length;
    args.kv_length = kCapacity;
    args.heads = static_cast<int32_t>(p.heads);
    args.kv_heads = static_cast<int32_t>(p.kv_heads);
    args.head_dim = args.value_dim = static_cast<int32_t>(p.dim);
    args.scale = 0.3f;
    args.softcap = static_cast<float>(p.softcap);
    launch(gpu::attention_forward(shape), args);
    const Values out = download(p.dtype, args.out, rows * q);
    if (seed == 1) {
      expect_near(out, expected(p, qkv, caches[0], caches[1]), p.dtype == kBF16 ? 1e-2 : 1e-5, 0.5, p.name());
    }
    return out;
  }

 private:
  // Those before the sequence's position.
  void write_rows(DType dtype, void* cache, const Values& content, int64_t sequence, int64_t width) {
    const int64_t size = size_of(dtype), first = entries_[at(sequence)] * kCapacity * width;
    for (int64_t i = 0; i < position_[at(sequence)] * width; ++i) {
      std::array<std::byte, 4> bytes;
      const auto narrow = static_cast<float>(content[at(first + i)]);
      const BF16 half(narrow);
      std::memcpy(bytes.data(), dtype == kBF16 ? static_cast<const void*>(&half) : &narrow, at(size));
      device().write(reinterpret_cast<uint64_t>(cache) + static_cast<uint64_t>((first + i) * size),
                     bytes.data(), at(size));
    }
  }

  Values expected(const Cached& p, const Values& qkv, const Values& keys, const Values& values) const {
    const int64_t q = p.heads * p.dim, kv = p.kv_heads * p.dim, width = q + 2 * kv;
    Values out;
    for (int64_t row = 0; row < kSequences * p.length; ++row) {
      const int64_t s = row / p.length, old = position_[at(s)], place = old + row % p.length;
      int64_t begin = 0;
      if (p.window > 0)
        begin = p.chunked ? place / p.window * p.window : std::max<int64_t>(0, place - p.window + 1);
      for (int64_t head = 0; head < p.heads; ++head) {
        const int64_t column = head / (p.heads / p.kv_heads) * p.dim;
        // Element c of the key (part 0) or value (part 1) at a place.
        const auto element = [&](int part, int64_t key, int64_t c) {
          if (key >= old) return qkv[at((s * p.length + key - old) * width + q + part * kv + column + c)];
          return (part == 0 ? keys : values)[at((entries_[at(s)] * kCapacity + key) * kv + column + c)];
        };
        Values weights;
        double total = 0;
        for (int64_t key = begin; key <= place; ++key) {
          double score = 0;
          for (int64_t c = 0; c < p.dim; ++c)
            score += 0.3 * qkv[at(row * width + head * p.dim + c)] * element(0, key, c);
          if (p.softcap > 0) score = p.softcap * std::tanh(score / p.softcap);
          weights.push_back(std::exp(score));
          total += weights.back();
        }
        for (int64_t c = 0; c < p.dim; ++c) {
          double sum = 0;
          for (int64_t key = begin; key <= place; ++key) sum += weights[at(key - begin)] * element(1, key, c);
          out.push_back(sum / total);
        }
      }
    }
    return out;
  }
};

TEST_P(GpuCache, Attention) {
  for (const DType dtype : kTypes) {
    for (const Cached& one : {Cached{.length = 1}, Cached{.length = 70, .softcap = 0.7},
                              Cached{.length = 5, .dim = 72, .window = 20},
                              Cached{.length = 70, .window = 33, .chunked = true}}) {
      Cached p = one;
      p.dtype = dtype;
      EXPECT_EQ(run(p, 1), run(p, 2)) << p.name();
    }
  }
  run({.dtype = kF32, .length = 3, .heads = 3, .kv_heads = 1, .dim = 9}, 1);
}

// --- Norms of q and k

struct Groups {
  int64_t q_groups, q_width, k_groups, k_width, v;
};

TEST_P(GpuDecoder, NormsOfQAndK) {
  for (const DType dtype : kTypes) {
    for (const Groups& g : {Groups{4, 16, 2, 16, 32}, Groups{3, 9, 1, 9, 9}, Groups{1, 640, 1, 320, 320},
                            Groups{12, 128, 2, 128, 256}}) {
      const int64_t rows = 19, width = g.q_groups * g.q_width + g.k_groups * g.k_width + g.v,
                    n = rows * width, groups = g.q_groups + g.k_groups;
      const double eps = 1e-5f, offset = 0.25;
      const Values x = values(dtype, n, 1), dy = values(dtype, n, 2), q_weight = values(kF32, g.q_width, 3),
                   k_weight = values(kF32, g.k_width, 4);
      Values y = x, dx = dy, rstd, dq(at(g.q_width)), dk(at(g.k_width));
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t group = 0; group < groups; ++group) {
          const bool q = group < g.q_groups;
          const int64_t w = q ? g.q_width : g.k_width,
                        first =
                            r * width + (q ? group * w : g.q_groups * g.q_width + (group - g.q_groups) * w);
          double squares = 0, slope = 0;
          for (int64_t c = 0; c < w; ++c) squares += std::pow(x[at(first + c)], 2);
          const double inverse = 1 / std::sqrt(squares / static_cast<double>(w) + eps);
          rstd.push_back(inverse);
          const auto factor = [&](int64_t c) { return (q ? q_weight : k_weight)[at(c)] + offset; };
          for (int64_t c = 0; c < w; ++c)
            slope += dy[at(first + c)] * factor(c) * x[at(first + c)] * inverse / static_cast<double>(w);
          for (int64_t c = 0; c < w; ++c) {
            const size_t i = at(first + c);
            y[i] = x[i] * inverse * factor(c);
            dx[i] = inverse * (dy[i] * factor(c) - x[i] * inverse * slope);
            (q ? dq : dk)[at(c)] += dy[i] * x[i] * inverse;
          }
        }
      }
      Values bits;
      for (const uint64_t seed : {1, 2}) {
        restart(seed);
        gpu::QkNormArgs args{};
        args.rows = rows;
        args.width = static_cast<int32_t>(width);
        args.q_groups = static_cast<int32_t>(g.q_groups), args.q_width = static_cast<int32_t>(g.q_width);
        args.k_groups = static_cast<int32_t>(g.k_groups), args.k_width = static_cast<int32_t>(g.k_width);
        args.eps = static_cast<float>(eps), args.weight_offset = static_cast<float>(offset);
        args.x = upload(dtype, x);
        args.q_weight = floats(q_weight), args.k_weight = floats(k_weight);
        args.out = output(dtype, n, "y");
        args.rstd = output_of<float>(rows * groups, "rstd");
        launch(gpu::qk_norm_forward(dtype, args), args);
        const std::string what = fmt::format("{} groups of {}", name_of(dtype), g.q_width);
        expect_near(download(dtype, args.out, n), y, tolerance(dtype), 1, what + " y");
        expect_near(download(kF32, args.rstd, rows * groups), rstd, 1e-6, 1, what + " rstd");
        args.dy = upload(dtype, dy);
        const gpu::QkNormWeightPlan plan = gpu::qk_norm_backward_weight(dtype, args);
        args.at_once = plan.at_once;
        args.parts = output_of<float>(plan.parts * (g.q_width + g.k_width), "parts");
        launch(plan.gradients, args);
        gpu::ColumnPartsArgs sum{.parts = args.parts,
                                 .out = output_of<float>(g.q_width),
                                 .count = plan.parts,
                                 .columns = g.q_width,
                                 .stride = g.q_width + g.k_width,
                                 .accumulate = 0};
        launch(plan.q_sum, sum);
        Values found = download(kF32, sum.out, g.q_width);
        expect_near(found, dq, 1e-5, 3, what + " dq");
        EXPECT_EQ(bits.empty() ? found : bits, found) << what;
        bits = found;
        sum.parts += g.q_width, sum.out = output_of<float>(g.k_width), sum.columns = g.k_width;
        launch(plan.k_sum, sum);
        expect_near(download(kF32, sum.out, g.k_width), dk, 1e-5, 3, what + " dk");
        // In the place of dy, then elsewhere.
        args.out = const_cast<void*>(args.dy);
        launch(gpu::qk_norm_backward_input(dtype, args), args);
        expect_near(download(dtype, args.out, n), dx, tolerance(dtype), 1, what + " dx");
        args.dy = upload(dtype, dy), args.out = output(dtype, n, "dx");
        launch(gpu::qk_norm_backward_input(dtype, args), args);
        expect_near(download(dtype, args.out, n), dx, tolerance(dtype), 1, what + " dx");
      }
    }
  }
}

// --- Elements

TEST_P(GpuDecoder, LimitsAndRows) {
  for (const DType dtype : kTypes) {
    restart();
    const int64_t n = 1003, columns = 59;
    const Values x = values(dtype, n, 1), dy = values(dtype, n, 2);
    const double limit = 0.37f;
    Values clamped, gradient, capped;
    for (int64_t i = 0; i < n; ++i) {
      clamped.push_back(rounded_to(dtype, std::clamp(x[at(i)], -limit, limit)));
      gradient.push_back(std::fabs(x[at(i)]) <= limit ? dy[at(i)] : 0);
      capped.push_back(limit * std::tanh(x[at(i)] / limit));
    }
    gpu::ElementArgs args{
        .out = output(dtype, n), .a = upload(dtype, x), .b = nullptr, .n = n, .factor = 0.37f};
    const void* const of_x = args.a;
    launch(gpu::elementwise("clamp", dtype, n), args);
    EXPECT_EQ(download(dtype, args.out, n), clamped);
    if (dtype == kF32) {
      launch(gpu::elementwise("softcap", dtype, n), args);
      expect_near(download(dtype, args.out, n), capped, 1e-6, 1, "softcap");
    }
    args.a = upload(dtype, dy), args.b = of_x;
    launch(gpu::elementwise("clamp_gradient", dtype, n), args);
    EXPECT_EQ(download(dtype, args.out, n), gradient);
    for (const int32_t row : {0, 3, 16}) {
      const gpu::TakeRowArgs take{
          .out = output(dtype, columns), .x = of_x, .index = integers({row}), .columns = columns};
      launch(gpu::elementwise("take_row", dtype, columns), take);
      EXPECT_EQ(download(dtype, take.out, columns),
                Values(x.begin() + row * columns, x.begin() + (row + 1) * columns));
    }
  }
}

// --- Updates: n is a multiple of four or not, and pointers are aligned to vectors or not

TEST_P(GpuDecoder, LionAndAdopt) {
  for (const bool is_lion : {true, false}) {
    for (const std::pair<int64_t, int64_t>& size :
         {std::pair<int64_t, int64_t>{1000, 0}, {999, 0}, {1000, 1}}) {
      const int64_t n = size.first, skipped = size.second;
      for (const int64_t update : {1, 7}) {
        restart();
        const auto list = [&](uint32_t seed) {
          const Values of = values(kF32, n, seed);
          return std::vector<float>(of.begin(), of.end());
        };
        std::vector<float> p = list(1), m = list(2), g = list(3), v = list(4);
        for (float& value : v) value = std::fabs(value);
        const double b1 = 0.9, b2 = 0.99, rate = static_cast<double>(0.01f) * 0.5, eps = 1e-6f;
        Values new_p, new_m, new_v;
        for (int64_t i = 0; i < n; ++i) {
          const double gradient = static_cast<double>(g[at(i)]) * 0.5, old = m[at(i)],
                       kept = static_cast<double>(p[at(i)]) * (1 - rate * static_cast<double>(0.1f));
          if (is_lion) {
            const double mixed = b1 * old + (1 - b1) * gradient;
            new_p.push_back(kept - rate * (mixed > 0 ? 1 : mixed < 0 ? -1 : 0));
            new_m.push_back(b2 * old + (1 - b2) * gradient);
            new_v.push_back(v[at(i)]);
          } else if (update == 1) {
            new_p.push_back(p[at(i)]), new_m.push_back(old), new_v.push_back(gradient * gradient);
          } else {
            const double most = std::pow(6, 0.25),
                         normed =
                             std::clamp(gradient / std::max(std::sqrt(double{v[at(i)]}), eps), -most, most);
            new_m.push_back(b1 * old + (1 - b1) * normed);
            new_p.push_back(kept - rate * new_m.back());
            new_v.push_back(b2 * double{v[at(i)]} + (1 - b2) * gradient * gradient);
          }
        }
        const gpu::GpuUpdateScalars scalars{.lr = 0.01f, .grad_scale = 0.5f, .skip = 0, .update = update};
        const gpu::ElementUpdateArgs args{.master = upload_all(p, skipped),
                                          .m = upload_all(m, skipped),
                                          .v = upload_all(v, skipped),
                                          .grad = upload_all(g, skipped),
                                          .copy = nullptr,
                                          .scalars = upload_all(std::vector{scalars}),
                                          .n = n,
                                          .beta1 = b1,
                                          .beta2 = b2,
                                          .eps = static_cast<float>(eps),
                                          .weight_decay = 0.1f,
                                          .lr_scale = 0.5f};
        launch(gpu::element_update(is_lion ? "lion" : "adopt", n), args);
        const auto doubles = [&](const float* from) {
          const std::vector<float> found = read(from, n);
          return Values(found.begin(), found.end());
        };
        const std::string what = fmt::format("{} {} {}", is_lion ? "lion" : "adopt", n, update);
        expect_near(doubles(args.master), new_p, 1e-6, 1, what + " p");
        expect_near(doubles(args.m), new_m, 1e-6, 1, what + " m");
        expect_near(doubles(args.v), new_v, 1e-6, 1, what + " v");
      }
    }
  }
}

STRATA_GPU_TESTS(GpuCache, "sm_80");
STRATA_GPU_TESTS(GpuDecoder, "sm_80");

}  // namespace
}  // namespace strata::gpu_tests
