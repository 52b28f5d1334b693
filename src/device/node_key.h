// What a device can tell of a node. Nodes with equal keys take the same kernels and encodings, so that a
// device is asked once for all of them.
#pragma once

#include <string>

#include "graph/op.h"

namespace strata::device {

// Adds the op, the types, shapes, parts and encodings of all operands, and the attributes; nothing of names,
// layers and places.
void append_key(std::string& key, const graph::NodeView& view);

}  // namespace strata::device
