#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/rope.h"

namespace strata::cpu {
namespace {

// Long wavelengths are stretched by `factor`, short ones kept, those between interpolated.
double llama3_frequency(double f, const RopeScaling& s) {
  const double wavelength = 2 * std::numbers::pi / f;
  if (wavelength < s.original_max_positions / s.high_freq_factor) return f;
  if (wavelength > s.original_max_positions / s.low_freq_factor) return f / s.factor;
  const double share =
      (s.original_max_positions / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - share) * f / s.factor + share * f;
}

}  // namespace

std::vector<double> rope_frequencies(int64_t rotary_dim, double theta, const RopeScaling& scaling) {
  STRATA_CHECK(rotary_dim >= 0 && rotary_dim % 2 == 0,
               "[rope_frequencies] rotary_dim is {}; an even number was expected", rotary_dim);
  std::vector<double> frequencies(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double f = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
    switch (scaling.kind) {
      case RopeScalingKind::kNone:
        frequencies[i] = f;
        break;
      case RopeScalingKind::kLinear:
        frequencies[i] = f / scaling.factor;
        break;
      case RopeScalingKind::kLlama3:
        frequencies[i] = llama3_frequency(f, scaling);
        break;
    }
  }
  return frequencies;
}

void fill_rope_table(float* table, int64_t max_positions, int64_t rotary_dim, double theta,
                     const RopeScaling& scaling) {
  const std::vector<double> frequencies = rope_frequencies(rotary_dim, theta, scaling);
  parallel_ranges(max_positions, 64, [&](int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end; ++position) {
      float* row = table + position * rotary_dim;
      for (const double f : frequencies) {
        const double angle = static_cast<double>(position) * f;
        *row++ = static_cast<float>(std::cos(angle));
        *row++ = static_cast<float>(std::sin(angle));
      }
    }
  });
}

}  // namespace strata::cpu
