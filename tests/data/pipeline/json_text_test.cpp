#include "data/pipeline/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace strata::data {
namespace {

std::string as_json(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

TEST(JsonText, EqualsALibrarysAtEveryPlace) {
  for (int c = 0; c < 0x80; ++c) {
    for (size_t before = 0; before < 18; ++before) {
      const std::string text = std::string(before, 'x') + static_cast<char>(c) + "yz" + static_cast<char>(c);
      EXPECT_EQ(nlohmann::json::parse(as_json(text)).get<std::string>(), text) << c << " " << before;
    }
  }
  EXPECT_EQ(as_json("a\"b\\\n\t\x01\x7f"), "\"a\\\"b\\\\\\n\\t\\u0001\x7f\"");
  EXPECT_EQ(as_json(""), "\"\"");
  EXPECT_EQ(as_json("gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80"), "\"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80\"");
}

}  // namespace
}  // namespace strata::data
