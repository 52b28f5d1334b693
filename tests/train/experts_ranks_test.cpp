// Runs of a model with experts on several ranks: the losses of one rank, and what is told of its experts.
#include <gtest/gtest.h>

#include "fixtures/tiny_run.h"

namespace strata::train {
namespace {

struct Layout {
  const char* name;
  int ranks;
  Sets sets;
};
void PrintTo(const Layout& layout, std::ostream* out) {
  *out << layout.name;
}

class ExpertsOnRanks : public testing::TestWithParam<Layout> {};

TEST_P(ExpertsOnRanks, TrainAsOne) {
  const Sets model{"model.family='qwen3-moe'",
                   "model.override.num_experts=6",
                   "model.override.num_experts_per_tok=2",
                   "model.override.moe_intermediate_size=16",
                   "moe.aux_coef=0.5",
                   "moe.z_coef=0.1"};
  const Layout& layout = GetParam();
  const TinyRun tiny;
  tiny.train(model, "one");
  tiny.train_ranks(tiny.config(model + layout.sets, "ranks"), layout.ranks);
  for (const char* key : {"loss", "grad_norm", "balance_loss", "router_z_loss", "router_z"}) {
    const auto one = values_of(tiny.folder("one"), key), ranks = values_of(tiny.folder("ranks"), key);
    ASSERT_EQ(one.size(), ranks.size());
    ASSERT_FALSE(one.empty());
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_GT(one[i], 0);
      EXPECT_NEAR(ranks[i], one[i], 1e-4 * one[i]) << key << " of step " << i + 1;
    }
  }
  // Of all layers, whichever stage has them.
  for (const char* key : {"expert_max_vio", "expert_entropy", "dead_experts"}) {
    EXPECT_NEAR(values_of(tiny.folder("ranks"), key)[0], values_of(tiny.folder("one"), key)[0], 1e-9) << key;
  }
  const auto first_line = [&](const char* run) {
    const std::string text = read_file(tiny.folder(run) / "experts.jsonl");
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(first_line("ranks"), first_line("one")) << "the first step's tokens of each expert";
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ExpertsOnRanks,
    testing::Values(Layout{"tensor", 2, {"parallel.tensor=2"}},
                    Layout{"tensor_whole_rows", 2, {"parallel.tensor=2", "parallel.sequence=false"}},
                    Layout{"context", 2, {"parallel.context=2"}}, Layout{"zero3", 2, {"parallel.zero=3"}},
                    Layout{"pipeline", 2, {"parallel.pipeline=2", "training.micro_batch_size=2"}},
                    Layout{"pipeline_tensor_data",
                           8,
                           {"parallel.tensor=2", "parallel.pipeline=2", "parallel.shard=2",
                            "training.micro_batch_size=2"}}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace strata::train
