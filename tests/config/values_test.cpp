#include "config/values.h"

#include <gtest/gtest.h>

namespace strata::training {
namespace {

TEST(ValuesTest, Counts) {
  EXPECT_EQ(config::parse_count("500M"), 500'000'000);
  EXPECT_EQ(config::parse_count("1_000"), 1000);
  EXPECT_EQ(config::parse_count("2.5B"), 2'500'000'000);
  EXPECT_EQ(config::parse_count("64 k"), 64'000);
  for (const char* bad : {"", "k", "-5", "1.5", "1..2k", "5 apples", "1e3"})
    EXPECT_FALSE(config::parse_count(bad)) << bad;
}

TEST(ValuesTest, Bytes) {
  EXPECT_EQ(config::parse_bytes("4GB")->count, 4'000'000'000);
  EXPECT_EQ(config::parse_bytes("4 GiB")->count, int64_t{4} << 30);
  EXPECT_EQ(config::parse_bytes("1.5MiB")->count, 1572864);
  EXPECT_EQ(config::parse_bytes("17")->count, 17);
  for (const char* bad : {"", "GB", "4 gigabytes", "-1GB", "4G B"})
    EXPECT_FALSE(config::parse_bytes(bad)) << bad;
}

TEST(ValuesTest, Durations) {
  EXPECT_EQ(config::parse_duration("90s")->seconds, 90);
  EXPECT_EQ(config::parse_duration("10min")->seconds, 600);
  EXPECT_EQ(config::parse_duration("1.5 h")->seconds, 5400);
  EXPECT_EQ(config::parse_duration("2 days")->seconds, 172800);
  EXPECT_EQ(config::parse_duration("01:02:03")->seconds, 3723);
  for (const char* bad : {"", "min", "10 mins ago", "1:60", "1:2:3:4", ":5"})
    EXPECT_FALSE(config::parse_duration(bad)) << bad;
}

TEST(ValuesTest, Intervals) {
  EXPECT_EQ(*config::parse_interval("200 steps"), config::every_steps(200));
  EXPECT_EQ(*config::parse_interval("1 step"), config::every_steps(1));
  EXPECT_EQ(config::parse_interval("500M tokens")->count, 500'000'000);
  EXPECT_EQ(config::parse_interval("10min")->seconds, 600);
  EXPECT_EQ(config::parse_interval("never")->kind, config::Interval::Kind::kNever);
  EXPECT_EQ(*config::parse_interval("auto"), config::kAutoInterval);
  for (const char* bad : {"", "0 steps", "steps", "10", "0s", "sometimes"})
    EXPECT_FALSE(config::parse_interval(bad)) << bad;
}

TEST(ValuesTest, TextsRoundTrip) {
  for (const int64_t count :
       {int64_t{1}, int64_t{1000}, int64_t{1'500'000}, int64_t{4} << 30, int64_t{12'345'678'901}}) {
    EXPECT_EQ(config::parse_bytes(config::to_string(config::Bytes{count}))->count, count)
        << config::to_string(config::Bytes{count});
  }
  for (const double seconds : {0.5, 1.0, 59.0, 60.0, 5400.0, 7200.0, 0.1}) {
    EXPECT_DOUBLE_EQ(config::parse_duration(config::to_string(config::Duration{seconds}))->seconds, seconds);
  }
  for (const char* text : {"never", "auto", "200 steps", "500000000 tokens", "10min", "2h"}) {
    EXPECT_EQ(config::to_string(*config::parse_interval(text)), text);
  }
}

}  // namespace
}  // namespace strata::training
