#include <cmath>

#include "base/parallel.h"
#include "ops/reference.h"
#include "ops/rope/rope.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::RopeTable>& at) {
  const auto& [positions, frequencies, magnitude] = at.attrs;
  const int64_t pairs = std::ssize(frequencies);
  for (int64_t i = 0; i < positions * pairs; ++i) {
    const int64_t position = i / pairs;
    const double angle = static_cast<double>(position) * frequencies[static_cast<size_t>(i % pairs)];
    at.out.table.put(2 * i, magnitude * std::cos(angle));
    at.out.table.put(2 * i + 1, magnitude * std::sin(angle));
  }
}

template <>
void compute(const Arrays<ops::Rope>& at) {
  const Array &x = at.in.x, &table = at.in.table, &out = at.out.qkv;
  const auto& attrs = at.attrs;
  const int64_t half = table.shape[1], row = x.shape[1];
  const int64_t heads = (x.segments.empty() ? row : x.segments[0] + x.segments[1]) / attrs.head_dim;
  const double turn = attrs.inverse ? -1 : 1;
  parallel_for(x.shape[0], [&](int64_t n) {
    const int64_t angles = at.in.positions.index_at(n) * half * 2;
    if (out.data != x.data) {
      for (int64_t c = 0; c < row; ++c) out.put(n * row + c, x.at(n * row + c));
    }
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < half; ++i) {
        const int64_t begin = n * row + head * attrs.head_dim + attrs.first;
        const int64_t first = begin + (attrs.adjacent ? 2 * i : i),
                      second = first + (attrs.adjacent ? 1 : half);
        const double cosine = table.at(angles + 2 * i), sine = turn * table.at(angles + 2 * i + 1);
        const double a = x.at(first), b = x.at(second);
        out.put(first, a * cosine - b * sine);
        out.put(second, b * cosine + a * sine);
      }
    }
  });
}

}  // namespace strata::reference
