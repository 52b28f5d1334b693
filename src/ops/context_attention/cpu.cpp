#include "ops/attention/cpu.h"

#include <cstring>

#include "base/parallel.h"
#include "ops/context_attention/context_attention.h"

namespace strata::device {
namespace {

struct ContextPlan {
  cpu::AttentionPlan attention;
  ops::ContextAttentionAttrs attrs;
  int64_t k_bytes;       // of a row
  int64_t starts_bytes;  // of the scratch before the kernel's own: places of queries, then of keys

  template <typename Op>
  explicit ContextPlan(const Bind<Op>& node)
      : attention(cpu::plan_attention(shape(node), node.device)),
        attrs(node.attrs),
        k_bytes(value_offset(*node.in.kv)),
        starts_bytes(align_up(4 * attention.shape.batch * int64_t{sizeof(int32_t)}, kBufferAlignment)) {}

  // Writes to the scratch the begin of this rank's two chunks, for each sequence, and those of the rank whose
  // keys it reads.
  template <typename Op>
  cpu::AttentionInputs inputs(const Operands<Op>& at) const {
    cpu::AttentionInputs inputs = attention_inputs(at, at.in.q, at.in.kv, at.in.kv + k_bytes);
    auto* const starts = reinterpret_cast<int32_t*>(at.scratch);
    const int64_t index = graph::place_in(at.in.rank, attrs.axis, attrs.ranks);
    inputs.q_start = starts;
    fill_pieces(starts, index);
    if (attrs.ring_step < 0) return inputs;
    int32_t* const kv_starts = starts + 2 * attention.shape.batch;
    inputs.kv_start = kv_starts;
    fill_pieces(kv_starts, (index + attrs.ranks - attrs.ring_step % attrs.ranks) % attrs.ranks);
    return inputs;
  }

 private:
  template <typename Op>
  static cpu::AttentionShape shape(const Bind<Op>& node) {
    const graph::Value &q = *node.in.q, &kv = *node.in.kv;
    cpu::AttentionShape shape =
        attention_shape(node, q, q.shape[1], node.attrs.kv_length, kv.segments[0], kv.shape[1]);
    shape.value_dim = node.attrs.size_of_value();
    shape.out_stride = shape.heads * shape.value_dim;
    shape.q_pieces = 2;
    shape.kv_pieces = node.attrs.ring_step < 0 ? 1 : 2;
    return shape;
  }
  void fill_pieces(int32_t* to, int64_t index) const {
    const int64_t piece = attention.shape.q_len / 2;
    for (int64_t b = 0; b < attention.shape.batch; ++b) {
      to[2 * b] = static_cast<int32_t>(index * piece);
      to[2 * b + 1] = static_cast<int32_t>((2 * attrs.ranks - 1 - index) * piece);
    }
  }
};

// copy(row, bytes of q, bytes of kv) for each row.
template <typename Copy>
auto for_rows_of_qkv(const graph::Value& q, const graph::Value& kv, Copy copy) {
  return [=, rows = q.shape[0], q_bytes = static_cast<size_t>(q.shape[1] * size_of(q.dtype)),
          kv_bytes = static_cast<size_t>(kv.shape[1] * size_of(kv.dtype))](const auto& at) {
    parallel_ranges(rows, 64, [&](int64_t begin, int64_t end) {
      for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row)
        copy(at, row, q_bytes, kv_bytes);
    });
  };
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::ContextAttention>& node) {
  const ContextPlan plan(node);
  return node.kernel(
      [plan, adds = node.adds.greatest](const Operands<ops::ContextAttention>& at) {
        cpu::attention_forward(plan.attention, at.out.out, at.out.lse, plan.inputs(at),
                               at.scratch + plan.starts_bytes, {at.out.greatest, adds});
      },
      plan.starts_bytes + plan.attention.forward_scratch_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ContextAttentionGrad>& node) {
  const ContextPlan plan(node);
  return node.kernel(
      [plan](const Operands<ops::ContextAttentionGrad>& at) {
        cpu::attention_backward(
            plan.attention,
            {.dq = at.out.dq, .dk = at.out.dkv, .dv = at.out.dkv + plan.k_bytes, .dbias = at.out.dbias},
            at.in.dout, at.in.out, at.in.lse, plan.inputs(at), at.scratch + plan.starts_bytes);
      },
      plan.starts_bytes + plan.attention.backward_scratch_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::MergeAttention>& node) {
  const graph::Value& out = *node.in.out;
  const auto& attrs = node.attrs;
  const cpu::AttentionMergeShape shape{.rows = out.shape[0],
                                       .length = attrs.sequence_length,
                                       .heads = out.shape[1] / attrs.size_of_value(),
                                       .head_dim = attrs.size_of_value(),
                                       .dtype = out.dtype};
  return node.kernel([shape](const Operands<ops::MergeAttention>& at) {
    cpu::merge_attention(shape, at.out.out, at.out.lse, at.in.out, at.in.lse, at.in.more_out, at.in.more_lse);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::SplitQkv>& node) {
  return node.kernel(
      for_rows_of_qkv(*node.out.q, *node.out.kv,
                      [](const Operands<ops::SplitQkv>& at, size_t row, size_t q_bytes, size_t kv_bytes) {
                        const std::byte* const from = at.in.qkv + row * (q_bytes + kv_bytes);
                        std::memcpy(at.out.q + row * q_bytes, from, q_bytes);
                        std::memcpy(at.out.kv + row * kv_bytes, from + q_bytes, kv_bytes);
                      }));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::JoinQkv>& node) {
  return node.kernel(
      for_rows_of_qkv(*node.in.q, *node.in.kv,
                      [](const Operands<ops::JoinQkv>& at, size_t row, size_t q_bytes, size_t kv_bytes) {
                        std::byte* const to = at.out.qkv + row * (q_bytes + kv_bytes);
                        std::memcpy(to, at.in.q + row * q_bytes, q_bytes);
                        std::memcpy(to + q_bytes, at.in.kv + row * kv_bytes, kv_bytes);
                      }));
}

}  // namespace strata::device
