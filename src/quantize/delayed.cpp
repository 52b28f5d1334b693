#include "quantize/delayed.h"

#include <algorithm>
#include <bit>

namespace strata::quantize {

void begin_delayed(Format format, const DelayedState& state) {
  std::fill_n(state.history, kDelayedHistory, 0.0f);
  *state.in_force = largest_of(format);
}

void finish_delayed_step(const DelayedState& state, float greatest) {
  state.history[0] = greatest;
  // Magnitudes compare as integers, NaN above infinity: a NaN keeps the scale as it is until it leaves the history.
  uint32_t most = 0;
  for (int64_t i = 0; i < kDelayedHistory; ++i)
    most = std::max(most, std::bit_cast<uint32_t>(state.history[i]) & 0x7fffffffu);
  if (most != 0 && most < 0x7f800000u) *state.in_force = std::bit_cast<float>(most);
  std::rotate(state.history, state.history + 1, state.history + kDelayedHistory);
  state.history[0] = 0;
}

}  // namespace strata::quantize
