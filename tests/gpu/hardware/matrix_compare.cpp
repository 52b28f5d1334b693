#include "hardware/matrix_compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "hardware/accumulation.h"
#include "hardware/compare.h"

namespace strata::gpu_tests {
namespace {

constexpr size_t kOut = 16 * 8;

struct Spread {
  const char* name;
  int low, high;          // exponents of a and b
  int sum_low, sum_high;  // exponents of c
};
constexpr Spread kSpreads[] = {
    {"integers", 0, 0, 0, 0},      {"uniform", 0, 0, 0, 0},         {"positive", 0, 0, 0, 0},
    {"exponents 4", -4, 0, -8, 0}, {"exponents 12", -9, 3, -18, 6}, {"exponents 28", -14, 14, -28, 28},
    {"cancelling", -4, 0, -30, 0}, {"large c", -4, 0, 0, 28},       {"small c", -4, 0, -40, -10},
    {"zeros", -9, 3, -18, 6},      {"specials", -14, 14, -28, 28},  {"denormals", -69, -58, -127, -118},
    {"overflow", 60, 64, 120, 127}};

class Drawing {
 public:
  Drawing(const MatrixShape& shape, size_t spread)
      : format_(shape.format),
        spread_(kSpreads[spread]),
        name_(spread_.name),
        random_(spread * 100 + shape.depth + shape.type.size()) {}

  uint32_t factor() {
    if (name_ == "integers") return encoded(static_cast<double>(random_() % 17) - 8);
    if (name_ == "uniform") return encoded(unit() * 2 - 1);
    if (name_ == "positive") return encoded(unit());
    if (name_ == "zeros" && random_() % 2 == 0) return encoded(random_() % 2 == 0 ? 0.0 : -0.0);
    if (name_ == "specials" && random_() % 24 == 0) return special(format_);
    return with_exponent(format_, spread_.low, spread_.high);
  }
  uint32_t sum() {
    constexpr Format kSingle{8, 23};
    if (name_ == "integers") return static_cast<uint32_t>(bits(static_cast<float>(random_() % 257) - 128));
    if (name_ == "uniform") return static_cast<uint32_t>(bits(static_cast<float>(unit() * 2 - 1)));
    if (name_ == "positive") return static_cast<uint32_t>(bits(static_cast<float>(unit())));
    if (name_ == "zeros" && random_() % 2 == 0) return random_() % 2 == 0 ? 0 : 0x8000'0000;
    if (name_ == "specials" && random_() % 24 == 0) return special(kSingle);
    return with_exponent(kSingle, spread_.sum_low, spread_.sum_high);
  }
  bool cancels() const { return name_ == "cancelling"; }
  uint64_t next() { return random_(); }

 private:
  double unit() { return std::ldexp(static_cast<double>(random_() >> 11), -53); }
  uint32_t encoded(double value) const { return narrow(value, format_, Rounding::kNearest); }
  uint32_t with_exponent(Format format, int low, int high) {
    const int bias = (1 << (format.exponent - 1)) - 1;
    const int exponent = low + static_cast<int>(random_() % static_cast<uint64_t>(high - low + 1)) + bias;
    const auto field = static_cast<uint32_t>(std::clamp(exponent, 0, 2 * bias));
    const auto rest = static_cast<uint32_t>(random_());
    return (rest >> 31) << (format.exponent + format.mantissa) | field << format.mantissa |
           (rest & ((1u << format.mantissa) - 1));
  }
  uint32_t special(Format format) {
    const uint32_t infinity = ((1u << format.exponent) - 1) << format.mantissa;
    const uint32_t values[] = {0,
                               infinity,
                               infinity | 1u << (format.mantissa - 1),
                               infinity | 1,
                               1,
                               (1u << format.mantissa) - 1,
                               infinity - 1,
                               0};
    return values[random_() % 8] | static_cast<uint32_t>(random_() % 2)
                                       << (format.exponent + format.mantissa);
  }

  Format format_;
  Spread spread_;
  std::string name_;
  std::mt19937_64 random_;
};

bool is_tensor(const MatrixShape& shape) {
  return shape.type == "tf32";
}

std::string mma_body(const MatrixShape& shape) {
  const unsigned a = shape.depth / (is_tensor(shape) ? 2 : 4), stride = a + a / 2 + 4;
  std::string body = fmt::format(
      "mov.u32 %r0, %tid.x;\nmov.u32 %r31, %ctaid.x;\nmov.u32 %r30, %ntid.x;\nmad.lo.s32 %r0, %r31, %r30, "
      "%r0;\n"
      "mul.wide.u32 %x0, %r0, {};\nadd.s64 %x0, %x0, %in;\nmul.wide.u32 %x1, %r0, 16;\nadd.s64 %x1, %x1, "
      "%out;\n",
      stride * 4);
  for (unsigned n = 0; n < stride; ++n) body += fmt::format("ld.global.b32 %r{}, [%x0+{}];\n", n + 1, n * 4);
  const auto list = [](unsigned first, unsigned count) {
    std::string text = "{";
    for (unsigned n = 0; n < count; ++n) text += fmt::format("{}%r{}", n == 0 ? "" : ", ", first + n);
    return text + "}";
  };
  const std::string c = list(1 + a + a / 2, 4);
  return body +
         fmt::format(
             "mma.sync.aligned.{}.row.col.f32.{}.{}.f32 {}, {}, {}, {};\nst.global.v4.b32 [%x1], {};\n",
             shape.name, shape.type, shape.type, c, list(1, a), list(1 + a, a / 2), c, c);
}

// The words of every lane, as the PTX ISA lays fragments out.
std::vector<uint32_t> packed(const MatrixShape& shape, const MatrixBatch& batch) {
  const unsigned depth = shape.depth, a_words = depth / (is_tensor(shape) ? 2 : 4);
  std::vector<uint32_t> words;
  for (size_t m = 0; m < batch.count; ++m) {
    const uint32_t* a = batch.a.data() + m * 16 * depth;
    const uint32_t* b = batch.b.data() + m * depth * 8;
    const uint32_t* c = batch.c.data() + m * kOut;
    for (unsigned lane = 0; lane < 32; ++lane) {
      const unsigned group = lane / 4, place = lane % 4;
      for (unsigned n = 0; n < a_words; ++n) {
        const uint32_t* row = a + (group + n % 2 * 8) * depth;
        const unsigned column = place * 2 + n / 2 * 8;
        words.push_back(is_tensor(shape) ? row[place + n / 2 * 4] << 13
                                         : row[column] | row[column + 1] << 16);
      }
      for (unsigned n = 0; n < a_words / 2; ++n) {
        const unsigned row = place * 2 + n * 8;
        words.push_back(is_tensor(shape) ? b[(place + n * 4) * 8 + group] << 13
                                         : b[row * 8 + group] | b[(row + 1) * 8 + group] << 16);
      }
      for (unsigned n = 0; n < 4; ++n) words.push_back(c[(group + n / 2 * 8) * 8 + place * 2 + n % 2]);
    }
  }
  return words;
}

struct Dot {
  std::vector<uint32_t> a, b;
  uint32_t c;
};
Dot dot_of(const MatrixShape& shape, const MatrixBatch& batch, size_t at) {
  const size_t m = at / kOut, row = at % kOut / 8, column = at % 8;
  Dot dot;
  for (unsigned k = 0; k < shape.depth; ++k) {
    dot.a.push_back(batch.a[(m * 16 + row) * shape.depth + k]);
    dot.b.push_back(batch.b[(m * shape.depth + k) * 8 + column]);
  }
  dot.c = batch.c[at];
  return dot;
}

double value_of(uint32_t bits, const MatrixShape& shape) {
  if (is_tensor(shape)) return as_float(uint64_t{bits} << 13);
  return shape.type == "f16" ? half_value(static_cast<uint16_t>(bits))
                             : brain_value(static_cast<uint16_t>(bits));
}

bool same(uint32_t x, uint32_t y) {
  return x == y || (std::isnan(as_float(x)) && std::isnan(as_float(y)));
}

}  // namespace

std::vector<MatrixShape> matrix_shapes() {
  return {{"m16n8k16", "bf16", 16, kBrain},  {"m16n8k8", "bf16", 8, kBrain},
          {"m16n8k16", "f16", 16, kHalf},    {"m16n8k8", "f16", 8, kHalf},
          {"m16n8k8", "tf32", 8, kTensor32}, {"m16n8k4", "tf32", 4, kTensor32}};
}

std::vector<std::string> matrix_spreads() {
  std::vector<std::string> names;
  for (const Spread& spread : kSpreads) names.emplace_back(spread.name);
  return names;
}

MatrixBatch draw_matrices(const MatrixShape& shape, size_t spread, size_t count) {
  Drawing drawing(shape, spread);
  MatrixBatch batch;
  batch.count = count;
  for (size_t n = 0; n < count * 16 * shape.depth; ++n) batch.a.push_back(drawing.factor());
  for (size_t n = 0; n < count * shape.depth * 8; ++n) batch.b.push_back(drawing.factor());
  for (size_t n = 0; n < count * kOut; ++n) batch.c.push_back(drawing.sum());
  if (!drawing.cancels()) return batch;
  // Products of neighbouring k cancel, all but a bit here and there.
  const uint32_t sign = 1u << (shape.format.exponent + shape.format.mantissa);
  for (size_t n = 0; n < batch.a.size(); n += 2)
    batch.a[n + 1] = batch.a[n] ^ sign ^ (drawing.next() % 8 == 0 ? 1 : 0);
  for (size_t n = 0; n < batch.b.size(); ++n) {
    if (n / 8 % 2 == 1) batch.b[n] = batch.b[n - 8];
  }
  return batch;
}

std::vector<uint32_t> multiply_matrices(GpuDevice& device, const MatrixShape& shape,
                                        const MatrixBatch& batch) {
  const std::vector<uint32_t> in = packed(shape, batch);
  const KernelId kernel = device.load(kernel_text(mma_body(shape)), "mma.ptx", "test");
  const uint64_t from = device.allocate(in.size() * 4, "in"),
                 to = device.allocate(batch.count * kOut * 4, "out");
  device.write(from, in.data(), in.size() * 4);
  device.launch(kernel, {.grid = {static_cast<unsigned>(batch.count / 4)}, .block = {128}}, to, from);
  std::vector<uint32_t> lanes(batch.count * kOut), out(lanes.size());
  device.read(to, lanes.data(), lanes.size() * 4);
  device.free(from);
  device.free(to);
  for (size_t n = 0; n < lanes.size(); ++n) {
    const size_t lane = n % kOut / 4, word = n % 4;
    out[n / kOut * kOut + (lane / 4 + word / 2 * 8) * 8 + lane % 4 * 2 + word % 2] = lanes[n];
  }
  return out;
}

std::string matrix_report_header() {
  return "kind,shape,type,spread,results,same,largest_ulp,mean_error_ulp,model\n";
}

std::string matrix_report(const MatrixShape& shape, size_t spread, const MatrixBatch& batch,
                          const std::vector<uint32_t>& executor, const std::vector<uint32_t>& card) {
  const auto line = [&](const char* kind, size_t results, size_t equal, uint64_t ulp, double bias,
                        const std::string& model) {
    return fmt::format("{},{},{},{},{},{},{},{:.4f},\"{}\"\n", kind, shape.name, shape.type,
                       kSpreads[spread].name, results, equal, ulp, bias, model);
  };
  // Errors against the sum in long double, in units of the result's last place; negative: towards zero.
  std::string text;
  const auto against_exact = [&](const char* kind, const std::vector<uint32_t>& results) {
    size_t equal = 0, counted = 0;
    uint64_t largest = 0;
    double error = 0;
    for (size_t n = 0; n < results.size(); ++n) {
      const Dot dot = dot_of(shape, batch, n);
      long double sum = as_float(dot.c);
      for (size_t k = 0; k < dot.a.size(); ++k)
        sum += static_cast<long double>(value_of(dot.a[k], shape)) *
               static_cast<long double>(value_of(dot.b[k], shape));
      const auto nearest = static_cast<float>(sum);
      equal += same(static_cast<uint32_t>(bits(nearest)), results[n]) ? 1 : 0;
      const uint64_t distance = ulp_distance('f', bits(nearest), results[n]);
      if (distance != kNotNumbers) largest = std::max(largest, distance);
      const float got = as_float(results[n]);
      if (!std::isfinite(got) || !std::isfinite(nearest) || nearest == 0) continue;
      const double unit = std::ldexp(1.0, std::max(std::ilogb(nearest), -126) - 23);
      error += static_cast<double>(std::fabs(static_cast<long double>(got)) - std::fabs(sum)) / unit;
      ++counted;
    }
    text += line(kind, results.size(), equal, largest,
                 counted == 0 ? 0 : error / static_cast<double>(counted), "exact sum");
  };
  against_exact("executor", executor);
  against_exact("card", card);
  size_t equal = 0;
  uint64_t largest = 0;
  for (size_t n = 0; n < card.size(); ++n) {
    equal += same(executor[n], card[n]) ? 1 : 0;
    const uint64_t distance = ulp_distance('f', executor[n], card[n]);
    if (distance != kNotNumbers) largest = std::max(largest, distance);
  }
  text += line("card", card.size(), equal, largest, 0, "executor");

  // The models on a part of the results, the best of them on all.
  struct Score {
    AccumulationModel model;
    size_t equal = 0;
  };
  std::vector<Score> scores;
  const auto count_equal = [&](const AccumulationModel& model, size_t results) {
    size_t found = 0;
    for (size_t n = 0; n < results; ++n) {
      const Dot dot = dot_of(shape, batch, n);
      found += same(model(dot.a, dot.b, dot.c, shape.format), card[n]) ? 1 : 0;
    }
    return found;
  };
  for (const AccumulationModel& model : accumulation_models(shape.depth))
    scores.push_back({model, count_equal(model, std::min<size_t>(card.size(), 1024))});
  std::stable_sort(scores.begin(), scores.end(),
                   [](const Score& x, const Score& y) { return x.equal > y.equal; });
  for (size_t n = 0; n < std::min<size_t>(scores.size(), 8); ++n)
    text +=
        line("model", card.size(), count_equal(scores[n].model, card.size()), 0, 0, scores[n].model.name());
  return text;
}

}  // namespace strata::gpu_tests
