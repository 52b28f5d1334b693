#include <fmt/core.h>

#include "ops/cases.h"
#include "ops/vocabulary/vocabulary.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::VocabStart>(Cases& to) {
  for (const int64_t ranks : {1, 3})
    to.add<ops::VocabStart>(
        fmt::format("vocab_start_of_{}_ranks", ranks), {.rank = rank_at({{Axis::kTensor, 2}})},
        {.axis = Axis::kTensor, .parts = 4, .rows = 11, .ranks = ranks}, {.replicated_only = true});
  to.untimed<ops::VocabStart>(kFewNumbers);
}

}  // namespace strata::device
