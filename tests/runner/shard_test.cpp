#include "runner/shard.h"

#include <gtest/gtest.h>

namespace strata::testing_runner {
namespace {

TEST(Shard, IsParsedOrRejected) {
  const auto shard = parse_shard("3/8");
  ASSERT_TRUE(shard.has_value());
  EXPECT_EQ(shard->index, 3);
  EXPECT_EQ(shard->count, 8);
  EXPECT_TRUE(parse_shard("1/1").has_value());
  for (const char* text :
       {"", "3", "/", "3/", "/8", "0/8", "9/8", "3/0", "-1/8", "3/8x", " 3/8", "a/b", "3/8/9"})
    EXPECT_FALSE(parse_shard(text).has_value()) << text;
}

TEST(Shard, EveryTestIsInOneShardInItsOrder) {
  for (size_t tests = 0; tests < 20; ++tests) {
    std::vector<std::string> names;
    for (size_t i = 0; i < tests; ++i) names.push_back("Suite." + std::to_string(i));
    for (int count = 1; count <= 25; ++count) {
      std::vector<std::string> together;
      size_t least = tests, most = 0;
      for (int index = 1; index <= count; ++index) {
        const auto part = tests_of({index, count}, names);
        least = std::min(least, part.size());
        most = std::max(most, part.size());
        together.insert(together.end(), part.begin(), part.end());
      }
      EXPECT_EQ(together, names) << count;
      EXPECT_LE(most - least, 1u) << count;
    }
  }
}

TEST(Shard, FilterMatchesOnlyItsNames) {
  EXPECT_EQ(filter_of({"A.x", "B/C.y/1"}), "A.x:B/C.y/1");
  EXPECT_EQ(filter_of({}), "-*");  // an empty filter would run every test
}

}  // namespace
}  // namespace strata::testing_runner
