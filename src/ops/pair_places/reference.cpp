#include "ops/reference.h"
#include "ops/experts/slots.h"
#include "ops/pair_places/pair_places.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::PairPlaces>& at) {
  const Slots slots(at.in.ids, at.in.offsets);
  const int64_t first =
      at.attrs.cuts.empty() ? 0 : at.attrs.first_expert(graph::coordinates_in(at.in.rank.data));
  for (int64_t pair = 0; pair < at.out.of_pairs.shape[0]; ++pair) {
    const bool used = pair < std::ssize(slots.token_of) && slots.expert(pair) >= 0;
    const int64_t token = used ? slots.token_of[static_cast<size_t>(pair)] : 0;
    const int64_t sample = at.in.places.index_at(2 * token), place = at.in.places.index_at(2 * token + 1);
    at.out.of_pairs.put(2 * pair, used ? static_cast<double>(sample) : 0);
    at.out.of_pairs.put(
        2 * pair + 1,
        used ? static_cast<double>(place * at.attrs.all_experts + first + slots.expert(pair)) : 0);
  }
}

}  // namespace strata::reference
