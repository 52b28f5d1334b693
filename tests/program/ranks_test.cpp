// The groups of a rank are complete.
#include "program/ranks.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace strata::program {
namespace {

using graph::Axis;

TEST(Ranks, OneProcessIsAWorldOfOne) {
  const Ranks ranks(CompileOptions{});
  EXPECT_TRUE(ranks.alone());
  EXPECT_TRUE(ranks.is_first());
  EXPECT_EQ(ranks.world().engine(), "single");
  EXPECT_EQ(ranks.coordinates(), graph::Coordinates{});
  EXPECT_EQ(ranks.batch_part(), 0);
  EXPECT_EQ(ranks.batch_parts(), 1);
  EXPECT_TRUE(ranks.is_first_holder({}));
  EXPECT_EQ(ranks.staging_bytes(), 0);
  std::vector<const comm::Communicator*> groups{
      &ranks.all(), &ranks.batch(), &ranks.over({Axis::kReplicate, Axis::kShard}),
      &ranks.within({Axis::kShard}, 1), &ranks.across({Axis::kShard}, 1)};
  for (const Axis axis : graph::kAllAxes) groups.push_back(&ranks.along(axis));
  for (const comm::Communicator* group : groups) {
    EXPECT_EQ(group->size(), 1);
    EXPECT_EQ(group->rank(), 0);
  }
}

// Including the axes of a mesh that have only one rank.
TEST(Ranks, HaveAGroupOnEachAxis) {
  comm::run_local_ranks(2, [](comm::World& world) {
    CompileOptions options;
    options.mesh = graph::Mesh::of(1, 2, 1, 1);
    const Ranks ranks(world, options);
    EXPECT_FALSE(ranks.alone());
    for (const Axis axis : graph::kAllAxes) EXPECT_EQ(ranks.along(axis).size(), ranks.mesh().size(axis));
  });
}

TEST(Ranks, RefuseALayoutWithMoreRanks) {
  CompileOptions options;
  options.mesh = graph::Mesh::of(2, 1, 1, 1);
  EXPECT_THROW(const Ranks ranks(options), ConfigError);
}

}  // namespace
}  // namespace strata::program
