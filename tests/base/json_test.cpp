// JSON of users' files: any depth is refused before something calls itself for each level.
#include "base/json.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

using nlohmann::json;

std::string nested(size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

TEST(Json, RefusesWhatIsNestedTooDeep) {
  EXPECT_EQ(dump_json(parse_json<json>(nested(2000))), nested(2000));
  for (const size_t levels : {size_t{2001}, size_t{1} << 22}) {
    EXPECT_THROW(parse_json<json>(nested(levels)), json::parse_error);
    EXPECT_TRUE(parse_json_or_discard<json>(nested(levels)).is_discarded());
  }
  EXPECT_THROW(parse_json<json>(std::string(1 << 22, '[')), json::parse_error);
}

TEST(Json, BracketsOfTextsAreNoLevels) {
  const std::string text = "\"" + std::string(5000, '[') + R"(\"{\\)" + "\"";
  EXPECT_EQ(parse_json<json>(text).get<std::string>(), std::string(5000, '[') + "\"{\\");
  EXPECT_EQ(parse_json<json>("[" + text + ",[]]").size(), 2U);
}

TEST(Json, TakesTheInfinitiesThatPythonWrites) {
  const auto found = parse_json<nlohmann::json>(with_float_objects(
      R"({"limit": [0.0, Infinity], "least": -Infinity, "text": "no \"Infinity\"", "n": NaN})"));
  EXPECT_EQ(found["limit"][1]["__float__"], "Infinity");
  EXPECT_EQ(found["least"]["__float__"], "-Infinity");
  EXPECT_EQ(found["n"]["__float__"], "NaN");
  EXPECT_EQ(found["text"], "no \"Infinity\"");
  EXPECT_EQ(with_float_objects(R"({"a": "x\\"})"), R"({"a": "x\\"})");
}

}  // namespace
}  // namespace strata
