// Parses a PTX module.
#pragma once

#include <string>
#include <string_view>

#include "ptx/syntax.h"

namespace strata::gpu_tests {

// `file` names the text in messages. Throws LoadError.
ModuleSyntax parse_module(std::string_view text, const std::string& file);

}  // namespace strata::gpu_tests
