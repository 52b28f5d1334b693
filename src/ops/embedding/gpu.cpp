#include "device/gpu/gpu.h"
#include "base/error.h"
#include "ops/embedding/embedding.h"

namespace strata::device {
namespace {

// The parts of a vocabulary in a table.
struct Parts {
  int32_t count = 0, rows = 0;
  Parts(const graph::Ref& starts, int64_t table_rows) {
    if (!starts) return;
    count = static_cast<int32_t>(starts->shape[0]);
    rows = static_cast<int32_t>(table_rows / count);
  }
};

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::Embedding>& node) {
  const int64_t rows = node.in.tokens->shape[0], dim = node.in.table->shape[1];
  STRATA_CHECK(node.in.table->dtype == DType::kF32, "GPUs look up tables in fp32, not {}",
               name_of(node.in.table->dtype));
  return node.kernel([dim, parts = Parts(node.in.vocab_start, node.in.table->shape[0]),
                      kernel = gpu::embedding(node.out.x->dtype, rows, dim),
                      scale = static_cast<float>(node.attrs.scale)](const Operands<ops::Embedding>& at) {
    start(at.launch, kernel,
          gpu::EmbeddingArgs{.out = at.out.x,
                             .ids = at.in.tokens,
                             .table = reinterpret_cast<const float*>(at.in.table),
                             .position_table = at.in.position_table,
                             .positions = at.in.positions,
                             .dim = static_cast<int32_t>(dim),
                             .scale = scale,
                             .starts = at.in.vocab_start,
                             .parts = parts.count,
                             .part_rows = parts.rows});
  });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::EmbeddingGrad>& node) {
  const int64_t rows = node.in.ids->shape[0], dim = node.in.dy->shape[1];
  const gpu::EmbeddingGradPlan plan = gpu::embedding_backward(node.in.dy->dtype, rows, dim);
  return node.kernel(
      [plan, rows, dim, parts = Parts(node.in.vocab_start, node.out.dtable->shape[0]),
       table = node.out.dtable->bytes(), adds = node.adds.dtable,
       attrs = node.attrs](const Operands<ops::EmbeddingGrad>& at) {
        if (!adds) gpu_queue(at.launch).clear(at.out.dtable, table);
        auto* const sorted = reinterpret_cast<uint64_t*>(at.scratch);
        start(at.launch, plan.sort,
              gpu::EmbeddingSortArgs{.sorted = sorted,
                                     .ids = at.in.ids,
                                     .rows = rows,
                                     .run = static_cast<int32_t>(plan.run),
                                     .padding = static_cast<int32_t>(attrs.padding_id),
                                     .starts = at.in.vocab_start,
                                     .parts = parts.count,
                                     .part_rows = parts.rows});
        for (int64_t run = 0; run < plan.runs; ++run)
          start(at.launch, plan.add,
                gpu::EmbeddingGradArgs{.table = at.out.dtable,
                                       .dy = at.in.dy,
                                       .sorted = sorted,
                                       .number = static_cast<int32_t>(run),
                                       .run = static_cast<int32_t>(plan.run),
                                       .dim = static_cast<int32_t>(dim),
                                       .scale = static_cast<float>(attrs.scale)});
      },
      plan.run * plan.runs * static_cast<int64_t>(sizeof(uint64_t)));
}

}  // namespace strata::device
