#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "hardware/compare.h"

namespace strata::gpu_tests {
namespace {

struct FloatFormat {
  unsigned exponent, mantissa;
  unsigned width() const { return 1 + exponent + mantissa; }
};
FloatFormat format_of(char letter) {
  switch (letter) {
    case 'd':
      return {11, 52};
    case 'h':
    case 'H':
      return {5, 10};
    case 'b':
    case 'B':
      return {8, 7};
    default:
      return {8, 23};
  }
}

unsigned width_of(char letter) {
  switch (letter) {
    case 'p':
      return 1;
    case 's':
    case 'h':
    case 'b':
      return 16;
    case 'l':
    case 'd':
      return 64;
    default:
      return 32;
  }
}

using Random = std::mt19937_64;

// Zeros, denormals, values next to one and to the largest value, infinities, NaN.
std::vector<uint64_t> float_edges(FloatFormat format) {
  const uint64_t one = ((uint64_t{1} << (format.exponent - 1)) - 1) << format.mantissa;
  const uint64_t infinity = ((uint64_t{1} << format.exponent) - 1) << format.mantissa;
  const uint64_t least = uint64_t{1} << format.mantissa, quiet = infinity | least >> 1;
  std::vector<uint64_t> edges;
  for (const uint64_t magnitude :
       {uint64_t{0}, uint64_t{1}, uint64_t{2}, least - 1, least, least + 1, least * 2, one - 1, one, one + 1,
        one + least / 2, one + least, one + 3 * least / 2, infinity - 1, infinity, infinity + 1, quiet,
        quiet | 0x15, infinity | (least - 1)}) {
    edges.push_back(magnitude);
    edges.push_back(magnitude | uint64_t{1} << (format.width() - 1));
  }
  return edges;
}

uint64_t draw_float(FloatFormat format, uint64_t before, const std::vector<uint64_t>& edges, Random& random) {
  const uint64_t all = format.width() == 64 ? ~uint64_t{0} : (uint64_t{1} << format.width()) - 1;
  const uint64_t mantissa_mask = (uint64_t{1} << format.mantissa) - 1;
  const uint64_t bits = random() & all, sign = bits & uint64_t{1} << (format.width() - 1);
  const uint64_t middle = (uint64_t{1} << (format.exponent - 1)) - 1;
  const auto near = [&](uint64_t around, uint64_t spread) {
    const uint64_t exponent = around + random() % (2 * spread + 1);
    return (exponent < spread ? 0 : exponent - spread) & ((uint64_t{1} << format.exponent) - 1);
  };
  switch (random() % 8) {
    case 0:
      return edges[random() % edges.size()];
    case 1:
    case 2:
      return bits;
    case 3:  // within a few powers of two of one
      return sign | near(middle, std::min<uint64_t>(12, middle / 2)) << format.mantissa |
             (bits & mantissa_mask);
    case 4:  // few mantissa bits: ties
      return sign | near(middle, std::min<uint64_t>(6, middle / 2)) << format.mantissa |
             (bits & mantissa_mask & ~(mantissa_mask >> 4)) | (random() % 3);
    case 5:  // close to the previous operand: cancellation
      return ((before ^ sign) + random() % 5 - 2) & all;
    case 6:  // as large as the previous operand, within the mantissa
      return sign |
             near(before >> format.mantissa & ((uint64_t{1} << format.exponent) - 1), format.mantissa + 2)
                 << format.mantissa |
             (bits & mantissa_mask);
    default:  // at the edge of the denormals
      return sign | (random() % 3) << format.mantissa | (bits & mantissa_mask);
  }
}

uint64_t draw_integer(unsigned width, const std::vector<uint64_t>& edges, Random& random) {
  const uint64_t all = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  switch (random() % 4) {
    case 0:
      return edges[random() % edges.size()];
    case 1:
      return random() & all;
    case 2:  // of any length
      return (random() & all) >> random() % width;
    default:
      return ((random() & all) >> random() % width) * ~uint64_t{0} & all;
  }
}

class Drawer {
 public:
  explicit Drawer(char letter) : letter_(letter) {
    if (std::string("fdhbHB").find(letter) != std::string::npos)
      edges_ = float_edges(format_of(letter));
    else if (std::string("swl").find(letter) != std::string::npos)
      edges_ = integers(width_of(letter));
  }
  size_t edges() const { return edges_.size(); }
  uint64_t edge(size_t n) const { return edges_[n] * (paired() ? 0x1'0001 : 1); }
  bool paired() const { return letter_ == 'H' || letter_ == 'B'; }

  uint64_t draw(uint64_t before, Random& random) const {
    switch (letter_) {
      case 'p':
        return random() & 1;
      case 's':
      case 'w':
      case 'l':
        return draw_integer(width_of(letter_), edges_, random);
      case 'a':
        return random() % 8 == 0 ? random() & 0xffff'ffff : random() % 72;
      case 'g':
        return random() % 4;
      case 'c':
        return random() & 0x1f1f;
      case 'o':
        return bits(
            static_cast<float>(std::ldexp(static_cast<double>(random() >> 11), -53) * 6.2831852 - 3.1415926));
      case 'O':
        return bits(static_cast<float>(std::ldexp(static_cast<double>(random() >> 11), -53) * 2e5 - 1e5));
      case 'H':
      case 'B': {
        const FloatFormat format = format_of(letter_);
        return draw_float(format, before & 0xffff, edges_, random) |
               draw_float(format, before >> 16, edges_, random) << 16;
      }
      default:
        return draw_float(format_of(letter_), before, edges_, random);
    }
  }

 private:
  char letter_;
  std::vector<uint64_t> edges_;
};

// Maps values to integers in order, so that adjacent values differ by one.
int64_t place(FloatFormat format, uint64_t value) {
  const uint64_t sign = uint64_t{1} << (format.width() - 1);
  const auto magnitude = static_cast<int64_t>(value & (sign - 1));
  return (value & sign) != 0 ? -magnitude : magnitude;
}
bool is_number(FloatFormat format, uint64_t value) {
  const uint64_t infinity = ((uint64_t{1} << format.exponent) - 1) << format.mantissa;
  return (value & infinity) != infinity;
}
bool is_nan(FloatFormat format, uint64_t value) {
  const uint64_t infinity = ((uint64_t{1} << format.exponent) - 1) << format.mantissa;
  return (value & ((uint64_t{1} << (format.width() - 1)) - 1)) > infinity;
}

// Whether values or pairs of values agree, ignoring the bits of NaN.
bool same_but_nan(char letter, uint64_t a, uint64_t b) {
  const FloatFormat format = format_of(letter);
  if (letter == 'H' || letter == 'B') {
    const char one = letter == 'H' ? 'h' : 'b';
    return same_but_nan(one, a & 0xffff, b & 0xffff) && same_but_nan(one, a >> 16, b >> 16);
  }
  return a == b || (is_nan(format, a) && is_nan(format, b));
}

bool is_float(char letter) {
  return std::string("fdhbHB").find(letter) != std::string::npos;
}

}  // namespace

std::vector<unsigned> widths_of(const Case& one) {
  std::vector<unsigned> widths;
  for (const char letter : one.signature) {
    if (letter != '=') widths.push_back(width_of(letter));
  }
  return widths;
}

std::vector<uint64_t> operands_of(const Case& one) {
  Random random(std::hash<std::string>()(one.instruction + one.signature));
  std::vector<Drawer> drawers;
  std::vector<uint64_t> masks;
  for (const char letter : one.signature.substr(2)) {
    drawers.emplace_back(letter);
    masks.push_back(width_of(letter) == 64 ? ~uint64_t{0} : (uint64_t{1} << width_of(letter)) - 1);
  }
  const size_t count = drawers.size();
  std::vector<uint64_t> operands;
  if (count == 1 && masks[0] == 0xffff) {
    for (uint64_t value = 0; value < 65536; ++value) operands.push_back(value);
    return operands;
  }
  // Every combination of edge values, if half of the rows remain for others.
  size_t combinations = 1;
  for (const Drawer& drawer : drawers) combinations *= drawer.edges();
  if (combinations > one.rows / 2) combinations = 0;
  operands.reserve(one.rows * count);
  for (size_t n = 0; n < combinations; ++n) {
    size_t rest = n;
    for (const Drawer& drawer : drawers) {
      operands.push_back(drawer.edge(rest % drawer.edges()));
      rest /= drawer.edges();
    }
  }
  while (operands.size() < one.rows * count) {
    uint64_t before = random();
    for (size_t n = 0; n < count; ++n) {
      operands.push_back(drawers[n].draw(before & masks[n], random) & masks[n]);
      before = operands.back();
    }
  }
  return operands;
}

uint64_t ulp_distance(char letter, uint64_t a, uint64_t b) {
  if (a == b) return 0;
  if (letter == 'H' || letter == 'B') {
    const char one = letter == 'H' ? 'h' : 'b';
    return std::max(ulp_distance(one, a & 0xffff, b & 0xffff), ulp_distance(one, a >> 16, b >> 16));
  }
  if (!is_float(letter)) return 1;
  const FloatFormat format = format_of(letter);
  if (is_nan(format, a) && is_nan(format, b)) return 0;
  if (!is_number(format, a) || !is_number(format, b)) return kNotNumbers;
  const int64_t difference = place(format, a) - place(format, b);
  // -0 and +0 differ but map to the same integer.
  return difference == 0 ? 1 : static_cast<uint64_t>(difference < 0 ? -difference : difference);
}

Outcome compare(const Case& one, const std::vector<uint64_t>& operands, const std::vector<uint64_t>& executor,
                const std::vector<uint64_t>& card) {
  Outcome outcome;
  const char letter = one.signature[0];
  const size_t count = one.signature.size() - 2;
  outcome.rows = executor.size();
  uint64_t worst = 0, differing = 0;
  std::vector<Difference> other_nan;
  const auto is_example = [](uint64_t number) {
    return std::has_single_bit(number) && std::countr_zero(number) % 2 == 0;
  };
  const bool divides =
      !is_float(letter) && (one.instruction.starts_with("div.") || one.instruction.starts_with("rem."));
  for (size_t n = 0; n < executor.size(); ++n) {
    if (executor[n] == card[n]) {
      ++outcome.equal;
      continue;
    }
    const auto row = [&] {
      const auto from = operands.begin() + static_cast<int64_t>(n * count);
      return Difference{true, {from, from + static_cast<int64_t>(count)}, executor[n], card[n]};
    };
    if (is_float(letter) && same_but_nan(letter, executor[n], card[n])) {
      ++outcome.nan_bits;
      if (is_example(outcome.nan_bits)) other_nan.push_back(row());
      continue;
    }
    if (divides && operands[n * count + 1] == 0) {
      ++outcome.open;
      continue;
    }
    ++differing;
    if (is_example(differing)) outcome.examples.push_back(row());
    const uint64_t distance = ulp_distance(letter, executor[n], card[n]);
    if (distance == kNotNumbers) {
      ++outcome.kinds;
    } else {
      ++outcome.by_ulp[distance <= 2 ? distance - 1 : distance <= 4 ? 2 : distance <= 16 ? 3 : 4];
      outcome.largest_ulp = std::max(outcome.largest_ulp, distance);
      if (letter == 'f') {
        const double error = std::fabs(double{as_float(executor[n])} - as_float(card[n]));
        outcome.largest_error = std::max(outcome.largest_error, error);
      }
    }
    if (distance > worst) {
      worst = distance;
      outcome.worst = row();
    }
  }
  outcome.examples.insert(outcome.examples.end(), other_nan.begin(), other_nan.end());
  return outcome;
}

}  // namespace strata::gpu_tests
