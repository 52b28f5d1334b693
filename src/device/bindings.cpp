#include "device/bindings.h"

#include "base/error.h"

namespace strata::device {

const Binding& find_binding(std::span<const Binding> table, const graph::OpDef& op) {
  for (const Binding& row : table) {
    if (row.op == &op) return row;
  }
  throw InternalError("op {} has no kernel in this device's table", op.name);
}

}  // namespace strata::device
