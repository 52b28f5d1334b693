#include "quantize/delayed.h"

#include <algorithm>
#include <bit>

namespace strata::quantize {

void follow_step(std::span<float> state, float greatest) {
  constexpr uint32_t kInfinity = 0x7f800000u;
  const std::span<float> history = state.subspan(1);
  // Magnitudes compare as integers, subnormal numbers too on threads that flush them.
  const auto bits = [](float magnitude) { return std::bit_cast<uint32_t>(magnitude); };
  std::rotate(history.begin(), history.begin() + 1, history.end());
  history.back() = bits(greatest) < kInfinity ? greatest : 0.0f;
  uint32_t most = 0;
  for (const float one : history) most = std::max(most, bits(one));
  if (most != 0) state.front() = std::bit_cast<float>(most);
}

}  // namespace strata::quantize
