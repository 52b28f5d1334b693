// XXH64 (seed 0) of many overlapping spans of one text, in vectors.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace strata::data::dedup {

// out[i] = XXH64 of the bytes [begins[i], begins[i + words] - 1): `words` words
// with a space between them; `begins` holds the start of each word and one more number after the last.
// Returns how many were hashed, the first ones: none if the processor's vectors are of no use for this.
size_t hash_spans(std::string_view text, const uint32_t* begins, size_t words, std::span<uint64_t> out);

}  // namespace strata::data::dedup
