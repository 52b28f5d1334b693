// Weights in the encodings that a device's kernels want.
#pragma once

#include <span>

#include "device/bindings.h"

namespace strata::device {

// Gives every kernel its weights in the encoding that it wants: adds encoded values and, in phase kEncode,
// the nodes that make them from the masters. Updates whose kernels write encodings themselves have them as
// further outputs; the nodes of kEncode make those only after loading.
void encode_pass(graph::Graph& graph, std::span<const Binding> bindings, const hardware::DeviceSpec& device);

}  // namespace strata::device
