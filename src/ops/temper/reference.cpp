#include <cmath>

#include "ops/reference.h"
#include "ops/temper/temper.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::Temper>& at) {
  const Array& qkv = at.in.qkv;
  const int64_t columns = qkv.shape[1];
  for (int64_t i = 0; i < qkv.shape.elements(); ++i) {
    const int64_t whole_turns = (at.in.positions.index_at(i / columns) + 1) / at.attrs.floor;
    const auto turns = static_cast<double>(whole_turns);
    const bool is_query = i % columns < qkv.segments[0];
    at.out.y.put(i, qkv.at(i) * (is_query ? 1 + at.attrs.scale * std::log1p(turns) : 1));
  }
}

template <>
void compute(const Arrays<ops::ChunkBegins>& at) {
  const Array &positions = at.in.positions, &begins = at.in.document_begins;
  const int64_t size = at.attrs.size;
  for (int64_t n = 0; n < positions.shape.elements(); ++n) {
    const int64_t begin = begins.present() ? begins.index_at(n) : 0;
    const int64_t chunk = positions.index_at(n) / size;
    at.out.begins.put(n, static_cast<double>(begin + chunk * size));
  }
}

}  // namespace strata::reference
