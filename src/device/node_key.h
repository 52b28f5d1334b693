// The properties of a node that a device may depend on. Nodes with equal keys use the same kernels and packed
// layouts, so that a device is queried once for all of them.
#pragma once

#include <string>

#include "graph/op.h"

namespace strata::device {

// Adds the op, the types, shapes, parts and layouts of all operands, and the attributes; no names, layers or
// places.
void append_key(std::string& key, const graph::NodeView& view);

}  // namespace strata::device
