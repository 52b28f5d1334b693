#include "ops/reference.h"
#include "ops/vocabulary/vocabulary.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::VocabStart>& at) {
  const auto& [axis, parts, rows, ranks] = at.attrs;
  const int64_t first = place_in(at.in.rank, axis, ranks) * parts;
  for (int64_t part = 0; part < parts; ++part)
    at.out.start.put(part, static_cast<double>((first + part) * rows));
}

}  // namespace strata::reference
