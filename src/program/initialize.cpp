#include "program/initialize.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "base/random.h"
#include "graph/shard.h"
#include "program/update.h"

namespace strata::program {
namespace {

// Elements [begin, begin + out.size()) of a parameter before its parts are scaled.
void fill(const graph::Init& init, const RandomKey& key, int64_t begin, std::span<float> out) {
  switch (init.kind) {
    case graph::Init::Kind::kZeros:
      std::fill(out.begin(), out.end(), 0.0f);
      return;
    case graph::Init::Kind::kOnes:
      std::fill(out.begin(), out.end(), 1.0f);
      return;
    case graph::Init::Kind::kConstant:
      std::fill(out.begin(), out.end(), static_cast<float>(init.value));
      return;
    case graph::Init::Kind::kNormal:
      fill_normal(out.data(), std::ssize(out), static_cast<float>(init.std), key, begin);
      return;
    case graph::Init::Kind::kTruncatedNormal:
      fill_truncated_normal(out.data(), std::ssize(out), static_cast<float>(init.std), key, begin);
      return;
  }
}

// A parameter as it is in all layouts.
struct Whole {
  Shape shape;
  std::vector<int64_t> segments;
  int64_t columns() const { return shape.elements() / shape[0]; }
};

Whole whole_of(const graph::Value& value) {
  if (value.global_shape.rank() == 0) return {value.shape, value.segments};
  return {value.global_shape, value.global_segments};
}

// Multiplies what lies in each part of a parameter by its factor.
void scale_parts(const Whole& whole, const std::vector<double>& factors, int64_t begin,
                 std::span<float> out) {
  if (factors.empty()) return;
  int64_t part_begin = 0;
  for (size_t part = 0; part < factors.size(); ++part) {
    const int64_t part_end = part_begin + whole.segments[part] * whole.columns();
    const int64_t end = std::min(part_end, begin + std::ssize(out));
    for (int64_t at = std::max(part_begin, begin); at < end; ++at)
      out[static_cast<size_t>(at - begin)] *= static_cast<float>(factors[part]);
    part_begin = part_end;
  }
}

// The columns that a rank holds of a matrix; all of a vector's one.
std::vector<graph::HeldSpan> columns_of(const std::vector<std::vector<graph::HeldSpan>>& held) {
  return held.size() > 1 ? held[1] : std::vector<graph::HeldSpan>{{{0, 1}, 0}};
}

void initialize(Executor& executor, const graph::Parameter& parameter, const graph::Value& value,
                const RandomKey& key, const graph::Coordinates& coordinates) {
  constexpr int64_t kBlock = 1 << 16;
  constexpr int64_t kAligned = 4;  // numbers that one counter gives
  const Whole whole = whole_of(value);
  const auto spans = graph::held_spans(value, executor.set().options.mesh, coordinates);
  const auto columns = columns_of(spans);
  const int64_t width = value.shape.elements() / std::max<int64_t>(1, value.shape[0]);  // of a row here
  for (const graph::HeldSpan& rows : spans[0]) {
    const int64_t first = rows.whole.begin * whole.columns();
    parallel_ranges(rows.whole.size() * whole.columns(), kBlock, [&](int64_t from, int64_t to) {
      const int64_t begin = first + from, aligned = begin / kAligned * kAligned;
      std::vector<float> numbers(static_cast<size_t>(first + to - aligned));
      fill(parameter.init, key, aligned, numbers);
      scale_parts(whole, parameter.init.part_scales, aligned, numbers);
      const auto give = [&](int64_t at, int64_t end, int64_t element) {
        executor.upload(value.name, numbers.data() + (at - aligned), (end - at) * 4, element * 4);
      };
      if (width == whole.columns()) {
        give(begin, first + to, rows.at * width + from);
        return;
      }
      for (int64_t r = begin / whole.columns(); r * whole.columns() < first + to; ++r) {
        const int64_t row = (rows.at + r - rows.whole.begin) * width;
        for (const graph::HeldSpan& span : columns) {
          const int64_t span_begin = r * whole.columns() + span.whole.begin;
          const int64_t at = std::max(begin, span_begin);
          const int64_t end = std::min(first + to, r * whole.columns() + span.whole.end);
          if (at < end) give(at, end, row + span.at + at - span_begin);
        }
      }
    });
  }
}

}  // namespace

void write_coordinates(const Executor& executor, const graph::Coordinates& coordinates) {
  if (executor.set().find("rank") != nullptr) executor.write("rank", coordinates);
}

void initialize_weights(Executor& executor, uint64_t seed, const graph::Coordinates& coordinates) {
  const graph::Graph& graph = executor.program(0).graph;
  for (const graph::Parameter& parameter : graph.parameters()) {
    const graph::Value& value = graph.value(parameter.value);
    const std::vector<double>& factors = parameter.init.part_scales;
    STRATA_CHECK(factors.empty() || factors.size() == value.segments.size(), "{} has {} parts and {} factors",
                 value.name, value.segments.size(), factors.size());
    initialize(executor, parameter, value, {seed, static_cast<uint32_t>(hash64(value.name))}, coordinates);
  }
  clear_states(executor);
}

}  // namespace strata::program
