// Rules that the matmuls of experts share, whether their operands are activations or codes.
#pragma once

#include "ops/experts/experts.h"
#include "ops/rules.h"

namespace strata::ops {

// The operands of a matmul and its gradients that have one row per pair; the others have one per token.
enum class RowsBy : bool { kToken, kSlot };
constexpr RowsBy other_rows(RowsBy by) {
  return by == RowsBy::kToken ? RowsBy::kSlot : RowsBy::kToken;
}
template <typename Op>
int64_t rows_by(const View<Op>& node, RowsBy by) {
  return by == RowsBy::kSlot ? slots_of(node) : tokens_of(node);
}

// Segments of one expert's outputs, which the parameter repeats for each.
template <typename Op>
std::vector<int64_t> expert_segments(const View<Op>& node) {
  const auto& all = node.in.weight->segments;
  const auto experts = static_cast<size_t>(node.attrs.experts);
  if (all.size() <= experts || all.size() % experts != 0) return {};
  return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / experts)};
}

// The cost of a matmul of all pairs with matrices of this many elements.
template <typename Op>
Cost experts_cost(const View<Op>& node, int64_t elements) {
  const int64_t slots = node.attrs.busy_slots > 0 ? node.attrs.busy_slots : slots_of(node);
  return {2.0 * static_cast<double>(slots) * static_cast<double>(elements),
          graph::streamed_bytes(node.untyped())};
}

}  // namespace strata::ops
