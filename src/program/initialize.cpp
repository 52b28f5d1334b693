#include "program/initialize.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "base/random.h"
#include "program/update.h"

namespace strata::program {
namespace {

// Multiplies each part of a parameter by its factor.
void scale_parts(const graph::Value& value, const std::vector<double>& factors, float* out) {
  if (factors.empty()) return;
  STRATA_CHECK(factors.size() == value.segments.size(), "{} has {} parts and {} factors", value.name,
               value.segments.size(), factors.size());
  const int64_t columns = value.shape.elements() / value.shape[0];
  for (size_t part = 0; part < factors.size(); ++part) {
    float* const end = out + value.segments[part] * columns;
    for (; out != end; ++out) *out *= static_cast<float>(factors[part]);
  }
}

}  // namespace

void initialize_weights(Executor& executor, uint64_t seed) {
  constexpr int64_t kBlock = 1 << 16;  // a multiple of the four numbers that one counter gives
  const graph::Graph& graph = executor.program(0).graph;
  for (const graph::Parameter& parameter : graph.parameters()) {
    const graph::Value& value = graph.value(parameter.value);
    const int64_t n = value.shape.elements();
    float* out = executor.data_as<float>(value.name);
    switch (parameter.init.kind) {
      case graph::Init::Kind::kZeros:
        std::fill(out, out + n, 0.0f);
        break;
      case graph::Init::Kind::kOnes:
        std::fill(out, out + n, 1.0f);
        break;
      case graph::Init::Kind::kConstant:
        std::fill(out, out + n, static_cast<float>(parameter.init.value));
        break;
      case graph::Init::Kind::kNormal:
      case graph::Init::Kind::kTruncatedNormal: {
        const bool cut = parameter.init.kind == graph::Init::Kind::kTruncatedNormal;
        const RandomKey key{seed, static_cast<uint32_t>(hash64(value.name))};
        const auto std = static_cast<float>(parameter.init.std);
        parallel_ranges(n, kBlock, [&](int64_t begin, int64_t end) {
          (cut ? fill_truncated_normal : fill_normal)(out + begin, end - begin, std, key, begin);
        });
        break;
      }
    }
    scale_parts(value, parameter.init.part_scales, out);
  }
  clear_states(executor);
}

}  // namespace strata::program
