// The program's version, as `strata --version`, run.toml and checkpoints state it.
#pragma once

#include <string_view>

namespace strata {

std::string_view program_version();

}  // namespace strata
