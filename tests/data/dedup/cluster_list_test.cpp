#include "data/dedup/cluster_list.h"

#include <gtest/gtest.h>

namespace strata::data::dedup {
namespace {

Decision dropped_for(uint32_t document, DocumentNumber original) {
  Decision decision;
  decision.document = document;
  decision.drop = decision.has_original = true;
  decision.original = original;
  return decision;
}

TEST(ClusterList, LargestFirst) {
  ClusterList list;
  Decision cut;
  cut.document = 9;
  list.add(0, std::vector<Decision>{dropped_for(4, {1, 2}), dropped_for(5, {0, 3}), cut});
  list.add(1, std::vector<Decision>{dropped_for(0, {0, 3}), dropped_for(7, {0, 1})});
  const std::vector<Cluster> expected = {{{0, 3}, {{0, 5}, {1, 0}}}, {{0, 1}, {{1, 7}}}, {{1, 2}, {{0, 4}}}};
  EXPECT_EQ(list.dropped(), 4);
  EXPECT_EQ(list.largest(10), expected);
  EXPECT_EQ(list.largest(1), (std::vector<Cluster>{expected[0]}));
  EXPECT_TRUE(ClusterList().largest(3).empty());
}

}  // namespace
}  // namespace strata::data::dedup
