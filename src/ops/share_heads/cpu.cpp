#include "kernels/cpu/shared_heads.h"

#include "device/cpu/cpu.h"
#include "ops/share_heads/share_heads.h"

namespace strata::device {
namespace {

cpu::SharedHeads shared_heads_of(const graph::Value& qkv, const graph::Value& kv,
                                 const ops::ShareHeadsAttrs& attrs) {
  return {.rows = qkv.shape[0],
          .q_width = qkv.segments[0],
          .head_dim = attrs.head_dim,
          .kv_heads = kv.shape[1] / 2 / attrs.head_dim,
          .copies = attrs.copies,
          .own = qkv.segments[1] / attrs.head_dim,
          .dtype = qkv.dtype};
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::ShareHeads>& node) {
  return node.kernel([shape = shared_heads_of(*node.out.qkv, *node.in.kv, node.attrs), axis = node.attrs.axis,
                      ranks = node.attrs.ranks](const Operands<ops::ShareHeads>& at) {
    cpu::share_heads_forward(shape, at.out.qkv, at.in.q, at.in.kv,
                             graph::place_in(at.in.rank, axis, ranks) * shape.own);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ShareHeadsGrad>& node) {
  return node.kernel([shape = shared_heads_of(*node.in.dqkv, *node.out.dkv, node.attrs),
                      axis = node.attrs.axis,
                      ranks = node.attrs.ranks](const Operands<ops::ShareHeadsGrad>& at) {
    cpu::share_heads_backward(shape, at.out.dq, at.out.dkv, at.in.dqkv,
                              graph::place_in(at.in.rank, axis, ranks) * shape.own);
  });
}

}  // namespace strata::device
