#include "ops/statistics/statistics.h"

#include <numeric>

#include "device/cpu/cpu.h"
#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/statistics.h"

namespace strata::device {
namespace {

static_assert(ops::kDigestBlock == cpu::kNormBlock, "partial sums are of the kernel's blocks");

bool is_on(const int64_t* mask, int64_t group) {
  return (*mask >> group & 1) != 0;
}

void write_table(double* to, StatisticsTable measured, bool adds) {
  auto& table = *reinterpret_cast<StatisticsTable*>(to);
  if (adds) add_statistics(measured, table);
  table = measured;
}

cpu::MeasuredLines lines_of(const graph::Value& x, const ops::StatisticsAttrs& attrs) {
  cpu::MeasuredLines lines = cpu::flat_lines(x.shape.elements(), x.dtype);
  lines.largest = static_cast<float>(attrs.largest);
  if (attrs.part < 0 && attrs.row == 0) return lines;
  const int last = x.shape.rank() - 1;
  const int64_t all = x.shape[last], rows = all == 0 ? 0 : x.shape.elements() / all;
  int64_t columns = all;
  if (attrs.part >= 0) {
    const std::vector<int64_t> parts = x.parts(last);
    const auto own = parts.begin() + attrs.part;
    columns = *own;
    lines.first = std::accumulate(parts.begin(), own, int64_t{0});
  }
  lines.length = attrs.row > 0 ? attrs.row : columns;
  lines.per_row = lines.length == 0 ? 1 : columns / lines.length;
  lines.lines = rows * lines.per_row;
  lines.stride = all;
  return lines;
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::Statistics>& node) {
  const cpu::MeasuredLines lines = lines_of(*node.in.x, node.attrs);
  const bool adds = node.adds.table, is_later = adds && node.attrs.first;
  const bool by_row = node.attrs.row > 0;
  return node.kernel(
      [lines, adds, is_later, by_row, group = node.attrs.group](const Operands<ops::Statistics>& at) {
        if (is_later || !is_on(at.in.mask, group)) return;
        StatisticsTable measured =
            cpu::measure(lines, at.in.x, reinterpret_cast<StatisticsTable*>(at.scratch));
        if (!by_row) measured.row_squares = 0;
        write_table(at.out.table, measured, adds);
      },
      cpu::measured_blocks(lines) * static_cast<int64_t>(sizeof(StatisticsTable)));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::TakeSample>& node) {
  const int64_t m = std::min(ops::kMostSampled, node.in.x->shape.elements());
  return node.kernel(
      [n = node.in.x->shape.elements(), m, group = node.attrs.group](const Operands<ops::TakeSample>& at) {
        if (is_on(at.in.mask, group)) cpu::take_sample(at.out.sample, m, at.in.x, n);
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::SampleChange>& node) {
  return node.kernel([n = node.in.x->shape.elements(), m = node.in.sample->shape.elements(),
                      group = node.attrs.group,
                      adds = node.adds.table](const Operands<ops::SampleChange>& at) {
    if (!is_on(at.in.mask, group)) return;
    StatisticsTable measured = cpu::measure_change(at.in.x, n, at.in.sample, m);
    measured.row_squares = 0;
    write_table(at.out.table, measured, adds);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::SquaresAndDigests>& node) {
  return node.kernel([n = node.in.x->shape.elements()](const Operands<ops::SquaresAndDigests>& at) {
    cpu::squares_and_digests(at.in.x, n, at.out.partials, reinterpret_cast<uint64_t*>(at.out.digests));
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::JoinDigests>& node) {
  std::vector<int64_t> blocks;
  for (const graph::Ref& one : node.in.digests) blocks.push_back(one->shape.elements());
  return node.kernel([blocks = std::move(blocks)](const Operands<ops::JoinDigests>& at) {
    uint64_t digest = 0, place = 0;
    for (size_t t = 0; t < blocks.size(); ++t) {
      for (int64_t i = 0; i < blocks[t]; ++i)
        digest += static_cast<uint64_t>(at.in.digests[t][i]) * ops::factor_of_digest(place++);
    }
    *at.out.digest = static_cast<int64_t>(digest);
  });
}

}  // namespace strata::device
