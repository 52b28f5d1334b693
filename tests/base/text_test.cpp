#include "base/text.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace strata {
namespace {

TEST(Text, JsonStringAgreesWithALibrary) {
  for (int c = 0; c < 0x80; ++c) {
    for (size_t before = 0; before < 18; ++before) {
      const std::string text = std::string(before, 'x') + static_cast<char>(c) + "yz" + static_cast<char>(c);
      EXPECT_EQ(parse_json<nlohmann::json>(json_string(text)).get<std::string>(), text) << c << " " << before;
    }
  }
  EXPECT_EQ(json_string("a\"b\\\n\t\x01\x7f"), "\"a\\\"b\\\\\\n\\t\\u0001\x7f\"");
  EXPECT_EQ(json_string(""), "\"\"");
  EXPECT_EQ(json_string("gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80"), "\"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80\"");
}

TEST(Text, PrefixesEndBetweenCharacters) {
  const std::string text = "a\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80z";  // 1, 2, 3, 4 and 1 bytes
  const std::vector<size_t> ends = {0, 1, 3, 6, 10, 11};
  for (size_t bytes = 0; bytes <= text.size() + 2; ++bytes) {
    const auto end = *(std::upper_bound(ends.begin(), ends.end(), bytes) - 1);
    EXPECT_EQ(utf8_prefix(text, bytes), text.substr(0, end)) << bytes;
  }
  // Bytes that are not UTF-8 do not count as one endless character.
  EXPECT_EQ(utf8_prefix(std::string(20, '\x80'), 10).size(), 10u);
  EXPECT_EQ(utf8_prefix("", 0), "");
  EXPECT_EQ(utf8_prefix("\xc3\xbc", 1), "");
}

}  // namespace
}  // namespace strata
