#include "ptx/accumulation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace strata::gpu_tests {
namespace {

constexpr Format kSingle{8, 23};
constexpr uint32_t kInfinity = 0x7f80'0000, kSign = 0x8000'0000;

// significand · 2^(exponent - fraction)
struct Term {
  int64_t significand = 0;
  int exponent = 0;
  int fraction = 0;
};

struct Number {
  Term term;
  bool infinite = false, nan = false, negative = false;
};

Number number_of(uint32_t bits, Format format) {
  const uint32_t most = (1u << format.exponent) - 1;
  const uint32_t exponent = bits >> format.mantissa & most;
  const uint32_t mantissa = bits & ((1u << format.mantissa) - 1);
  Number number;
  number.negative = (bits >> (format.exponent + format.mantissa) & 1) != 0;
  number.infinite = exponent == most && mantissa == 0;
  number.nan = exponent == most && mantissa != 0;
  const int64_t significand = exponent == 0 ? mantissa : mantissa | 1u << format.mantissa;
  number.term.significand = number.negative ? -significand : significand;
  number.term.exponent =
      static_cast<int>(std::max(exponent, 1u)) - static_cast<int>((1u << (format.exponent - 1)) - 1);
  number.term.fraction = static_cast<int>(format.mantissa);
  return number;
}

int64_t magnitude(int64_t value) {
  return value < 0 ? -value : value;
}

Term normalized(Term term) {
  const int high = 63 - std::countl_zero(static_cast<uint64_t>(magnitude(term.significand) | 1));
  term.exponent += high - term.fraction;
  term.fraction = high;
  return term;
}

int64_t shifted_right(int64_t value, int by, bool floor) {
  if (by > 62) return floor && value < 0 ? -1 : 0;
  if (floor) return value >> by;
  return value < 0 ? -(-value >> by) : value >> by;
}

// value · 2^scale to fp32.
uint32_t rounded(int64_t value, int scale, bool nearest) {
  if (value == 0) return 0;
  const uint32_t sign = value < 0 ? kSign : 0;
  auto size = static_cast<uint64_t>(magnitude(value));
  const int high = 63 - std::countl_zero(size);
  const int exponent = std::max(high + scale, -126);
  const int shift = exponent - 23 - scale;  // bits to drop
  uint64_t significand = size;
  if (shift > 0) {
    significand = shift > 63 ? 0 : size >> shift;
    const uint64_t rest = shift > 63 ? 1 : size & ((uint64_t{1} << shift) - 1);
    const uint64_t half = shift > 63 ? 2 : uint64_t{1} << (shift - 1);
    if (nearest && (rest > half || (rest == half && (significand & 1) != 0))) ++significand;
  } else {
    significand = size << -shift;
  }
  const uint64_t bits =
      significand < (1u << 23) ? significand : (static_cast<uint64_t>(exponent + 126) << 23) + significand;
  return sign | static_cast<uint32_t>(std::min<uint64_t>(bits, kInfinity));
}

uint32_t fused_sum(std::span<const Term> terms, const AccumulationModel& model) {
  int largest = std::numeric_limits<int>::min();
  for (const Term& term : terms) {
    if (term.significand != 0) largest = std::max(largest, term.exponent);
  }
  int64_t sum = 0;
  const auto fraction = static_cast<int>(model.fraction);
  for (const Term& term : terms) {
    if (term.significand == 0) continue;
    const int right = largest - term.exponent + term.fraction - fraction;
    sum += right > 0 ? shifted_right(term.significand, right, model.floor) : term.significand << -right;
  }
  return rounded(sum, largest - fraction, model.nearest);
}

}  // namespace

uint32_t AccumulationModel::operator()(std::span<const uint32_t> a, std::span<const uint32_t> b, uint32_t c,
                                       Format format) const {
  std::array<Term, 17> terms;  // the sum so far and a group
  bool nan = number_of(c, kSingle).nan, plus = c == kInfinity, minus = c == (kInfinity | kSign);
  uint32_t sum = c;
  for (size_t first = 0; first < a.size(); first += group) {
    const size_t count = std::min<size_t>(group, a.size() - first);
    for (size_t n = 0; n < count; ++n) {
      const Number left = number_of(a[first + n], format), right = number_of(b[first + n], format);
      nan = nan || left.nan || right.nan || (left.infinite && right.term.significand == 0) ||
            (right.infinite && left.term.significand == 0);
      if (left.infinite || right.infinite) (left.negative != right.negative ? minus : plus) = true;
      Term& product = terms[n + 1];
      product = {left.term.significand * right.term.significand, left.term.exponent + right.term.exponent,
                 left.term.fraction + right.term.fraction};
      if (normalized && product.significand != 0) product = gpu_tests::normalized(product);
    }
    if (nan || plus || minus || (sum & ~kSign) >= kInfinity) continue;
    terms[0] = apart ? Term{} : number_of(sum, kSingle).term;
    const uint32_t part = fused_sum(std::span(terms).first(count + 1), *this);
    sum = apart ? std::bit_cast<uint32_t>(std::bit_cast<float>(sum) + std::bit_cast<float>(part)) : part;
  }
  if (nan || (plus && minus)) return kNan32;
  if (plus || minus) return minus ? kInfinity | kSign : kInfinity;
  return sum;
}

}  // namespace strata::gpu_tests
