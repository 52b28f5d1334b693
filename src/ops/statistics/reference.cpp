#include "ops/statistics/statistics.h"

#include <cmath>
#include <cstring>

#include "ops/reference.h"

namespace strata::reference {
namespace {

bool is_on(const Array& mask, int64_t group) {
  return (mask.index_at(0) >> group & 1) != 0;
}

void take(StatisticsTable& table, double x, double largest) {
  ++table.elements;
  if (!std::isfinite(x)) {
    ++table.nonfinite;
    return;
  }
  const double size = std::abs(x);
  table.sum += x;
  table.squares += x * x;
  table.greatest = std::max(table.greatest, size);
  if (size == 0) ++table.zeros;
  if (size > 0 && size < 0x1p-126) ++table.flushed;
  if (largest > 0 && size >= static_cast<double>(static_cast<float>(largest))) ++table.saturated;
}

void write(const Array& to, StatisticsTable table) {
  auto* const at = reinterpret_cast<StatisticsTable*>(to.data);
  if (to.accumulate) add_statistics(table, *at);
  *at = table;
}

// As bits: a double of a denormal element may be flushed.
double element(const Array& x, int64_t i) {
  uint32_t bits = 0;
  if (x.dtype == DType::kBF16) {
    uint16_t half = 0;
    std::memcpy(&half, x.data + 2 * i, sizeof half);
    bits = uint32_t{half} << 16;
  } else if (x.dtype == DType::kF16) {
    return x.at(i);  // its denormals are normal in fp32
  } else {
    std::memcpy(&bits, x.data + 4 * i, sizeof bits);
  }
  const uint32_t size = bits & 0x7fffffff;
  if (size > 0 && size < 0x00800000) return std::ldexp(static_cast<double>(size), -149);
  return x.at(i);
}

uint32_t word(const Array& x, int64_t i) {
  uint32_t bits = 0;
  std::memcpy(&bits, x.data + 4 * i, sizeof bits);
  return bits;
}

}  // namespace

template <>
void compute(const Arrays<ops::Statistics>& at) {
  const auto& [group, part, row, largest, first] = at.attrs;
  if (!is_on(at.in.mask, group) || (first && at.out.table.accumulate)) return;
  const Array& x = at.in.x;
  const int64_t columns = std::max<int64_t>(1, x.shape.rank() == 0 ? 1 : x.shape[x.shape.rank() - 1]);
  int64_t begin = 0, end = columns;
  if (part >= 0 && !x.segments.empty()) {
    for (int64_t i = 0; i < part; ++i) begin += x.segments[static_cast<size_t>(i)];
    end = begin + x.segments[static_cast<size_t>(part)];
  }
  StatisticsTable table;
  for (int64_t r = 0; r < x.shape.elements() / columns; ++r) {
    double before = table.squares;
    for (int64_t c = begin; c < end; ++c) {
      take(table, element(x, r * columns + c), largest);
      if (row == 0 || (c + 1 - begin) % row != 0) continue;
      table.row_squares = std::max(table.row_squares, table.squares - before);
      before = table.squares;
    }
  }
  write(at.out.table, table);
}

template <>
void compute(const Arrays<ops::TakeSample>& at) {
  if (!is_on(at.in.mask, at.attrs.group)) return;
  const int64_t n = at.in.x.shape.elements(), m = at.out.sample.shape.elements();
  for (int64_t i = 0; i < m; ++i) at.out.sample.put(i, at.in.x.at(i * n / m));
}

template <>
void compute(const Arrays<ops::SampleChange>& at) {
  if (!is_on(at.in.mask, at.attrs.group)) return;
  const int64_t n = at.in.x.shape.elements(), m = at.in.sample.shape.elements();
  StatisticsTable table;
  for (int64_t i = 0; i < m; ++i) take(table, at.in.x.at(i * n / m) - at.in.sample.at(i), 0);
  table.flushed = 0;
  write(at.out.table, table);
}

template <>
void compute(const Arrays<ops::SquaresAndDigests>& at) {
  const int64_t n = at.in.x.shape.elements();
  for (int64_t block = 0; block < at.out.partials.shape.elements(); ++block) {
    const int64_t begin = block * ops::kDigestBlock, end = std::min(n, begin + ops::kDigestBlock);
    double sum = 0;
    uint64_t digest = 0;
    for (int64_t i = begin; i < end; ++i) {
      sum += at.in.x.at(i) * at.in.x.at(i);
      digest += word(at.in.x, i) * (2 * static_cast<uint64_t>(i - begin) + 1);
    }
    at.out.partials.put(block, sum);
    std::memcpy(at.out.digests.data + 8 * block, &digest, sizeof digest);
  }
}

template <>
void compute(const Arrays<ops::JoinDigests>& at) {
  uint64_t digest = 0, place = 0;
  for (const Array& one : at.in.digests) {
    for (int64_t i = 0; i < one.shape.elements(); ++i)
      digest += static_cast<uint64_t>(one.index_at(i)) * ops::factor_of_digest(place++);
  }
  std::memcpy(at.out.digest.data, &digest, sizeof digest);
}

}  // namespace strata::reference
