#include "device/bindings.h"

#include <algorithm>

#include "base/error.h"

namespace strata::device {

const Binding& find_binding(std::span<const Binding> table, const graph::OpDef& op) {
  for (const Binding& row : table) {
    if (row.op == &op) return row;
  }
  throw InternalError("op {} has no kernel in this device's table", op.name);
}

std::vector<Binding> with_fallback(std::span<const Binding> table, std::span<const Binding> fallback) {
  std::vector<Binding> all(table.begin(), table.end());
  for (const Binding& row : fallback) {
    const auto is_same = [&](const Binding& own) { return own.op == row.op; };
    if (std::none_of(table.begin(), table.end(), is_same)) all.push_back(row);
  }
  return all;
}

}  // namespace strata::device
