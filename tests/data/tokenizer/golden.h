// Files made by tools/golden/make_tokenizer_golden.py.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "data/tokenizer/tokenizer.h"

namespace strata::data {

inline std::string golden_path(const std::string& name) {
  return std::string(STRATA_TEST_DATA) + "/tokenizer/golden/" + name;
}
inline Tokenizer golden_tokenizer(const std::string& name) {
  return Tokenizer::load(golden_path(name + ".json"));
}
inline nlohmann::json golden_cases() {
  return parse_json<nlohmann::json>(read_file(golden_path("cases.json")));
}

}  // namespace strata::data
