#include "program/initialize.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "base/random.h"
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

// Multiplies what lies in each part of a parameter by its factor.
void scale_parts(const graph::Value& value, const std::vector<double>& factors, int64_t begin,
                 std::span<float> out) {
  if (factors.empty()) return;
  const int64_t columns = value.shape.elements() / value.shape[0];
  int64_t part_begin = 0;
  for (size_t part = 0; part < factors.size(); ++part) {
    const int64_t part_end = part_begin + value.segments[part] * columns;
    const int64_t end = std::min(part_end, begin + std::ssize(out));
    for (int64_t at = std::max(part_begin, begin); at < end; ++at)
      out[static_cast<size_t>(at - begin)] *= static_cast<float>(factors[part]);
    part_begin = part_end;
  }
}

}  // namespace

void initialize_weights(Executor& executor, uint64_t seed) {
  constexpr int64_t kBlock = 1 << 16;  // a multiple of the four numbers that one counter gives
  const graph::Graph& graph = executor.program(0).graph;
  for (const graph::Parameter& parameter : graph.parameters()) {
    const graph::Value& value = graph.value(parameter.value);
    const std::vector<double>& factors = parameter.init.part_scales;
    STRATA_CHECK(factors.empty() || factors.size() == value.segments.size(), "{} has {} parts and {} factors",
                 value.name, value.segments.size(), factors.size());
    const RandomKey key{seed, static_cast<uint32_t>(hash64(value.name))};
    parallel_ranges(value.shape.elements(), kBlock, [&](int64_t begin, int64_t end) {
      std::vector<float> numbers(static_cast<size_t>(end - begin));
      fill(parameter.init, key, begin, numbers);
      scale_parts(value, factors, begin, numbers);
      executor.upload(value.name, numbers.data(), std::ssize(numbers) * 4, begin * 4);
    });
  }
  clear_states(executor);
}

}  // namespace strata::program
