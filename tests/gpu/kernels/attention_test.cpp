// Attention, forward and backward, against the formulas in fp64.
#include <fmt/core.h>

#include <limits>

#include "kernels/kernel_test.h"

namespace strata::gpu_tests {
namespace {

struct Problem {
  DType dtype = DType::kBF16;
  int64_t batch = 1, length = 100, kv_length = 0, heads = 2, kv_heads = 1, head_dim = 64, value_dim = 0;
  bool causal = true;
  int64_t window = 0;
  int64_t document = 0;  // tokens; 0: none
  bool padding = false;  // the last rows see no keys
  bool sinks = false;
  double softcap = 0;
};

struct Result {
  std::vector<double> out, lse, dq, dk, dv, dsinks;
  bool operator==(const Result&) const = default;
};

struct Reference {
  Problem p;
  double scale;
  std::vector<double> q, k, v, dout, sinks;
  std::vector<int32_t> begins, ends;

  Result compute() const {
    const int64_t h = p.heads, kh = p.kv_heads, d = p.head_dim, vd = p.value_dim, n = p.length,
                  m = p.kv_length;
    Result r;
    r.out.resize(static_cast<size_t>(p.batch * n * h * vd)),
        r.lse.resize(static_cast<size_t>(p.batch * h * n));
    r.dq.resize(q.size()), r.dk.resize(k.size()), r.dv.resize(v.size()), r.dsinks.resize(sinks.size());
    const auto at = [](int64_t i) { return static_cast<size_t>(i); };
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t head = 0; head < h; ++head) {
        for (int64_t i = 0; i < n; ++i) {
          const int64_t kv = head / (h / kh), row = b * n + i;
          const double* query = q.data() + (row * h + head) * d;
          const double* gradient = dout.data() + (row * h + head) * vd;
          double* out = r.out.data() + (row * h + head) * vd;
          const int64_t begin = begins[at(row)], end = std::max<int64_t>(begin, ends[at(row)]);
          std::vector<double> scores, slopes;
          double highest = p.sinks ? sinks[at(head)] : -std::numeric_limits<double>::infinity();
          for (int64_t j = begin; j < end; ++j) {
            double score = 0, slope = 1;
            for (int64_t c = 0; c < d; ++c)
              score += scale * query[c] * k[at(((b * m + j) * kh + kv) * d + c)];
            if (p.softcap > 0) {
              const double bend = std::tanh(score / p.softcap);
              score = p.softcap * bend, slope = 1 - bend * bend;
            }
            scores.push_back(score), slopes.push_back(slope);
            highest = std::max(highest, score);
          }
          double total = p.sinks ? std::exp(sinks[at(head)] - highest) : 0;
          for (const double score : scores) total += std::exp(score - highest);
          r.lse[at((b * h + head) * n + i)] = total == 0 ? highest : highest + std::log(total);
          double drift = 0;
          for (int64_t j = begin; j < end; ++j) {
            const double weight = std::exp(scores[at(j - begin)] - highest) / total;
            for (int64_t c = 0; c < vd; ++c) out[c] += weight * v[at(((b * m + j) * kh + kv) * vd + c)];
          }
          for (int64_t c = 0; c < vd; ++c) drift += out[c] * gradient[c];
          r.dsinks[at(head)] -= p.sinks ? std::exp(sinks[at(head)] - highest) / total * drift : 0;
          for (int64_t j = begin; j < end; ++j) {
            const double weight = std::exp(scores[at(j - begin)] - highest) / total;
            double ds = -drift;
            for (int64_t c = 0; c < vd; ++c) {
              ds += gradient[c] * v[at(((b * m + j) * kh + kv) * vd + c)];
              r.dv[at(((b * m + j) * kh + kv) * vd + c)] += weight * gradient[c];
            }
            ds *= weight * slopes[at(j - begin)] * scale;
            for (int64_t c = 0; c < d; ++c) {
              r.dq[at((row * h + head) * d + c)] += ds * k[at(((b * m + j) * kh + kv) * d + c)];
              r.dk[at(((b * m + j) * kh + kv) * d + c)] += ds * query[c];
            }
          }
        }
      }
    }
    return r;
  }
};

class GpuAttention : public KernelTest {
 protected:
  Result run(Problem p, bool check = true) {
    restart();
    if (p.kv_length == 0) p.kv_length = p.length;
    if (p.value_dim == 0) p.value_dim = p.head_dim;
    const int64_t rows = p.batch * p.length, kv_rows = p.batch * p.kv_length;
    const auto values = [&](int64_t n, uint32_t seed) {
      return rounded_to(p.dtype, random_values(static_cast<size_t>(n), seed));
    };
    Reference reference{.p = p,
                        .scale = static_cast<float>(1.7 / std::sqrt(static_cast<double>(p.head_dim))),
                        .q = values(rows * p.heads * p.head_dim, 1),
                        .k = values(kv_rows * p.kv_heads * p.head_dim, 2),
                        .v = values(kv_rows * p.kv_heads * p.value_dim, 3),
                        .dout = values(rows * p.heads * p.value_dim, 4),
                        .sinks = rounded_to(DType::kF32, random_values(static_cast<size_t>(p.heads), 5)),
                        .begins = {},
                        .ends = {}};
    std::vector<int32_t> kv_begin, kv_end;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t i = row % p.length;
      const int64_t begin = p.document > 0 ? i / p.document * p.document : 0;
      int64_t end = p.document > 0 ? std::min(p.kv_length, begin + p.document) : p.kv_length;
      if (p.padding && i >= p.length - 5) end = 0;
      kv_begin.push_back(static_cast<int32_t>(begin));
      kv_end.push_back(static_cast<int32_t>(end));
      reference.begins.push_back(static_cast<int32_t>(std::max(begin, p.window > 0 ? i - p.window + 1 : 0)));
      reference.ends.push_back(static_cast<int32_t>(p.causal ? std::min(end, i + 1) : end));
    }
    const gpu::AttentionShape shape{.dtype = p.dtype,
                                    .batch = p.batch,
                                    .length = p.length,
                                    .kv_length = p.kv_length,
                                    .heads = p.heads,
                                    .kv_heads = p.kv_heads,
                                    .head_dim = p.head_dim,
                                    .value_dim = p.value_dim,
                                    .softcap = p.softcap > 0};
    const int64_t tiles = (p.length + 63) / 64;
    const bool documents = p.document > 0 || p.padding;
    const gpu::AttentionRangesArgs ranges{
        .rows = output_of<int32_t>(rows * 2, "rows"),
        .tiles = output_of<int32_t>(p.batch * tiles * 4, "tiles"),
        .kv_begin = documents ? static_cast<int32_t*>(upload(kv_begin, "kv_begin")) : nullptr,
        .kv_end = documents ? static_cast<int32_t*>(upload(kv_end, "kv_end")) : nullptr,
        .position = nullptr,
        .batch = static_cast<int32_t>(p.batch),
        .length = static_cast<int32_t>(p.length),
        .kv_length = static_cast<int32_t>(p.kv_length),
        .causal = p.causal,
        .window = static_cast<int32_t>(p.window),
        .chunked = 0};
    launch(gpu::attention_ranges(shape), ranges);
    const gpu::AttentionArgs args{
        .q = upload(p.dtype, reference.q, "q"),
        .k = upload(p.dtype, reference.k, "k"),
        .v = upload(p.dtype, reference.v, "v"),
        .out = output(p.dtype, rows * p.heads * p.value_dim, "out"),
        .lse = output_of<float>(rows * p.heads, "lse"),
        .sinks = p.sinks ? static_cast<float*>(upload(DType::kF32, reference.sinks, "sinks")) : nullptr,
        .rows = ranges.rows,
        .tiles = ranges.tiles,
        .entries = nullptr,
        .q_stride = p.heads * p.head_dim,
        .k_stride = p.kv_heads * p.head_dim,
        .v_stride = p.kv_heads * p.value_dim,
        .out_stride = p.heads * p.value_dim,
        .batch = static_cast<int32_t>(p.batch),
        .length = static_cast<int32_t>(p.length),
        .kv_length = static_cast<int32_t>(p.kv_length),
        .heads = static_cast<int32_t>(p.heads),
        .kv_heads = static_cast<int32_t>(p.kv_heads),
        .head_dim = static_cast<int32_t>(p.head_dim),
        .value_dim = static_cast<int32_t>(p.value_dim),
        .scale = static_cast<float>(reference.scale),
        .softcap = static_cast<float>(p.softcap),
        .dout = upload(p.dtype, reference.dout, "dout"),
        .delta = output_of<float>(rows * p.heads, "delta"),
        .dq = output(p.dtype, rows * p.heads * p.head_dim, "dq"),
        .dk = output(p.dtype, kv_rows * p.kv_heads * p.head_dim, "dk"),
        .dv = output(p.dtype, kv_rows * p.kv_heads * p.value_dim, "dv")};
    launch(gpu::attention_forward(shape), args);
    Result result{.out = download(p.dtype, args.out, rows * p.heads * p.value_dim),
                  .lse = download(DType::kF32, args.lse, rows * p.heads),
                  .dq = {},
                  .dk = {},
                  .dv = {},
                  .dsinks = std::vector<double>(static_cast<size_t>(p.heads))};
    for (const gpu::KernelLaunch& one : gpu::attention_backward(shape)) launch(one, args);
    result.dq = download(p.dtype, args.dq, rows * p.heads * p.head_dim);
    result.dk = download(p.dtype, args.dk, kv_rows * p.kv_heads * p.head_dim);
    result.dv = download(p.dtype, args.dv, kv_rows * p.kv_heads * p.value_dim);
    if (p.sinks) {
      const gpu::SinkGradArgs sinks{
          .dsinks = static_cast<float*>(upload(DType::kF32, result.dsinks, "dsinks")),
          .sinks = args.sinks,
          .lse = args.lse,
          .delta = args.delta,
          .batch = args.batch,
          .heads = args.heads,
          .length = args.length};
      launch(gpu::sink_gradient(shape), sinks);
      result.dsinks = download(DType::kF32, sinks.dsinks, p.heads);
    }
    if (check) {
      const Result expected = reference.compute();
      const std::string what =
          fmt::format("head {} length {} window {} document {}", p.head_dim, p.length, p.window, p.document);
      const double tolerance = p.dtype == DType::kBF16 ? 1e-2 : 1e-5;
      expect_near(result.out, expected.out, tolerance, 0.5, what + " out");
      expect_near(result.lse, expected.lse, 1e-5, 1, what + " lse");
      const auto norm = [](const std::vector<double>& of) {
        double sum = 0;
        for (const double value : of) sum += value * value;
        return 3 * std::sqrt(sum / static_cast<double>(of.size()));
      };
      expect_near(result.dq, expected.dq, 2 * tolerance, norm(expected.dq), what + " dq");
      expect_near(result.dk, expected.dk, 2 * tolerance, norm(expected.dk), what + " dk");
      expect_near(result.dv, expected.dv, 2 * tolerance, norm(expected.dv), what + " dv");
      expect_near(result.dsinks, expected.dsinks, 2 * tolerance, 1, what + " dsinks");
    }
    return result;
  }
};

TEST_P(GpuAttention, Masks) {
  run({.length = 200, .heads = 4, .kv_heads = 2});
  run({.batch = 2, .length = 70, .window = 20, .sinks = true});
  run({.length = 150, .document = 40});
  run({.length = 150, .causal = false, .document = 70, .padding = true});
  run({.length = 40, .kv_length = 90, .causal = false, .padding = true, .sinks = true});
  run({.length = 100, .softcap = 1.5});
}

TEST_P(GpuAttention, HeadSizes) {
  for (const int64_t size : {8, 32, 80, 128, 192, 256}) run({.length = 80, .heads = 1, .head_dim = size});
  run({.length = 80, .heads = 2, .head_dim = 192, .value_dim = 128});
}

TEST_P(GpuAttention, PlainTiles) {
  constexpr DType kF32 = DType::kF32;
  run({.dtype = kF32, .length = 70, .heads = 4, .kv_heads = 2, .head_dim = 20});
  run({.dtype = kF32, .batch = 2, .length = 40, .head_dim = 72, .value_dim = 24, .window = 9, .sinks = true});
  run({.dtype = kF32,
       .length = 33,
       .kv_length = 70,
       .head_dim = 16,
       .causal = false,
       .document = 20,
       .padding = true,
       .sinks = true});
  run({.dtype = kF32, .length = 34, .heads = 1, .head_dim = 132, .softcap = 1.5});
}

STRATA_GPU_TESTS(GpuAttention, "sm_80");

}  // namespace
}  // namespace strata::gpu_tests
