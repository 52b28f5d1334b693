// Contracts of [parallel] for models with experts.
#include <cmath>

#include "base/error.h"
#include "config/layout.h"
#include "contracts/contract.h"
#include "contracts/lab.h"

namespace strata::contracts {
namespace {

const std::string kModel = small_experts(8);
const Sets kSmall{"training.sequence_length=16", "training.global_batch_size=8",
                  "training.micro_batch_size=2", "training.steps=2"};

Seen run(Lab& lab, int ranks, const Sets& sets) {
  const Sets all = kSmall + kStill + sets;
  return ranks == 1 ? lab.run_toml(lab.toml(kModel), all) : lab.run_toml_on(ranks, lab.toml(kModel), all);
}

std::string refusal(Lab& lab, int ranks, const Sets& sets) {
  const Sets all = kSmall + kStill + sets;
  return ranks == 1 ? lab.refusal_of_toml(lab.toml(kModel), all)
                    : lab.refusal_of_toml_on(ranks, lab.toml(kModel), all);
}

void expect_same_training(const Seen& one, const Seen& many) {
  for (const char* name : {"loss", "grad_norm", "balance_loss"}) {
    const auto expected = one.values(name), found = many.values(name);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-4 * expected[i]) << name << ", step " << i + 1;
  }
  EXPECT_EQ(many.values("expert_max_vio"), one.values("expert_max_vio"));
}

// Bytes of parameters on rank 0.
int64_t weights_held(Lab& lab, const Sets& sets) {
  lab.put("explained.toml", lab.toml(kModel));
  std::vector<std::string> words{"explain", lab.path("explained.toml").string(), "--json", "--ranks", "2"};
  for (const std::string& set : kSmall + sets) words.insert(words.end(), {"--set", set});
  return strata(lab.path("explained"), words).parsed().at("ranks").at("holds").at("weights").get<int64_t>();
}

void expert(const std::string& key) {
  Lab lab;
  const Seen one = run(lab, 1, {});
  expect_same_training(one, run(lab, 2, {key + "=2"}));
  expect_same_training(one, run(lab, 4, {key + "=-1", "parallel.tensor=2"}));
  // The remaining ranks are replicas, whether or not parallel.shard is given.
  for (const Sets& shard : {Sets{}, Sets{"parallel.shard=4"}}) {
    const Seen replicas = run(lab, 4, Sets{key + "=2"} + shard);
    expect_same_training(one, replicas);
    EXPECT_TRUE(has(replicas.run_toml(), "replicate = 2") && has(replicas.run_toml(), "shard = 2"));
  }
  // Half of the experts of two layers, in fp32.
  EXPECT_EQ(weights_held(lab, {}) - weights_held(lab, {key + "=2"}), 2 * 8 * 3 * 16 * 32 * 4 / 2);
  const std::string uneven = refusal(lab, 3, {key + "=3"});
  EXPECT_TRUE(has(uneven, key) && has(uneven, "8 experts")) << uneven;
  const std::string folded = refusal(lab, 6, {key + "=4", "parallel.shard=3", "parallel.tensor=2"});
  EXPECT_TRUE(has(folded, key) && has(folded, "replicate larger")) << folded;
  EXPECT_TRUE(has(refusal(lab, 1, {key + "=0"}), key));
  EXPECT_TRUE(has(lab.refusal({key + "=2"}), "no experts"));
  for (const std::string optimizer : {"adafactor", "muon"}) {
    const std::string cut =
        refusal(lab, 4, {key + "=2", "parallel.tensor=2", "parallel.zero=1", "optimizer.name=" + optimizer});
    EXPECT_TRUE(has(cut, optimizer) && has(cut, "parallel.expert")) << cut;
  }
}

void expert_tensor(const std::string& key) {
  Lab lab;
  const Seen one = run(lab, 1, {});
  expect_same_training(one, run(lab, 2, {"parallel.tensor=2", key + "=2"}));
  expect_same_training(one, run(lab, 4, {"parallel.tensor=2", key + "=2", "parallel.expert=2"}));
  const Sets tensor{"parallel.tensor=2"};
  EXPECT_EQ(weights_held(lab, tensor) - weights_held(lab, tensor + Sets{key + "=2"}),
            2 * 8 * 3 * 16 * 32 * 4 / 2);
  EXPECT_TRUE(has(refusal(lab, 4, {"parallel.tensor=4", key + "=2"}), "expected 1 or that"));
  EXPECT_TRUE(has(refusal(lab, 2, {"parallel.tensor=2", key + "=3"}), key));
  EXPECT_TRUE(has(lab.refusal({key + "=2"}), "no experts"));
}

// Rows are sent directly to the ranks if all are on one host; if they are on two, by hosts, unless "flat".
void dispatch(const std::string& key) {
  Lab lab;
  const auto nodes_of = [&](const char* value, int64_t host_ranks) {
    const auto config = lab.config({key + "=" + value, "parallel.expert=4"});
    return config::expert_layout(config, host_ranks).node_ranks;
  };
  EXPECT_EQ(nodes_of("auto", 2), 2);
  EXPECT_EQ(nodes_of("two_level", 2), 2);
  EXPECT_EQ(nodes_of("flat", 2), 0);
  EXPECT_EQ(nodes_of("auto", 4), 0);
  const Seen flat = run(lab, 2, {"parallel.expert=2", key + "=flat"});
  EXPECT_TRUE(same(flat.weights(2), run(lab, 2, {"parallel.expert=2", key + "=two_level"}).weights(2)));
  EXPECT_TRUE(has(refusal(lab, 1, {key + "=both"}), key));
  EXPECT_TRUE(has(lab.refusal({key + "=flat"}), "no experts"));
}

// Rows that exceed the capacity take further passes, which are reported; results are bitwise equal.
void expert_capacity(const std::string& key) {
  Lab lab;
  const Sets two{"parallel.expert=2"};
  const Seen usual = run(lab, 2, two), narrow = run(lab, 2, two + Sets{key + "=0.3"});
  EXPECT_TRUE(same(usual.weights(2), narrow.weights(2)));
  for (const double rounds : usual.values("expert_rounds")) EXPECT_EQ(rounds, 0);
  // Two layers and two micro-batches, each with at least three more.
  for (const double rounds : narrow.values("expert_rounds")) EXPECT_GE(rounds, 2 * 2 * 3);
  EXPECT_TRUE(has(refusal(lab, 2, two + Sets{key + "=0"}), key));
  EXPECT_TRUE(has(lab.refusal({key + "=2"}), "no experts"));
}

// Bytes that rank 0 sends to experts on another one in a step.
int64_t sent_to_experts(Lab& lab, const Sets& sets) {
  lab.put("sent.toml", lab.toml(kModel));
  std::vector<std::string> words{"explain", lab.path("sent.toml").string(), "--json", "--ranks", "2"};
  for (const std::string& set : kSmall + sets) words.insert(words.end(), {"--set", set});
  const json explained = strata(lab.path("sent"), words).parsed();
  for (const json& one : explained.at("ranks").at("sends")) {
    if (one.at("axis").get<std::string>().starts_with("experts on ")) return one.at("bytes");
  }
  return 0;
}

// Rows go to experts as codes with their scales, which changes no bit of a run: experts round them otherwise.
void dispatch_type(const std::string& key) {
  Lab lab;
  const auto fp8 = [](const char* recipe) {
    return Sets{"parallel.expert=2", "precision.compute=fp8", "precision.keep=[\"head\"]",
                std::string("precision.recipe=") + recipe};
  };
  const Sets by_row = fp8("row");
  const int64_t in_codes = sent_to_experts(lab, by_row + Sets{key + "=fp8"}),
                in_bf16 = sent_to_experts(lab, by_row + Sets{key + "=bf16"});
  EXPECT_EQ(sent_to_experts(lab, by_row), in_codes);
  EXPECT_LT(in_codes, in_bf16);
  const Seen codes = run(lab, 2, by_row), rows = run(lab, 2, by_row + Sets{key + "=bf16"});
  EXPECT_TRUE(same(codes.weights(2), rows.weights(2)));
  EXPECT_NEAR(codes.last("loss"), run(lab, 1, {"precision.compute=bf16"}).last("loss"), 0.02);
  for (const char* recipe : {"tensor", "mxfp8"})
    EXPECT_LT(sent_to_experts(lab, fp8(recipe)), in_bf16) << recipe;
  const Sets keeps_rows = fp8("row_hp_wgrad");
  EXPECT_EQ(sent_to_experts(lab, keeps_rows), in_bf16);
  EXPECT_TRUE(has(refusal(lab, 1, keeps_rows + Sets{key + "=fp8"}), "weight gradients"));
  EXPECT_TRUE(has(refusal(lab, 1, {"precision.compute=bf16", key + "=fp8"}), key));
  EXPECT_TRUE(has(refusal(lab, 1, {"precision.compute=fp32", key + "=bf16"}), "expected \"auto\""));
}

}  // namespace

Contracts shared_experts_keys() {
  return {{"parallel.expert", expert},
          {"parallel.expert_tensor", expert_tensor},
          {"parallel.dispatch", dispatch},
          {"parallel.expert_capacity", expert_capacity},
          {"precision.dispatch", dispatch_type}};
}

}  // namespace strata::contracts
