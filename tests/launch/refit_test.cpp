// Layouts for fewer ranks.
#include "launch/refit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "config/layout.h"
#include "config/resolve.h"
#include "fixtures/tiny_run.h"

namespace strata::launch {
namespace {

using Sets = std::vector<std::string>;

class Refit : public testing::Test {
 protected:
  config::RunConfig config(const Sets& sets) const {
    return config::parse_run_config(tiny_.toml(), "run.toml", sets);
  }
  // The changes, sorted; they must make a valid configuration.
  Sets changes(const Sets& sets, int64_t ranks) const {
    auto found = refit(config(sets), ranks);
    if (!found) return {"none"};
    Sets all = sets;
    all.insert(all.end(), found->begin(), found->end());
    const config::IssueHook hooks[] = {config::check_model, config::check_idle_keys};
    EXPECT_EQ(config::validate(config(all), hooks).size(), 0u);
    EXPECT_EQ(config::mesh_of(config::with_degrees(config(all), ranks)).ranks(), ranks);
    std::sort(found->begin(), found->end());
    return *found;
  }

 private:
  training::TinyRun tiny_;
};

TEST_F(Refit, NothingChangesIfTheRemainingRanksAreOpen) {
  EXPECT_EQ(changes({}, 3), Sets{});
  EXPECT_EQ(changes({"parallel.tensor=2"}, 6), Sets{});
  EXPECT_EQ(changes({"parallel.replicate=-1", "parallel.shard=2"}, 6), Sets{});
}

TEST_F(Refit, ReplicasAndShardsChangeFirst) {
  EXPECT_EQ(changes({"parallel.replicate=4", "parallel.shard=1"}, 3), Sets{"parallel.replicate=3"});
  EXPECT_EQ(changes({"parallel.shard=4", "parallel.tensor=2"}, 6), Sets{"parallel.shard=3"});
  // Two times two ranks; either of the two may become one.
  EXPECT_EQ(changes({"parallel.replicate=1", "parallel.shard=2", "parallel.tensor=2"}, 2),
            Sets{"parallel.shard=1"});
}

TEST_F(Refit, DegreesThatSplitLayersChangeIfNothingElseFits) {
  // Three ranks cannot split four heads, so tensor = 2 becomes 1.
  EXPECT_EQ(changes({"parallel.tensor=2"}, 3), Sets{"parallel.tensor=1"});
  EXPECT_EQ(changes({"parallel.pipeline=2", "parallel.shard=1"}, 1), Sets{"parallel.pipeline=1"});
}

TEST_F(Refit, KeysThatLoseTheirUseReturnToTheirDefaults) {
  EXPECT_EQ(changes({"parallel.pipeline=2", "parallel.shard=1", "parallel.schedule=\"gpipe\""}, 1),
            (Sets{"parallel.pipeline=1", "parallel.schedule=\"1f1b\""}));
  EXPECT_EQ(changes({"parallel.shard=2", "parallel.zero=2"}, 1),
            (Sets{"parallel.shard=1", "parallel.zero=\"auto\""}));
}

}  // namespace
}  // namespace strata::launch
