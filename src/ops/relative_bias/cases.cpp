#include "ops/cases.h"

#include "ops/attention/case_operands.h"
#include "ops/relative_bias/relative_bias.h"

namespace strata::device {
namespace {

ops::RelativeBiasAttrs distances(bool bidirectional) {
  return {.max_distance = 20, .bidirectional = bidirectional, .first = -30, .last = 9, .buckets = 8};
}
// More buckets than one launch of a GPU's kernel takes.
const ops::RelativeBiasAttrs kManyBuckets{
    .max_distance = 400, .bidirectional = false, .first = -500, .last = 3, .buckets = 300};
const ops::RelativeBiasAttrs kTimedDistances{
    .first = -op_rows::kTimedTokens, .last = op_rows::kTimedTokens, .buckets = 32};

}  // namespace

using namespace op_rows;

template <>
void cases<ops::RelativeBias>(Cases& to) {
  to.add<ops::RelativeBias>("relative_bias", {.table = f32({8, heads::kHeads})}, distances(false));
  to.add<ops::RelativeBias>("relative_bias_bidirectional", {.table = f32({8, heads::kHeads})},
                            distances(true));
  to.add<ops::RelativeBias>("relative_bias_of_many_buckets", {.table = f32({300, heads::kHeads})},
                            kManyBuckets);
  to.time<ops::RelativeBias>({.table = f32({32, heads::kTimedHeads})}, kTimedDistances);
}

template <>
void cases<ops::RelativeBiasGrad>(Cases& to) {
  const Operand dbias = f32({heads::kHeads, 40});
  to.add<ops::RelativeBiasGrad>("relative_bias_grad", {.dbias = dbias}, distances(false));
  to.add<ops::RelativeBiasGrad>("relative_bias_grad_bidirectional", {.dbias = dbias}, distances(true));
  to.add<ops::RelativeBiasGrad>("relative_bias_grad_of_many_buckets", {.dbias = f32({heads::kHeads, 504})},
                                kManyBuckets);
  to.time<ops::RelativeBiasGrad>({.dbias = f32({heads::kTimedHeads, 2 * kTimedTokens + 1})}, kTimedDistances);
}

}  // namespace strata::device
