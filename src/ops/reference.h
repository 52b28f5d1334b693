// The reference kernel of an op: its formula in fp64, with operands by name. The kernels are in
// src/ops/NAME/reference.cpp; kernels/reference/call.h describes the rules for them.
#pragma once

#include "graph/typed_op.h"
#include "kernels/reference/call.h"

namespace strata::reference {

template <typename Kind>
using ArrayOf = graph::detail::OneOrMany<Array, graph::KindOf<Kind>::many>;

template <typename Op>
struct Arrays {
  typename Op::template In<ArrayOf> in;
  typename Op::template Out<ArrayOf> out;
  const typename Op::Attrs& attrs;

  explicit Arrays(const Call& call)
      : in(graph::detail::gather<Op::template In, ArrayOf>(call.in.size(),
                                                           [&](size_t i) { return call.in[i]; })),
        out(graph::detail::gather<Op::template Out, ArrayOf>(call.out.size(),
                                                             [&](size_t i) { return call.out[i]; })),
        attrs(graph::attributes_of<Op>(call.attrs)) {}
};

// This rank's coordinate on an axis, read from its constants.
inline int64_t place_in(const Array& rank_block, graph::Axis axis, int64_t ranks) {
  return ranks > 1 ? rank_block.index_at(static_cast<int64_t>(axis)) : 0;
}

// Defined op by op; a row of the table for one that is not does not link.
template <typename Op>
void compute(const Arrays<Op>& at);

}  // namespace strata::reference
