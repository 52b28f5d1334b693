// The golden files of tools/golden/make_precision_golden.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "quantize/formats.h"

namespace strata::quantize {

inline nlohmann::json golden(const std::string& name) {
  return parse_json<nlohmann::json>(read_file(STRATA_TEST_DATA "/quantize/" + name));
}

inline std::string digest(const void* bytes, int64_t size) {
  return to_hex(hash64(bytes, static_cast<size_t>(size)));
}

inline StochasticBits bits_of_golden(const nlohmann::json& file) {
  return {{file["seed"].get<uint64_t>(), file["stream"].get<uint32_t>()}, file["step"].get<uint32_t>()};
}

}  // namespace strata::quantize
