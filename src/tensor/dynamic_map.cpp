#include "tensor/dynamic_map.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace strata {
namespace {

constexpr int kDecades = 7;
constexpr int32_t kOne = std::bit_cast<int32_t>(1.0f);

// As torch.linspace in fp32: from both ends towards the middle, each rounded once.
float spaced(int i, int count) {
  const float step = (1.0f - 0.1f) / static_cast<float>(count - 1);
  return i < count / 2 ? std::fma(step, static_cast<float>(i), 0.1f)
                       : std::fma(-step, static_cast<float>(count - 1 - i), 1.0f);
}

std::array<float, 256> dynamic_values(bool has_sign) {
  std::vector<float> values{0.0f, 1.0f};
  for (int i = 0; i < kDecades; ++i) {
    const int borders = (1 << (has_sign ? i : i + 1)) + 1;
    const auto decade = static_cast<float>(std::pow(10.0, i - (kDecades - 1)));
    for (int k = 0; k + 1 < borders; ++k) {
      const float value = decade * ((spaced(k, borders) + spaced(k + 1, borders)) / 2);
      values.push_back(value);
      if (has_sign) values.push_back(-value);
    }
  }
  STRATA_CHECK(values.size() == 256, "a map of {} values", values.size());
  std::sort(values.begin(), values.end());
  std::array<float, 256> out;
  std::copy(values.begin(), values.end(), out.begin());
  return out;
}

// Fills the intervals of one sign; false where one holds two borders.
bool add_intervals(DynamicMap& map, const std::vector<float>& borders, float sign) {
  const auto below = [&](float x) {
    return std::lower_bound(borders.begin(), borders.end(), x) - borders.begin();
  };
  const int32_t first = map.first_bits >> map.shift, last = kOne >> map.shift;
  for (int32_t key = first; key <= last; ++key) {
    const float near = key == first ? 0.0f : std::bit_cast<float>(key << map.shift);
    const float far = key == last ? 1.0f : std::bit_cast<float>(((key + 1) << map.shift) - 1);
    const auto least = below(std::min(sign * near, sign * far));
    const auto most = below(std::max(sign * near, sign * far));
    if (most - least > 1) return false;
    map.code.push_back(static_cast<int32_t>(least));
    map.border.push_back(most > least ? borders[static_cast<size_t>(least)]
                                      : std::numeric_limits<float>::infinity());
  }
  return true;
}

DynamicMap make_map(bool has_sign) {
  DynamicMap map;
  map.values = dynamic_values(has_sign);
  std::vector<float> borders;
  for (size_t i = 0; i + 1 < map.values.size(); ++i)
    borders.push_back((map.values[i] + map.values[i + 1]) / 2);
  float least = 1;
  for (const float border : borders) least = std::min(least, std::abs(border));
  // The fewest bits of fraction that keep all borders distinct.
  for (map.shift = 20; map.shift > 0; --map.shift) {
    map.first_bits = (std::bit_cast<int32_t>(least) >> map.shift) << map.shift;
    map.code.clear();
    map.border.clear();
    bool apart = add_intervals(map, borders, 1);
    map.sign_offset = has_sign ? static_cast<int32_t>(map.code.size()) : 0;
    if (apart && has_sign) apart = add_intervals(map, borders, -1);
    if (apart) return map;
  }
  throw InternalError("no interval of a byte's values is small enough");
}

}  // namespace

const DynamicMap& signed_dynamic_map() {
  static const DynamicMap map = make_map(true);
  return map;
}

const DynamicMap& unsigned_dynamic_map() {
  static const DynamicMap map = make_map(false);
  return map;
}

}  // namespace strata
