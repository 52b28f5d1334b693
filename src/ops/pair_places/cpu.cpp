#include <algorithm>

#include "device/cpu/cpu.h"
#include "ops/pair_places/pair_places.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::PairPlaces>& node) {
  return node.kernel([attrs = node.attrs, tokens = ops::tokens_of(node), pairs = ops::slots_of(node),
                      k = node.in.ids->shape[1]](const Operands<ops::PairPlaces>& at) {
    const int64_t first = attrs.cuts.empty() ? 0 : attrs.first_expert(graph::coordinates_in(at.in.rank));
    std::fill_n(at.out.of_pairs, 2 * pairs, 0);
    for (int64_t token = 0; token < tokens; ++token) {
      const int64_t begin = at.in.offsets != nullptr ? at.in.offsets[token] : token * k,
                    end = at.in.offsets != nullptr ? at.in.offsets[token + 1] : begin + k;
      for (int64_t pair = begin; pair < end; ++pair) {
        if (at.in.ids[pair] < 0) continue;
        at.out.of_pairs[2 * pair] = at.in.places[2 * token];
        at.out.of_pairs[2 * pair + 1] =
            static_cast<int32_t>(at.in.places[2 * token + 1] * attrs.all_experts + first + at.in.ids[pair]);
      }
    }
  });
}

}  // namespace strata::device
