// The GPU code of src/kernels/gpu, as this build has it.
#pragma once

#include <string_view>

namespace strata::device {

// The text of a module's PTX, zero-terminated; empty: there is none of this name.
std::string_view ptx_of(std::string_view module);

}  // namespace strata::device
