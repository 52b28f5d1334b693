#include "ops/case_experts.h"
#include "ops/pair_places/pair_places.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::PairPlaces>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    Operand places = i32(2 * s.tokens, 1000);
    places.shape = {s.tokens, 2};
    for (const SlotsOfTokens& slots : slots_of_tokens(s)) {
      ops::PairPlacesAttrs attrs;
      attrs.experts = attrs.all_experts = s.experts;
      to.add<ops::PairPlaces>("pair_places" + slots.name,
                              {.places = places, .ids = slots.ids, .offsets = slots.offsets}, attrs,
                              {.ragged = slots.ragged});
      if (slots.ragged) continue;
      // The experts of a rank, as there are three times two.
      attrs.cuts = {{Axis::kShard, 3}, {Axis::kTensor, 2}};
      attrs.all_experts = 6 * s.experts;
      to.add<ops::PairPlaces>("pair_places_of_a_rank" + slots.name,
                              {.places = places,
                               .ids = slots.ids,
                               .offsets = slots.offsets,
                               .rank = rank_at({{Axis::kShard, 2}, {Axis::kTensor, 1}})},
                              attrs);
    }
  }
  to.untimed<ops::PairPlaces>(kFewNumbers);
}

}  // namespace strata::device
