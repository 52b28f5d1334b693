// Weights in the packed layouts that a device's kernels need.
#pragma once

#include <span>

#include "device/bindings.h"

namespace strata::device {

// The layout of a copy in bf16 in the order of its elements.
inline constexpr const char* kPlainBf16 = "bf16";
graph::Encoding bf16_copy_of(const graph::Value& weight);

// Provides every kernel with weights in the layout that it needs: adds packed values and, in phase kEncode, the
// nodes that make them from the master weights. Updates whose kernels write packed layouts themselves have
// them as further outputs; the nodes of kEncode then run only after loading.
void encode_pass(graph::Graph& graph, std::span<const Binding> bindings, const hardware::DeviceSpec& device);

}  // namespace strata::device
