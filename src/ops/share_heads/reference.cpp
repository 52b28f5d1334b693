#include "ops/reference.h"
#include "ops/share_heads/share_heads.h"

namespace strata::reference {
namespace {

// A rank's keys and values among those that it reads: body(column in qkv, column in kv).
template <typename Body>
void for_shared_columns(const ops::ShareHeadsAttrs& attrs, const Array& qkv, const Array& rank,
                        const Body& body) {
  const int64_t q = qkv.segments[0], own = qkv.segments[1], kv = own * attrs.ranks / attrs.copies;
  const int64_t first = place_in(rank, attrs.axis, attrs.ranks) * own;
  for (int64_t part = 0; part < 2; ++part) {
    for (int64_t c = 0; c < own; ++c) {
      const int64_t head = (first + c) / attrs.head_dim / attrs.copies;
      body(q + part * own + c, part * kv + head * attrs.head_dim + c % attrs.head_dim);
    }
  }
}

}  // namespace

template <>
void compute(const Arrays<ops::ShareHeads>& at) {
  const Array &q = at.in.q, &kv = at.in.kv, &qkv = at.out.qkv;
  for (int64_t n = 0; n < qkv.shape[0]; ++n) {
    for (int64_t c = 0; c < q.shape[1]; ++c) qkv.put(n * qkv.shape[1] + c, q.at(n * q.shape[1] + c));
    for_shared_columns(at.attrs, qkv, at.in.rank, [&](int64_t to, int64_t from) {
      qkv.put(n * qkv.shape[1] + to, kv.at(n * kv.shape[1] + from));
    });
  }
}

template <>
void compute(const Arrays<ops::ShareHeadsGrad>& at) {
  const Array &dqkv = at.in.dqkv, &dq = at.out.dq, &dkv = at.out.dkv;
  for (int64_t n = 0; n < dqkv.shape[0]; ++n) {
    for (int64_t c = 0; c < dq.shape[1]; ++c) dq.put(n * dq.shape[1] + c, dqkv.at(n * dqkv.shape[1] + c));
    std::vector<double> sums(static_cast<size_t>(dkv.shape[1]));
    for_shared_columns(at.attrs, dqkv, at.in.rank, [&](int64_t from, int64_t to) {
      sums[static_cast<size_t>(to)] += dqkv.at(n * dqkv.shape[1] + from);
    });
    for (size_t c = 0; c < sums.size(); ++c) dkv.put(n * dkv.shape[1] + static_cast<int64_t>(c), sums[c]);
  }
}

}  // namespace strata::reference
