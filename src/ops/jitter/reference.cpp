#include "ops/reference.h"
#include "base/random.h"
#include "ops/jitter/jitter.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::Jitter>& at) {
  const Array &x = at.in.x, &places = at.in.places;
  const int64_t width = x.shape[1];
  for (int64_t i = 0; i < x.shape.elements(); ++i) {
    const int64_t row = i / width, column = i % width;
    const auto counter = static_cast<uint64_t>(places.index_at(2 * row + 1) * ((width + 3) / 4) + column / 4);
    const auto bits = philox({.stream = static_cast<uint32_t>(at.attrs.stream)}, counter,
                             static_cast<uint32_t>(places.index_at(2 * row)));
    const double u = uniform_float(bits[static_cast<size_t>(column % 4)]);
    at.out.y.put(i, x.at(i) * (1 + at.attrs.eps * (2 * u - 1)));
  }
}

template <>
void compute(const Arrays<ops::SamplePlaces>& at) {
  const Array& places = at.out.places;
  for (int64_t row = 0; row < places.shape[0]; ++row) {
    places.put(2 * row, static_cast<double>(at.in.samples.index_at(row / at.attrs.rows)));
    places.put(2 * row + 1, static_cast<double>(row % at.attrs.rows));
  }
}

}  // namespace strata::reference
