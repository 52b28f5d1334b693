#include "ops/cases.h"

#include <fmt/core.h>

#include "ops/attention/case_operands.h"
#include "ops/rope/rope.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::RopeTable>(Cases& to) {
  to.add<ops::RopeTable>("rope_table", {}, {9, {1.0, 0.1, 0.01, 0.001}, 1.1}, {.replicated_only = true});
  to.untimed<ops::RopeTable>(kOnce);
}

template <>
void cases<ops::Rope>(Cases& to) {
  const auto add = [&](const std::string& name, const Operand& x, int64_t pairs,
                       const ops::RopeAttrs& attrs) {
    to.add<ops::Rope>(
        name, {.x = x, .table = constant(f32({heads::kLength, pairs, 2})), .positions = heads::positions()},
        attrs);
  };
  constexpr int64_t kHalf = heads::kHeadDim / 2;
  for (const int64_t pairs : {kHalf, kHalf / 2}) {
    for (const bool inverse : {false, true})
      add(fmt::format("rope_{}_pairs{}", pairs, inverse ? "_inverse" : ""), heads::qkv(), pairs,
          {heads::kHeadDim, inverse});
  }
  add("rope_adjacent", heads::qkv(), kHalf, {.head_dim = heads::kHeadDim, .adjacent = true});
  // The last six dimensions of heads of sixteen, as latent attention has them.
  for (const bool adjacent : {false, true}) {
    for (const bool inverse : {false, true})
      add(fmt::format("rope_of_a_part{}{}", adjacent ? "_adjacent" : "", inverse ? "_inverse" : ""),
          act({heads::kRows, 64}), 3, {16, inverse, 10, adjacent});
  }
  to.time<ops::Rope>({.x = timed_qkv(),
                      .table = f32({kTimedTokens, heads::kTimedHeadDim / 2, 2}),
                      .positions = zeros({kTimedTokens}, DType::kI32)},
                     {.head_dim = heads::kTimedHeadDim});
}

}  // namespace strata::device
