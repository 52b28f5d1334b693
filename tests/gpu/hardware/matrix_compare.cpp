#include "hardware/matrix_compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "hardware/compare.h"
#include "ptx/accumulation.h"

namespace strata::gpu_tests {
namespace {

constexpr size_t kOut = kMatrixResults;

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

std::string name_of(const AccumulationModel& model) {
  return fmt::format("groups of {}, {} bits, {} exponents, cut {}, rounded {}{}", model.group, model.fraction,
                     model.normalized ? "normalized" : "factors'", model.floor ? "down" : "to zero",
                     model.nearest ? "to nearest" : "to zero", model.apart ? ", sum apart" : "");
}

std::vector<AccumulationModel> accumulation_models(unsigned depth) {
  std::vector<AccumulationModel> models;
  for (unsigned group = 4; group <= depth; group *= 2) {
    for (unsigned fraction = 22; fraction <= 30; ++fraction) {
      for (unsigned choice = 0; choice < 16; ++choice) {
        models.push_back(
            {group, fraction, (choice & 1) != 0, (choice & 2) != 0, (choice & 4) != 0, (choice & 8) != 0});
      }
    }
  }
  return models;
}

bool same(uint32_t x, uint32_t y) {
  return x == y || (std::isnan(as_float(x)) && std::isnan(as_float(y)));
}

}  // namespace

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
  // Terms of adjacent k cancel except for a bit now and then.
  const uint32_t sign = 1u << (shape.format.exponent + shape.format.mantissa);
  for (size_t n = 0; n < batch.a.size(); n += 2)
    batch.a[n + 1] = batch.a[n] ^ sign ^ (drawing.next() % 8 == 0 ? 1 : 0);
  for (size_t n = 0; n < batch.b.size(); ++n) {
    if (n / 8 % 2 == 1) batch.b[n] = batch.b[n - 8];
  }
  return batch;
}

std::string matrix_report_header() {
  return "kind,shape,type,spread,results,same,largest_ulp,mean_error_ulp,model\n";
}

std::string matrix_report(const MatrixShape& shape, size_t spread, const MatrixBatch& batch,
                          const std::vector<uint32_t>& executor, const std::vector<uint32_t>& hopper,
                          const std::vector<uint32_t>& card) {
  const auto line = [&](const char* kind, size_t results, size_t equal, uint64_t ulp, double bias,
                        const std::string& model) {
    return fmt::format("{},{},{},{},{},{},{},{:.4f},\"{}\"\n", kind, shape.name, shape.type,
                       kSpreads[spread].name, results, equal, ulp, bias, model);
  };
  // Errors against the sum in long double, in units in the result's last place; negative: towards zero.
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
  const auto against_card = [&](const char* kind, const std::vector<uint32_t>& results) {
    size_t equal = 0;
    uint64_t largest = 0;
    for (size_t n = 0; n < card.size(); ++n) {
      equal += same(results[n], card[n]) ? 1 : 0;
      const uint64_t distance = ulp_distance('f', results[n], card[n]);
      if (distance != kNotNumbers) largest = std::max(largest, distance);
    }
    text += line(kind, card.size(), equal, largest, 0, "card");
  };
  against_card("sequential", executor);
  against_card("hopper", hopper);

  // All models on some of the results, then the best on all results.
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
  const auto more_equal = [](const Score& x, const Score& y) { return x.equal > y.equal; };
  std::stable_sort(scores.begin(), scores.end(), more_equal);
  scores.resize(std::min<size_t>(scores.size(), 8));
  for (Score& score : scores) score.equal = count_equal(score.model, card.size());
  std::stable_sort(scores.begin(), scores.end(), more_equal);
  for (const Score& score : scores)
    text += line("model", card.size(), score.equal, 0, 0, name_of(score.model));
  return text;
}

std::string matrix_samples(const MatrixShape& shape, const MatrixBatch& batch,
                           const std::vector<uint32_t>& executor, const std::vector<uint32_t>& card) {
  constexpr size_t kDiffering = 3, kOthers = 1;
  size_t differing = 0, others = 0;
  std::string text;
  for (size_t n = 0; n < card.size() && differing + others < kDiffering + kOthers; n += 37) {
    const bool differs = !same(executor[n], card[n]);
    if (differs ? differing == kDiffering : others == kOthers) continue;
    ++(differs ? differing : others);
    const Dot dot = dot_of(shape, batch, n);
    text += fmt::format("{} {}", shape.name, shape.type);
    for (const uint32_t value : dot.a) text += fmt::format(" {:x}", value);
    for (const uint32_t value : dot.b) text += fmt::format(" {:x}", value);
    text += fmt::format(" {:x} {:x}\n", dot.c, card[n]);
  }
  return text;
}

}  // namespace strata::gpu_tests
