#include "kernels/cpu/adamw8bit.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "optim/adamw8bit/adamw8bit.h"
#include "optim/cpu.h"

namespace strata::device {
namespace {

cpu::AdamWConstants adamw8bit_constants(const optim::UpdateRule& rule) {
  return adamw_constants(rule.optimizer.as<optim::AdamW8Bit>().adamw, rule);
}

// The kernel only reads these operands, but Moments8Bit has mutable pointers.
cpu::Moments8Bit moments_at(const Operands<optim::AdamW8BitLargest>& at) {
  return {const_cast<uint8_t*>(at.in.m), const_cast<float*>(at.in.m_scale), const_cast<uint8_t*>(at.in.v),
          const_cast<float*>(at.in.v_scale)};
}

// Finds the runs of a tensor that this rank holds. This happens on every launch, because the rank is unknown
// at binding.
struct HeldRuns {
  HeldRuns(const optim::AdamW8BitShardAttrs& of, const Shape& shape)
      : attrs(of),
        elements(of.update, shape),
        constants(adamw8bit_constants(of.update.rule)),
        blocks(of.blocks()) {}

  template <typename Each>
  void for_each_run(const int32_t* rank_constants, const Each& each) const {
    const auto& rank = graph::coordinates_in(rank_constants);
    const graph::Span columns = optim::held_of_part(attrs.columns, 0, rank);
    cpu::HeldRun run{.columns = attrs.columns.size(),
                     .first_column = columns.begin,
                     .width = attrs.columns.parts[0].capacity()};
    STRATA_CHECK(run.width == elements.columns && (run.width == columns.size()),
                 "the rank holds {} of {} columns, but its buffer has {}", columns.size(), run.columns,
                 elements.columns);
    int64_t first = 0;
    for (size_t part = 0; part < attrs.rows.parts.size(); ++part) {
      const graph::Span held = optim::held_of_part(attrs.rows, part, rank);
      run.row = first + held.begin;
      run.rows = held.size();
      if (run.rows > 0) each(run);
      run.at += attrs.rows.parts[part].capacity();
      first += attrs.rows.parts[part].size;
    }
  }

  optim::AdamW8BitShardAttrs attrs;
  optim::UpdateElements elements;
  cpu::AdamWConstants constants;
  int64_t blocks;
};

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<optim::AdamW8BitUpdate>& node) {
  return node.kernel(
      [elements = optim::UpdateElements(node.attrs, node.in.parameter->shape),
       constants = adamw8bit_constants(node.attrs.rule)](const Operands<optim::AdamW8BitUpdate>& at) {
        cpu::adamw8bit_update(elements.count, at.out.parameter + elements.first,
                              {at.out.m, at.out.m_scale, at.out.v, at.out.v_scale},
                              at.in.gradient + elements.first, scalars_at(at.in.scalars), constants);
      });
}

template <>
BoundKernel bind(Cpu, const Bind<optim::AdamW8BitLargest>& node) {
  return node.kernel(
      [held = HeldRuns(node.attrs, node.in.gradient->shape)](const Operands<optim::AdamW8BitLargest>& at) {
        std::fill_n(at.out.largest, 2 * held.blocks, 0.0f);
        held.for_each_run(at.in.rank, [&](const cpu::HeldRun& run) {
          cpu::adamw8bit_largest(run, moments_at(at), at.in.gradient + held.elements.first,
                                 scalars_at(at.in.scalars), held.constants, at.out.largest,
                                 at.out.largest + held.blocks);
        });
      });
}

template <>
BoundKernel bind(Cpu, const Bind<optim::AdamW8BitShard>& node) {
  const HeldRuns runs(node.attrs, node.in.parameter->shape);
  const int64_t ranks = node.in.largest->shape.elements() / std::max<int64_t>(2 * runs.blocks, 1);
  return node.kernel(
      [held = runs, ranks](const Operands<optim::AdamW8BitShard>& at) {
        const UpdateScalars* const scalars = scalars_at(at.in.scalars);
        if (scalars->skip != 0) return;
        const int64_t count = 2 * held.blocks;
        float* const largest = reinterpret_cast<float*>(at.scratch);
        const float* const largest_by_rank = at.in.largest;
        parallel_ranges(count, int64_t{1} << 12, [&](int64_t begin, int64_t end) {
          std::copy(largest_by_rank + begin, largest_by_rank + end, largest + begin);
          for (int64_t rank = 1; rank < ranks; ++rank) {
            for (int64_t i = begin; i < end; ++i)
              largest[i] = std::max(largest[i], largest_by_rank[rank * count + i]);
          }
        });
        held.for_each_run(at.in.rank, [&](const cpu::HeldRun& run) {
          cpu::adamw8bit_update_run(run, at.out.parameter + held.elements.first,
                                    {at.out.m, at.out.m_scale, at.out.v, at.out.v_scale},
                                    at.in.gradient + held.elements.first, scalars, held.constants, largest,
                                    largest + held.blocks);
        });
        std::copy_n(largest, held.blocks, at.out.m_scale);
        std::copy_n(largest + held.blocks, held.blocks, at.out.v_scale);
      },
      2 * runs.blocks * static_cast<int64_t>(sizeof(float)));
}

}  // namespace strata::device
