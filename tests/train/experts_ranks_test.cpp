// Models with experts on several ranks: they have the losses and the reported expert statistics of one rank.
#include <gtest/gtest.h>

#include "base/json.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

struct Layout {
  const char* name;
  int ranks;
  Sets sets;
  std::string model = "plain";
};
void PrintTo(const Layout& layout, std::ostream* out) {
  *out << layout.name;
}

const Sets kModel{"model.family='qwen3-moe'",
                  "model.override.num_experts=8",
                  "model.override.num_experts_per_tok=2",
                  "model.override.moe_intermediate_size=16",
                  "moe.aux_coef=0.5",
                  "moe.z_coef=0.1"};

// gpt-oss: experts with biases.
const Sets kWithBiases{"model.family='gpt-oss'",
                       "model.override.num_local_experts=8",
                       "model.override.num_experts_per_tok=2",
                       "model.override.sliding_window=16",
                       "optimizer.lr=0.02",
                       "moe.aux_coef=0.5",
                       "moe.z_coef=0.1"};

// Tokens beyond an expert's capacity are dropped.
const Sets kDropping = kModel + Sets{"moe.capacity_factor=0.7"};

// GLM-4.5 with a dense layer, one with experts and one with experts that predicts further tokens.
const Sets kPredicting{"model.family='glm4-moe'",
                       "model.override.n_routed_experts=8",
                       "model.override.num_experts_per_tok=2",
                       "model.override.moe_intermediate_size=16",
                       "model.override.first_k_dense_replace=1",
                       "model.override.num_nextn_predict_layers=1",
                       "moe.aux_coef=0.5",
                       "moe.z_coef=0.1"};

const Sets& model_named(const std::string& name) {
  return name == "biases"       ? kWithBiases
         : name == "dropping"   ? kDropping
         : name == "predicting" ? kPredicting
                                : kModel;
}

class ExpertsOnRanks : public testing::TestWithParam<Layout> {};

TEST_P(ExpertsOnRanks, TrainAsOne) {
  const Layout& layout = GetParam();
  const Sets& model = model_named(layout.model);
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
  EXPECT_EQ(values_of(tiny.folder("one"), "expert_dropped").empty(), layout.model != "dropping");
  EXPECT_EQ(values_of(tiny.folder("ranks"), "expert_dropped").empty(), layout.model != "dropping");
  if (layout.model == "dropping") {
    const double dropped = values_of(tiny.folder("one"), "expert_dropped")[0];
    EXPECT_GT(dropped, 0.02);
    EXPECT_NEAR(values_of(tiny.folder("ranks"), "expert_dropped")[0], dropped, 1e-9);
  }
  // They cover all layers, on whichever stage.
  for (const char* key : {"expert_max_vio", "expert_entropy", "dead_experts"}) {
    EXPECT_NEAR(values_of(tiny.folder("ranks"), key)[0], values_of(tiny.folder("one"), key)[0], 1e-9) << key;
  }
  const auto first_line = [&](const char* run) {
    const std::string text = read_file(tiny.folder(run) / "experts.jsonl");
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(first_line("ranks"), first_line("one")) << "the first step's tokens of each expert";
  const auto layers = parse_json<nlohmann::json>(first_line("one")).at("layers");
  EXPECT_EQ(layers, layout.model == "predicting" ? nlohmann::json({1, 2}) : nlohmann::json({0, 1}));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ExpertsOnRanks,
    testing::Values(
        Layout{"tensor", 2, {"parallel.tensor=2"}},
        Layout{"tensor_whole_rows", 2, {"parallel.tensor=2", "parallel.sequence=false"}},
        Layout{"context", 2, {"parallel.context=2"}}, Layout{"zero3", 2, {"parallel.zero=3"}},
        Layout{"pipeline", 2, {"parallel.pipeline=2", "training.micro_batch_size=2"}},
        Layout{"expert", 2, {"parallel.expert=2"}},
        Layout{"expert_in_passes", 4, {"parallel.expert=4", "parallel.expert_capacity=0.4"}},
        Layout{"expert_zero3_replicas", 4, {"parallel.expert=2", "parallel.zero=3"}},
        Layout{
            "expert_over_tensor_and_shard", 4, {"parallel.expert=4", "parallel.tensor=2", "parallel.zero=1"}},
        Layout{"expert_tensor", 4, {"parallel.expert=2", "parallel.tensor=2", "parallel.expert_tensor=2"}},
        Layout{"expert_whole_rows", 2, {"parallel.expert=2", "parallel.tensor=2", "parallel.sequence=false"}},
        Layout{"expert_pipeline",
               4,
               {"parallel.expert=2", "parallel.pipeline=2", "training.micro_batch_size=2"}},
        Layout{"expert_pipeline_split",
               4,
               {"parallel.expert=2", "parallel.pipeline=2", "parallel.schedule=zb_h1",
                "parallel.expert_capacity=0.5", "training.micro_batch_size=2"}},
        Layout{"expert_context", 4, {"parallel.expert=4", "parallel.context=2"}},
        Layout{
            "pipeline_tensor_data",
            8,
            {"parallel.tensor=2", "parallel.pipeline=2", "parallel.shard=2", "training.micro_batch_size=2"}}),
    [](const auto& instance) { return std::string(instance.param.name); });

// The saved weights of a step, from whichever ranks.
std::string saved(const TinyRun& tiny, const char* run, int step) {
  return read_file(tiny.folder(run) / "checkpoints" / fmt::format("step-{:08}", step) / "model.safetensors");
}

INSTANTIATE_TEST_SUITE_P(
    Dropping, ExpertsOnRanks,
    testing::Values(Layout{"expert_pipeline",
                           4,
                           {"parallel.expert=2", "parallel.pipeline=2", "training.micro_batch_size=2",
                            "memory.recompute=full"},
                           "dropping"},
                    Layout{"expert_context", 4, {"parallel.expert=4", "parallel.context=2"}, "dropping"}),
    [](const auto& instance) { return std::string(instance.param.name); });
INSTANTIATE_TEST_SUITE_P(Predicting, ExpertsOnRanks,
                         testing::Values(Layout{
                             "expert_pipeline",
                             4,
                             {"parallel.expert=2", "parallel.pipeline=2", "training.micro_batch_size=2"},
                             "predicting"}),
                         [](const auto& instance) { return std::string(instance.param.name); });
INSTANTIATE_TEST_SUITE_P(
    WithBiases, ExpertsOnRanks,
    testing::Values(Layout{"expert_in_passes_zero3",
                           4,
                           {"parallel.expert=2", "parallel.zero=3", "parallel.expert_capacity=0.6"},
                           "biases"},
                    Layout{"expert_tensor",
                           4,
                           {"parallel.expert=2", "parallel.tensor=2", "parallel.expert_tensor=2"},
                           "biases"}),
    [](const auto& instance) { return std::string(instance.param.name); });

// Expert capacity determines the number of passes and must not change a bit of the result, regardless of
// the work that runs alongside the passes and is recomputed or gathered for them.
class CapacityOfSharedExperts : public testing::TestWithParam<Layout> {};
TEST_P(CapacityOfSharedExperts, ChangesNoBit) {
  const TinyRun tiny;
  const Layout& layout = GetParam();
  const auto train = [&](const char* name, const char* capacity) {
    tiny.train_ranks(tiny.config(model_named(layout.model) + layout.sets +
                                     Sets{std::string("parallel.expert_capacity=") + capacity},
                                 name),
                     layout.ranks);
    return values_of(tiny.folder(name), "expert_rounds");
  };
  const auto wide = train("wide", "100"), narrow = train("narrow", "0.2");
  for (const double passes : wide) EXPECT_EQ(passes, 0);
  for (const double passes : narrow) EXPECT_GT(passes, 4);  // at least two in each of two layers
  for (const char* key : {"loss", "grad_norm"})
    EXPECT_EQ(values_of(tiny.folder("narrow"), key), values_of(tiny.folder("wide"), key));
  EXPECT_TRUE(saved(tiny, "narrow", 6) == saved(tiny, "wide", 6));
}
INSTANTIATE_TEST_SUITE_P(
    Layouts, CapacityOfSharedExperts,
    testing::Values(
        Layout{"plain", 4, {"parallel.expert=4", "parallel.zero=1"}},
        Layout{"biases", 4, {"parallel.expert=4", "parallel.zero=1"}, "biases"},
        Layout{"selective", 2, {"parallel.expert=2", "memory.recompute=selective"}},
        Layout{"full", 2, {"parallel.expert=2", "memory.recompute=full"}, "biases"},
        Layout{"zero3_selective", 4, {"parallel.expert=2", "parallel.zero=3", "memory.recompute=selective"}},
        Layout{"zero3_full_bf16",
               4,
               {"parallel.expert=2", "parallel.zero=3", "memory.recompute=full", "precision.compute=bf16"}},
        Layout{"split_selective",
               4,
               {"parallel.expert=2", "parallel.pipeline=2", "parallel.schedule=zb_h1",
                "training.micro_batch_size=2", "memory.recompute=selective"}},
        Layout{"split_full",
               4,
               {"parallel.expert=2", "parallel.pipeline=2", "parallel.schedule=zb_h1",
                "training.micro_batch_size=2", "memory.recompute=full"}},
        Layout{"cut_experts",
               4,
               {"parallel.expert=2", "parallel.tensor=2", "parallel.expert_tensor=2",
                "memory.recompute=selective"},
               "biases"},
        Layout{
            "summed_over_tensor",
            4,
            {"parallel.expert=4", "parallel.tensor=2", "parallel.sequence=false", "memory.recompute=full"}},
        Layout{"context", 4, {"parallel.expert=4", "parallel.context=2", "memory.recompute=selective"}},
        Layout{"dropping", 2, {"parallel.expert=2", "memory.recompute=full"}, "dropping"},
        Layout{"predicting", 2, {"parallel.expert=2", "memory.recompute=selective"}, "predicting"}),
    [](const auto& instance) { return std::string(instance.param.name); });

// With one expert per token and weights that add up to 1, every weight is 1 except for rounding. Rounding
// depends on the micro-batch and on the layout, so it must not decide which tokens are dropped.
TEST(DroppedTokens, HaveTheLowestRouterScores) {
  const TinyRun tiny;
  const Sets sets{"model.family='mixtral'",
                  "model.hidden_size=128",
                  "model.head_dim=8",
                  "model.override.num_local_experts=12",
                  "model.override.num_experts_per_tok=1",
                  "model.allow_leaking_routing=true",
                  "moe.capacity_factor=1.0",
                  "moe.min_capacity=2",
                  "moe.drop='probability'",
                  "training.global_batch_size=6",
                  "training.steps=1"};
  const auto loss = [&](const char* name, const Sets& more, int ranks) {
    tiny.train_ranks(tiny.config(sets + more, name), ranks);
    EXPECT_GT(values_of(tiny.folder(name), "expert_dropped").at(0), 0.05);
    return values_of(tiny.folder(name), "loss").at(0);
  };
  const double one = loss("one", {"training.micro_batch_size=1"}, 1);
  EXPECT_NEAR(loss("three", {"training.micro_batch_size=3"}, 1), one, 1e-6 * one);
  EXPECT_NEAR(loss("tensor", {"training.micro_batch_size=1", "parallel.tensor=2"}, 2), one, 1e-6 * one);
}

// Each rank updates its experts; each expert is a separate matrix or tensor.
struct Update {
  const char* name;
  Sets sets;
  std::vector<Sets> layouts;
};
class UpdatesOfSharedExperts : public testing::TestWithParam<Update> {};
const Sets kOnShards{"parallel.expert=2", "parallel.zero=1"},
    kOnTensor{"parallel.expert=2", "parallel.tensor=2"};

TEST_P(UpdatesOfSharedExperts, MatchOneRank) {
  const TinyRun tiny;
  const auto& [name, optimizer, layouts] = GetParam();
  const Sets sets = kModel + Sets{fmt::format("optimizer.name={}", name)} + optimizer;
  tiny.train(sets, "one");
  const auto one = values_of(tiny.folder("one"), "loss");
  // From ranks to one rank and back: states of each expert are found by name.
  tiny.train_ranks(tiny.config(sets + layouts[0], "between"), 2, 2);
  tiny.train_ranks(tiny.config(sets + Sets{"parallel.zero=0"}, "between"), 1, 2);
  for (size_t i = 0; i < layouts.size(); ++i) {
    const std::string run = i == 0 ? "between" : fmt::format("ranks{}", i);
    tiny.train_ranks(tiny.config(sets + layouts[i], run), 2);
    const auto ranks = values_of(tiny.folder(run), "loss");
    ASSERT_EQ(ranks.size(), one.size());
    for (size_t step = 0; step < one.size(); ++step)
      EXPECT_NEAR(ranks[step], one[step], 2e-4 * one[step]) << run << ", step " << step + 1;
  }
}
INSTANTIATE_TEST_SUITE_P(
    Optimizers, UpdatesOfSharedExperts,
    testing::Values(Update{"muon", {}, {kOnShards, kOnTensor}},
                    Update{"adafactor", {}, {kOnShards, kOnTensor}},
                    Update{"adamw8bit", {"optimizer.adamw8bit.min_elements=256"}, {kOnShards, kOnTensor}}),
    [](const auto& instance) { return std::string(instance.param.name); });

// A checkpoint resumes in any layout of experts with the losses of one rank.
class CheckpointsOfSharedExperts : public testing::TestWithParam<const char*> {};
TEST_P(CheckpointsOfSharedExperts, ResumeInOtherLayouts) {
  const TinyRun tiny;
  const Sets& model = model_named(GetParam());
  tiny.train(model, "one");
  tiny.train_ranks(tiny.config(model + Sets{"parallel.expert=4", "parallel.zero=2"}, "run"), 4, 2);
  const auto resume = [&](int ranks, const Sets& sets, int64_t stop_at) {
    tiny.train_ranks(tiny.config(model + sets, "run"), ranks, stop_at);
  };
  resume(4, {"parallel.expert=2", "parallel.tensor=2", "parallel.expert_tensor=2"}, 2);
  resume(2, {"parallel.expert=2", "parallel.tensor=2", "parallel.zero=0"}, 2);
  resume(2, {"parallel.zero=3", "parallel.expert=1"}, -1);
  const auto one = values_of(tiny.folder("one"), "loss"), run = values_of(tiny.folder("run"), "loss");
  ASSERT_EQ(run.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(run[i], one[i], 1e-4 * one[i]) << "step " << i + 1;
}
INSTANTIATE_TEST_SUITE_P(Models, CheckpointsOfSharedExperts, testing::Values("plain", "biases"),
                         [](const auto& instance) { return std::string(instance.param); });

// Specialisation of experts on held-out sets: zero if the sets are equal, otherwise positive; on several
// ranks it is measured on the first.
TEST(ExpertSpecialisation, IsRecordedWithEveryEvaluation) {
  const TinyRun tiny;
  std::vector<uint16_t> low, high;
  for (uint16_t i = 0; i < 200; ++i) {
    low.push_back(static_cast<uint16_t>(1 + i % 7));
    high.push_back(static_cast<uint16_t>(200 + i % 7));
  }
  put_tokens(tiny.path("low.bin"), low);
  put_tokens(tiny.path("high.bin"), high);
  const auto sets = [&](const char* other) {
    const auto set = [&](const char* name, const char* file) {
      return fmt::format("{{name='{}', path=['{}']}}", name, tiny.path(file).string());
    };
    return kModel + Sets{"eval.interval='3 steps'", "training.steps=3",
                         fmt::format("eval.set=[{}, {}]", set("a", "low.bin"), set("b", other))};
  };
  const char* const key = "eval/expert_specialisation";
  tiny.train(sets("low.bin"), "same");
  EXPECT_EQ(values_of(tiny.folder("same"), key), std::vector<double>{0});
  tiny.train(sets("high.bin"), "one");
  const auto one = values_of(tiny.folder("one"), key);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_GT(one[0], 0.1);
  EXPECT_LE(one[0], 1);
  tiny.train_ranks(tiny.config(sets("high.bin") + Sets{"parallel.expert=2"}, "ranks"), 2);
  const auto ranks = values_of(tiny.folder("ranks"), key);
  ASSERT_EQ(ranks.size(), 1U);
  EXPECT_NEAR(ranks[0], one[0], 0.05);
}

}  // namespace
}  // namespace strata::training
