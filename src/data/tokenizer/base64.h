// Base64 as tokenizer files use it: the standard alphabet, padding optional.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace strata::data {

std::optional<std::string> decode_base64(std::string_view text);  // nothing if it is not base64

}  // namespace strata::data
