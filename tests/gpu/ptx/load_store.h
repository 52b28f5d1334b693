// Modifiers that several memory instructions share.
#pragma once

#include "ptx/decoder.h"

namespace strata::gpu_tests {

bool take_scope(Decoder& d);
Space take_optional_space(Decoder& d);
bool take_cache_hint(Decoder& d);

}  // namespace strata::gpu_tests
