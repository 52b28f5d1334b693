#include <algorithm>
#include <bit>

#include "device/cpu/cpu.h"
#include "graph/placement.h"
#include "ops/quantize/quantize.h"
#include "quantize/quantizer.h"

namespace strata::device {
namespace {

using quantize::Along;
using quantize::ScaleRule;

quantize::Source source_of(const graph::Value& x) {
  return {.dtype = x.dtype, .rows = x.shape[0], .columns = x.shape[1], .stride = x.shape[1]};
}

quantize::Treatment columns_treated(const ScaleRule& rule, bool transforms) {
  quantize::Treatment treatment{.rule = rule};
  if (transforms) treatment.hadamard = ops::hadamard_signs();
  return treatment;
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::GreatestMagnitudes>& node) {
  return node.kernel(
      [source = source_of(*node.in.x), attrs = node.attrs](const Operands<ops::GreatestMagnitudes>& at) {
        quantize::Source x = source;
        x.data = at.in.x;
        if (at.out.of_rows != nullptr)
          quantize::find_greatest(x, {.rule = *attrs.along_rows}, Along::kRows, at.out.of_rows);
        if (at.out.of_columns != nullptr)
          quantize::find_greatest(x, columns_treated(*attrs.along_columns, attrs.transforms_columns),
                                  Along::kColumns, at.out.of_columns);
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::GreatestOfRanks>& node) {
  const Shape& found = node.in.found->shape;
  return node.kernel([ranks = found[0], n = found[1]](const Operands<ops::GreatestOfRanks>& at) {
    // Magnitudes compare as integers, NaN above infinity.
    for (int64_t i = 0; i < n; ++i) {
      uint32_t most = 0;
      for (int64_t rank = 0; rank < ranks; ++rank)
        most = std::max(most, std::bit_cast<uint32_t>(at.in.found[rank * n + i]));
      at.out.greatest[i] = std::bit_cast<float>(most);
    }
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::Quantize>& node) {
  std::vector<ops::HeldColumns> held;  // by rank of the axis that cuts them
  const int64_t ranks = node.attrs.columns ? node.attrs.columns->ranks : 1;
  for (int64_t rank = 0; rank < ranks; ++rank)
    held.push_back(ops::held_columns(node.attrs, node.in.x->shape[1], rank));
  return node.kernel([source = source_of(*node.in.x), attrs = node.attrs, held = std::move(held),
                      adds = node.adds.greatest](const Operands<ops::Quantize>& at) {
    quantize::Source x = source;
    x.data = at.in.x;
    if (attrs.stochastic) {
      const ops::HeldColumns& columns = held[static_cast<size_t>(
          graph::place_in(at.in.rank, attrs.axis, static_cast<int64_t>(held.size())))];
      x.places = at.in.places;
      x.runs = columns.runs;
      x.pitch = columns.all;
    }
    std::optional<quantize::Request> rows, columns;
    if (at.out.greatest != nullptr && !adds) *at.out.greatest = 0;
    if (attrs.along_rows)
      rows = {{.rule = *attrs.along_rows},
              {at.out.row_codes, at.out.row_scales},
              at.in.row_greatest,
              at.out.greatest};
    if (attrs.along_columns)
      columns = {columns_treated(*attrs.along_columns, attrs.transforms_columns),
                 {at.out.column_codes, at.out.column_scales},
                 at.in.column_greatest};
    if (attrs.stochastic && rows) rows->treatment.stochastic = ops::stochastic_bits(attrs, false);
    if (attrs.stochastic && columns) columns->treatment.stochastic = ops::stochastic_bits(attrs, true);
    quantize::quantize(x, rows, columns);
  });
}

}  // namespace strata::device
