#include "base/quantity.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(ByteSize, UnitsOfThousandsAndOf1024) {
  EXPECT_EQ(parse_byte_size("77"), 77);
  EXPECT_EQ(parse_byte_size("0"), 0);
  EXPECT_EQ(parse_byte_size("12B"), 12);
  EXPECT_EQ(parse_byte_size("1.5K"), 1500);
  EXPECT_EQ(parse_byte_size("1_000 kB"), 1'000'000);
  EXPECT_EQ(parse_byte_size(" 500 MB "), 500'000'000);
  EXPECT_EQ(parse_byte_size("1e9"), 1'000'000'000);
  const struct {
    const char* letter;
    int64_t thousands, powers;
  } kUnits[] = {{"K", 1000, int64_t{1} << 10},
                {"M", 1'000'000, int64_t{1} << 20},
                {"G", 1'000'000'000, int64_t{1} << 30},
                {"T", 1'000'000'000'000, int64_t{1} << 40}};
  for (const auto& [letter, thousands, powers] : kUnits) {
    const std::string unit(letter);
    EXPECT_EQ(parse_byte_size("3" + unit), 3 * thousands) << unit;
    EXPECT_EQ(parse_byte_size("3" + unit + "B"), 3 * thousands) << unit;
    EXPECT_EQ(parse_byte_size("3" + unit + "i"), 3 * powers) << unit;
    EXPECT_EQ(parse_byte_size("3" + unit + "iB"), 3 * powers) << unit;
  }
  EXPECT_EQ(parse_byte_size("3k"), 3000);
  EXPECT_EQ(parse_byte_size("1kB"), 1000);
}

TEST(ByteSize, RejectsOtherText) {
  for (const char* bad : {"", " ", "B", "x", "-3GB", "-1e9", "3 XB", "4G B", "nan", "inf", "1e400", "1..2MB",
                          "10000TiB", "0x10", "4 gigabytes", "1e9GB"})
    EXPECT_FALSE(parse_byte_size(bad)) << bad;
}

}  // namespace
}  // namespace strata
