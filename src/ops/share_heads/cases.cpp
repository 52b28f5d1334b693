#include "ops/cases.h"

#include "ops/attention/case_operands.h"
#include "ops/share_heads/share_heads.h"

namespace strata::device {
namespace {

// One rank, and the second of two.
constexpr int64_t kSharedOn[] = {1, 2};

std::string shared_on(int64_t ranks) {
  return ranks == 1 ? "" : "_of_a_rank";
}
ops::ShareHeadsAttrs shared_attrs(int64_t ranks) {
  return {.axis = graph::Axis::kTensor, .head_dim = heads::kHeadDim, .copies = 4, .ranks = ranks};
}
const ops::ShareHeadsAttrs kSharedTimed{.head_dim = heads::kTimedHeadDim, .copies = 2};

}  // namespace

using namespace op_rows;

template <>
void cases<ops::ShareHeads>(Cases& to) {
  for (const int64_t ranks : kSharedOn)
    to.add<ops::ShareHeads>("share_heads" + shared_on(ranks),
                            {.q = act({heads::kRows, heads::kQ}),
                             .kv = act({heads::kRows, 2 * heads::kKv}, {heads::kKv, heads::kKv}),
                             .rank = rank_at({{Axis::kTensor, 1}})},
                            shared_attrs(ranks));
  constexpr int64_t kHalf = kTimedKvWidth / 2;
  to.time<ops::ShareHeads>(
      {.q = timed_rows(), .kv = timed_rows(2 * kHalf, {kHalf, kHalf}), .rank = rank_at({})}, kSharedTimed);
}

template <>
void cases<ops::ShareHeadsGrad>(Cases& to) {
  for (const int64_t ranks : kSharedOn) {
    const int64_t own = heads::kKv * shared_attrs(ranks).copies / ranks;
    to.add<ops::ShareHeadsGrad>("share_heads_grad" + shared_on(ranks),
                                {.dqkv = act({heads::kRows, heads::kQ + 2 * own}, {heads::kQ, own, own}),
                                 .rank = rank_at({{Axis::kTensor, 1}})},
                                shared_attrs(ranks));
  }
  to.time<ops::ShareHeadsGrad>({.dqkv = timed_qkv(), .rank = rank_at({})}, kSharedTimed);
}

}  // namespace strata::device
