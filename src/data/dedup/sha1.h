// SHA-1 (FIPS 180-4), for hashes that have to equal other tools'. Not for anything that must resist an
// attack.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace strata::data::dedup {

std::array<uint8_t, 20> sha1(std::string_view bytes);

}  // namespace strata::data::dedup
