#include "kernels/cpu/embedding.h"

#include "device/cpu/cpu.h"
#include "ops/embedding/embedding.h"

namespace strata::device {
namespace {

int64_t parts_of(const graph::Ref& vocab_start) {
  return vocab_start ? vocab_start->shape[0] : 1;
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::Embedding>& node) {
  const auto& in = node.in;
  const cpu::EmbeddingShape shape{.rows = in.tokens->shape[0],
                                  .dim = in.table->shape[1],
                                  .vocab = in.table->shape[0],
                                  .positions = in.position_table ? in.position_table->shape[0] : 0,
                                  .dtype = node.out.x->dtype,
                                  .scale = static_cast<float>(node.attrs.scale),
                                  .parts = parts_of(in.vocab_start),
                                  .table_dtype = in.table->dtype};
  return node.kernel([shape](const Operands<ops::Embedding>& at) {
    cpu::embedding_forward(shape, at.out.x, at.in.tokens, at.in.table, at.in.position_table, at.in.positions,
                           at.in.vocab_start);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::EmbeddingGrad>& node) {
  const cpu::EmbeddingShape shape{.rows = node.in.ids->shape[0],
                                  .dim = node.in.dy->shape[1],
                                  .vocab = node.out.dtable->shape[0],
                                  .dtype = node.in.dy->dtype,
                                  .scale = static_cast<float>(node.attrs.scale),
                                  .padding = node.attrs.padding_id,
                                  .parts = parts_of(node.in.vocab_start)};
  return node.kernel([shape, adds = node.adds.dtable](const Operands<ops::EmbeddingGrad>& at) {
    cpu::embedding_backward(shape, at.out.dtable, at.in.dy, at.in.ids, adds, at.in.vocab_start);
  });
}

}  // namespace strata::device
