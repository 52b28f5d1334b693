#include "kernels/cpu/sparse_attention.h"

#include <cstring>

#include "device/cpu/cpu.h"
#include "kernels/cpu/indexer_loss.h"
#include "kernels/cpu/key_selection.h"
#include "ops/sparse_attention/sparse_attention.h"
#include "tensor/arena.h"

namespace strata::device {
namespace {

// The indexer's rows. Where ranks share them, the scratch begins with the places of a rank's two chunks.
struct IndexerRows {
  cpu::IndexerShape shape;
  ops::IndexerAttrs attrs;
  int64_t starts_bytes = 0;

  template <typename Op>
  IndexerRows(const Bind<Op>& node, const ops::IndexerAttrs& of_node) : attrs(of_node) {
    const graph::Value& k = *node.in.k;
    shape = {.sequences = node.in.q->shape[0] / attrs.sequence_length,
             .q_len = attrs.sequence_length,
             .kv_len = attrs.kv_length,
             .heads = node.in.weights->shape[1],
             .size = k.shape[1],
             .count = attrs.count,
             .scale = static_cast<float>(attrs.scale),
             .dtype = k.dtype,
             .q_pieces = attrs.ranks > 1 ? 2 : 1,
             .kv_batch_stride = attrs.kv_length * k.shape[1]};
    if (attrs.ranks > 1)
      starts_bytes = align_up(2 * shape.sequences * int64_t{sizeof(int32_t)}, kBufferAlignment);
  }

  template <typename Op>
  cpu::IndexerInputs inputs(const Operands<Op>& at) const {
    cpu::IndexerInputs in{.q = at.in.q, .k = at.in.k, .weights = at.in.weights, .kv_begin = at.in.kv_begin};
    if (attrs.ranks == 1) return in;
    auto* const starts = reinterpret_cast<int32_t*>(at.scratch);
    const int64_t index = graph::place_in(at.in.rank, attrs.axis, attrs.ranks), piece = shape.q_len / 2;
    for (int64_t s = 0; s < shape.sequences; ++s) {
      starts[2 * s] = static_cast<int32_t>(index * piece);
      starts[2 * s + 1] = static_cast<int32_t>((2 * attrs.ranks - 1 - index) * piece);
    }
    in.q_start = starts;
    return in;
  }
};

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::SelectKeys>& node) {
  const IndexerRows rows(node, node.attrs);
  const cpu::KeySelectionPlan plan = cpu::plan_key_selection(rows.shape, node.device);
  return node.kernel(
      [rows, plan](const Operands<ops::SelectKeys>& at) {
        cpu::select_keys(plan, at.out.chosen, rows.inputs(at), at.scratch + rows.starts_bytes);
      },
      rows.starts_bytes + plan.bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CachedSelectKeys>& node) {
  const graph::Value& cache = *node.in.cache;
  const int64_t positions = cache.shape[1], size = cache.shape[2];
  cpu::IndexerShape shape = IndexerRows(node, node.attrs).shape;
  shape.kv_len = positions;
  shape.kv_batch_stride = positions * size;
  const cpu::KeySelectionPlan plan = cpu::plan_key_selection(shape, node.device);
  return node.kernel(
      [plan, positions, bytes = size * size_of(cache.dtype)](const Operands<ops::CachedSelectKeys>& at) {
        const int64_t length = plan.shape.q_len;
        for (int64_t row = 0; row < plan.shape.sequences * length; ++row) {
          const int64_t s = row / length;
          const int64_t place = at.in.slot[s] * positions + at.in.position[s] + row % length;
          std::memcpy(at.out.cache + place * bytes, at.in.k + row * bytes, static_cast<size_t>(bytes));
        }
        cpu::select_keys(plan, at.out.chosen,
                         {.q = at.in.q,
                          .k = at.out.cache,
                          .weights = at.in.weights,
                          .q_start = at.in.position,
                          .kv_slot = at.in.slot},
                         at.scratch);
      },
      plan.bytes);
}

namespace {

// Attention to chosen keys of a node, and the byte at which values begin in a row [k | v].
struct SparsePlan {
  cpu::SparseAttentionPlan attention;
  int64_t k_bytes;

  template <typename Op>
  explicit SparsePlan(const Bind<Op>& node) {
    const graph::Value &q = *node.in.q, &kv = *node.in.kv;
    const ops::SparseAttentionAttrs& attrs = node.attrs;
    attention = cpu::plan_sparse_attention({.sequences = q.shape[0] / attrs.sequence_length,
                                            .q_len = attrs.sequence_length,
                                            .kv_len = attrs.kv_length,
                                            .count = node.in.chosen->shape[1],
                                            .heads = q.shape[1] / attrs.head_dim,
                                            .kv_heads = kv.segments[0] / attrs.head_dim,
                                            .head_dim = attrs.head_dim,
                                            .value_dim = attrs.size_of_value(),
                                            .scale = static_cast<float>(attrs.scale),
                                            .dtype = q.dtype,
                                            .q_stride = q.shape[1],
                                            .k_stride = kv.shape[1],
                                            .v_stride = kv.shape[1],
                                            .kv_batch_stride = kv.shape[1] * attrs.kv_length},
                                           node.device);
    k_bytes = kv.segments[0] * size_of(kv.dtype);
  }
  template <typename Op>
  cpu::SparseAttentionInputs inputs(const Operands<Op>& at) const {
    return {.q = at.in.q, .k = at.in.kv, .v = at.in.kv + k_bytes, .chosen = at.in.chosen};
  }
};

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::SparseAttention>& node) {
  const SparsePlan plan(node);
  return node.kernel(
      [plan](const Operands<ops::SparseAttention>& at) {
        cpu::sparse_attention_forward(plan.attention, at.out.out, at.out.lse, at.out.mass, plan.inputs(at),
                                      at.scratch);
      },
      plan.attention.forward_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::SparseAttentionGrad>& node) {
  const SparsePlan plan(node);
  return node.kernel(
      [plan](const Operands<ops::SparseAttentionGrad>& at) {
        cpu::sparse_attention_backward(plan.attention,
                                       {.dq = at.out.dq, .dk = at.out.dkv, .dv = at.out.dkv + plan.k_bytes},
                                       at.in.dout, at.in.out, at.in.lse, plan.inputs(at), at.scratch);
      },
      plan.attention.backward_bytes);
}

namespace {

struct LossPlan {
  IndexerRows rows;
  cpu::IndexerLossPlan loss;

  template <typename Op>
  explicit LossPlan(const Bind<Op>& node) : rows(node, node.attrs.indexer) {
    cpu::IndexerLossShape shape{.rows = rows.shape, .coefficient = node.attrs.coefficient};
    if (node.in.main_q) {
      const graph::Value &q = *node.in.main_q, &kv = *node.in.main_kv;
      shape.main_dim = node.attrs.head_dim;
      shape.main_heads = q.shape[1] / shape.main_dim;
      shape.main_kv_heads = kv.segments[0] / shape.main_dim;
      shape.main_k_stride = kv.shape[1];
      shape.main_kv_batch_stride = kv.shape[1] * rows.attrs.kv_length;
      shape.main_scale = static_cast<float>(node.attrs.main_scale);
    }
    loss = cpu::plan_indexer_loss(shape, node.device);
  }
  template <typename Op>
  cpu::IndexerLossInputs inputs(const Operands<Op>& at) const {
    return {.rows = rows.inputs(at),
            .targets = at.in.targets,
            .chosen = at.in.chosen,
            .mass = at.in.mass,
            .main_q = at.in.main_q,
            .main_k = at.in.main_kv,
            .main_lse = at.in.main_lse};
  }
};

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::IndexerLoss>& node) {
  const LossPlan plan(node);
  return node.kernel(
      [plan, adds = node.adds.sum](const Operands<ops::IndexerLoss>& at) {
        cpu::indexer_loss_forward(plan.loss, at.out.sum, plan.inputs(at), adds,
                                  at.scratch + plan.rows.starts_bytes);
      },
      plan.rows.starts_bytes + plan.loss.forward_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::IndexerLossGrad>& node) {
  const LossPlan plan(node);
  return node.kernel(
      [plan](const Operands<ops::IndexerLossGrad>& at) {
        cpu::indexer_loss_backward(plan.loss, {.dq = at.out.dq, .dk = at.out.dk, .dweights = at.out.dweights},
                                   at.in.seed != nullptr ? *at.in.seed : 1.0f, plan.inputs(at),
                                   at.scratch + plan.rows.starts_bytes);
      },
      plan.rows.starts_bytes + plan.loss.backward_bytes);
}

}  // namespace strata::device
