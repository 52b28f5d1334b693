// Contracts of [moe].
#include <algorithm>
#include <cmath>

#include "contracts/contract.h"
#include "contracts/lab.h"

namespace strata::contracts {
namespace {

const std::string kModel = small_experts(6);

Seen run_moe(Lab& lab, const Sets& sets) {
  return lab.run_toml(lab.toml(kModel), Sets{"training.sequence_length=16", "training.global_batch_size=4",
                                             "training.micro_batch_size=2", "training.steps=2"} +
                                            kStill + sets);
}

double first(const Seen& run, const char* name) {
  return run.values(name).at(0);
}

// Each loss is proportional to its coefficient; with coefficient 0 there is none.
void coefficients(const std::string&) {
  Lab lab;
  const Seen one = run_moe(lab, {"moe.aux_coef=1.0", "moe.z_coef=1.0"});
  const Seen half = run_moe(lab, {"moe.aux_coef=0.5", "moe.z_coef=0.25"});
  const Seen none = run_moe(lab, {"moe.aux_coef=0", "moe.z_coef=0"});
  const Seen usual = run_moe(lab, {});
  // Two layers; each adds 1 if the load is balanced.
  EXPECT_GT(first(one, "balance_loss"), 2 * 0.99);
  EXPECT_NEAR(first(half, "balance_loss"), 0.5 * first(one, "balance_loss"), 1e-6);
  EXPECT_NEAR(first(half, "router_z_loss"), 0.25 * first(one, "router_z_loss"), 1e-6);
  // Initial logits are small: each z is near (log 6)².
  EXPECT_NEAR(first(one, "router_z_loss"), 2 * std::pow(std::log(6.0), 2), 0.3);
  // The larger mean square of the two layers whose mean squares add up to the loss.
  const double square = std::pow(first(one, "router_z"), 2);
  EXPECT_LT(square, first(one, "router_z_loss"));
  EXPECT_GE(square, first(one, "router_z_loss") / 2 - 1e-9);
  EXPECT_EQ(first(none, "router_z"), first(one, "router_z"));
  EXPECT_EQ(first(none, "balance_loss"), 0.0);
  EXPECT_EQ(first(none, "router_z_loss"), 0.0);
  // The coefficient of the family.
  EXPECT_NEAR(first(usual, "balance_loss"), 1e-3 * first(one, "balance_loss"), 1e-8);
  for (const Seen* run : {&half, &none}) EXPECT_EQ(first(*run, "loss"), first(one, "loss"));
  EXPECT_NE(first(none, "grad_norm"), first(one, "grad_norm"));
  EXPECT_TRUE(has(lab.refusal({"moe.aux_coef=0.1"}), "no experts"));
}

// Per sequence, the loss does not depend on the size of micro-batches; per micro-batch it does.
void balance(const std::string&) {
  Lab lab;
  const auto of = [&](const char* kind, const char* micro_batch) {
    return first(run_moe(lab, {std::string("moe.balance=\"") + kind + "\"", "moe.aux_coef=1.0",
                               std::string("training.micro_batch_size=") + micro_batch}),
                 "balance_loss");
  };
  EXPECT_NEAR(of("sequence", "1"), of("sequence", "4"), 1e-6);
  EXPECT_NEAR(of("micro_batch", "1"), of("sequence", "4"), 1e-6);
  EXPECT_LT(of("micro_batch", "4"), of("sequence", "4") - 1e-3);
  // "global" uses the counts of the step so far, which include only tokens with a target. With one
  // micro-batch these are nearly the counts of the micro-batch; with several they differ.
  EXPECT_NEAR(of("global", "4"), of("micro_batch", "4"), 1e-3);
  EXPECT_GT(std::abs(of("global", "2") - of("micro_batch", "2")), 1e-4);
}

// Pooled over all layers: k if the load is balanced, for any number of layers.
void pooled(const std::string&) {
  Lab lab;
  const Seen run = run_moe(lab, {"moe.pool_layers=true", "moe.aux_coef=1.0", "moe.balance=\"micro_batch\""});
  EXPECT_GT(first(run, "balance_loss"), 2 * 0.99);
  EXPECT_LT(first(run, "balance_loss"), 2 * 1.5);
  const Seen apart = run_moe(lab, {"moe.aux_coef=1.0", "moe.balance=\"micro_batch\""});
  EXPECT_NE(first(run, "balance_loss"), first(apart, "balance_loss"));
}

bool same_weights(const Seen& a, const Seen& b) {
  return same(a.weights(2), b.weights(2));
}
const Sets kLeaking{"model.allow_leaking_routing=true"};

// 0 and a factor large enough for all tokens have no effect; a small factor of either sign drops assignments.
void capacity(const std::string&) {
  Lab lab;
  const Seen free = run_moe(lab, {}), half = run_moe(lab, {"moe.capacity_factor=0.5"});
  EXPECT_TRUE(same_weights(run_moe(lab, {"moe.capacity_factor=0"}), free));
  EXPECT_TRUE(same_weights(run_moe(lab, {"moe.capacity_factor=6"}), free));
  EXPECT_TRUE(same_weights(run_moe(lab, {"moe.capacity_factor=-0.5"}), half));
  EXPECT_NE(first(half, "loss"), first(free, "loss"));
  EXPECT_GT(first(half, "expert_dropped"), 0.05);
  EXPECT_LT(first(half, "expert_dropped"), 0.6);
  EXPECT_TRUE(free.values("expert_dropped").empty());
  // Balancing of the first layer counts dropped assignments too.
  EXPECT_EQ(first(half, "dead_experts"), first(free, "dead_experts"));
  const std::string refused =
      lab.refusal_of_toml(lab.toml(kModel), {"training.sequence_length=16", "moe.capacity_factor=0.1"});
  EXPECT_TRUE(has(refused, "moe.capacity_factor") && has(refused, "expected at least 1")) << refused;
  EXPECT_TRUE(has(lab.refusal({"moe.capacity_factor=1.0"}), "no experts"));
}

void min_capacity(const std::string&) {
  Lab lab;
  const Sets tight{"moe.capacity_factor=0.2"};
  const auto loss = [&](const Sets& sets) { return first(run_moe(lab, sets), "loss"); };
  EXPECT_EQ(loss(tight + Sets{"moe.min_capacity=16"}), loss({}));
  EXPECT_NE(loss(tight + Sets{"moe.min_capacity=4"}), loss(tight));
  EXPECT_TRUE(has(lab.refusal_of_toml(lab.toml(kModel), {"moe.min_capacity=4"}), "capacity_factor"));
}

// By probability, a later token can displace an earlier one.
void drop(const std::string&) {
  Lab lab;
  const Sets half{"moe.capacity_factor=0.5", "moe.drop=\"probability\""};
  EXPECT_TRUE(has(lab.refusal_of_toml(lab.toml(kModel), half), "by probability"));
  EXPECT_NE(first(run_moe(lab, half + kLeaking), "loss"),
            first(run_moe(lab, {"moe.capacity_factor=0.5"}), "loss"));
  EXPECT_TRUE(has(lab.refusal_of_toml(lab.toml(kModel), {"moe.drop=\"probability\""}), "capacity_factor"));
}

// Over a micro-batch, one sequence can use up the capacity of another.
void capacity_over(const std::string&) {
  Lab lab;
  const Sets half{"moe.capacity_factor=0.5", "moe.capacity_over=\"micro_batch\""};
  EXPECT_TRUE(has(lab.refusal_of_toml(lab.toml(kModel), half), "micro-batch"));
  const Sets sequence{"moe.capacity_factor=0.5"};
  EXPECT_NE(first(run_moe(lab, half + kLeaking), "loss"), first(run_moe(lab, sequence), "loss"));
  EXPECT_TRUE(
      has(lab.refusal_of_toml(lab.toml(kModel), {"moe.capacity_over=\"micro_batch\""}), "capacity_factor"));
}

// A run whose routing leaks starts only if explicitly allowed, and its run page and model card state it.
void leaking(const std::string&) {
  Lab lab;
  const Sets leaks{"moe.capacity_factor=0.5", "moe.drop=\"probability\""};
  const std::string refused = lab.refusal_of_toml(lab.toml(kModel), leaks);
  EXPECT_TRUE(has(refused, "model.allow_leaking_routing") && has(refused, "later token")) << refused;
  const Seen run = run_moe(lab, leaks + kLeaking);
  EXPECT_TRUE(has(read_file(run.folder / "index.html"), "a later token takes the place"));
  EXPECT_TRUE(has(read_file(run.folder / "final" / "README.md"), "routing leaks"));
  // Without a leak there is no such statement.
  const Seen sound = run_moe(lab, kLeaking);
  EXPECT_TRUE(same_weights(sound, run_moe(lab, {})));
  EXPECT_FALSE(has(read_file(sound.folder / "index.html"), "leaks"));
  EXPECT_FALSE(has(read_file(sound.folder / "final" / "README.md"), "leaks:"));
}

// Every kind trains, is recorded in config.json, and can be trained further.
void router(const std::string&) {
  Lab lab;
  const Seen usual = run_moe(lab, {});
  EXPECT_TRUE(same_weights(run_moe(lab, {"moe.router=\"top_k\""}), usual));
  for (const std::string kind : {"hash", "two_level", "expert_choice", "soft"}) {
    const bool leaks = kind == "expert_choice" || kind == "soft";
    const Sets sets{"moe.router=\"" + kind + "\""};
    if (leaks) {
      EXPECT_TRUE(has(lab.refusal_of_toml(lab.toml(kModel), sets), "allow_leaking_routing")) << kind;
    }
    const Seen run = run_moe(lab, leaks ? sets + kLeaking : sets);
    EXPECT_NE(first(run, "loss"), first(usual, "loss")) << kind;
    EXPECT_EQ(run.config()["model_type"], "strata_qwen3_moe");
    EXPECT_EQ(run.config()["strata_router"]["kind"], kind);
    const std::string from = "[model]\nfrom = \"" + (run.folder / "final").string() + "\"\n";
    const Seen on = lab.run_toml(lab.toml(from), Sets{"training.sequence_length=16", "training.steps=1"} +
                                                     kStill + (leaks ? kLeaking : Sets{}));
    EXPECT_EQ(on.config()["strata_router"], run.config()["strata_router"]);
    const Outcome refused =
        strata(run.folder, {"checkpoint", "export", (run.folder / "final").string(), "out"});
    EXPECT_EQ(refused.code, 2);
    EXPECT_TRUE(has(refused.err, "no exact counterpart")) << refused.err;
  }
  EXPECT_TRUE(has(lab.refusal({"moe.router=\"hash\""}), "no experts"));
  EXPECT_TRUE(
      has(lab.refusal_of_toml(lab.toml(kModel), {"moe.router=\"hash\"", "moe.aux_coef=0.1"}), "hash"));
  const std::string text = lab.refusal_of_toml(
      lab.toml(kModel), Sets{"moe.router=\"soft\"", "eval.sample_prompts=[\"a\"]"} + kLeaking);
  EXPECT_TRUE(has(text, "writes no text")) << text;
  EXPECT_TRUE(
      has(lab.refusal_of_toml(lab.toml("[model]\npreset = \"glm-4.5-air\"\n"), {"moe.router=\"hash\""}),
          "by a bias"));
}

void groups(const std::string&) {
  Lab lab;
  const Sets levels{"moe.router=\"two_level\""};
  const auto rows = [&](const Sets& sets) {
    return run_moe(lab, levels + sets).weights(2).at("model.layers.0.mlp.gate_groups.weight").shape[0];
  };
  EXPECT_EQ(rows({}), 2);
  EXPECT_EQ(rows({"moe.groups=3"}), 3);
  EXPECT_TRUE(has(lab.refusal_of_toml(lab.toml(kModel), levels + Sets{"moe.groups=4"}), "a divisor"));
  EXPECT_TRUE(has(lab.refusal_of_toml(lab.toml(kModel), {"moe.groups=3"}), "moe.groups"));
}

void kept_groups(const std::string&) {
  Lab lab;
  const Sets levels{"moe.router=\"two_level\"", "moe.groups=3"};
  EXPECT_NE(first(run_moe(lab, levels + Sets{"moe.kept_groups=2"}), "loss"),
            first(run_moe(lab, levels), "loss"));
  EXPECT_TRUE(has(lab.refusal_of_toml(lab.toml(kModel), levels + Sets{"moe.kept_groups=4"}), "groups"));
}

void inputs(const std::string&) {
  Lab lab;
  const Sets soft = kLeaking + Sets{"moe.router=\"soft\""};
  const auto rows = [&](const Sets& sets) {
    return run_moe(lab, soft + sets).weights(2).at("model.layers.0.mlp.gate.weight").shape[0];
  };
  EXPECT_EQ(rows({"moe.slots=3"}), 18);
  EXPECT_EQ(rows({}), 36);  // 16 tokens with two experts each are 5⅓ for each of six
  EXPECT_TRUE(has(lab.refusal_of_toml(lab.toml(kModel), {"moe.slots=3"}), "moe.slots"));
}

// The change of a step's loss grows with the noise; 0 has no effect. The noise does not depend on the size of
// micro-batches.
void jitter(const std::string&) {
  Lab lab;
  const Seen none = run_moe(lab, {}), some = run_moe(lab, {"moe.jitter=0.4"});
  EXPECT_TRUE(same_weights(run_moe(lab, {"moe.jitter=0"}), none));
  EXPECT_NE(first(some, "loss"), first(none, "loss"));
  EXPECT_LT(std::abs(first(run_moe(lab, {"moe.jitter=1e-6"}), "loss") - first(none, "loss")),
            std::abs(first(some, "loss") - first(none, "loss")));
  EXPECT_TRUE(same_weights(run_moe(lab, {"moe.jitter=0.4", "training.micro_batch_size=2"}), some));
  EXPECT_NEAR(first(run_moe(lab, {"moe.jitter=0.4", "training.micro_batch_size=1"}), "loss"),
              first(some, "loss"), 1e-6);
  EXPECT_TRUE(has(lab.refusal({"moe.jitter=0.1"}), "no experts"));
  EXPECT_TRUE(has(lab.refusal_of_toml(lab.toml(kModel), {"moe.jitter=1.5"}), "moe.jitter"));
}

void force_balanced(const std::string&) {
  Lab lab;
  const Seen forced = run_moe(lab, {"moe.force_balanced=true"}), free = run_moe(lab, {});
  // 64 tokens with two experts each over six experts: 21 or 22 for each expert.
  EXPECT_LT(first(forced, "expert_max_vio"), 0.1);
  EXPECT_GT(first(free, "expert_max_vio"), first(forced, "expert_max_vio"));
  EXPECT_EQ(first(forced, "dead_experts"), 0);
  EXPECT_NE(first(forced, "loss"), first(free, "loss"));
}

// The bias of an expert changes by the rate in each step: up if the expert had fewer tokens than the mean.
void bias_rate(const std::string&) {
  Lab lab;
  const std::string model = R"([model]
preset = "glm-4.5-air"
[model.override]
num_hidden_layers = 2
vocab_size = 300
hidden_size = 32
num_attention_heads = 4
num_key_value_heads = 2
head_dim = 8
intermediate_size = 48
n_routed_experts = 6
num_experts_per_tok = 2
moe_intermediate_size = 16
)";
  const auto bias_after = [&](const Sets& sets, int64_t steps) {
    const Seen run = lab.run_toml(lab.toml(model), Sets{"training.sequence_length=16", "training.steps=2",
                                                        "training.global_batch_size=4"} +
                                                       kStill + sets);
    return run.weights(steps).at("model.layers.1.mlp.gate.e_score_correction_bias").values;
  };
  const auto one = bias_after({"moe.bias_rate=0.25"}, 1);
  // 128 assignments over six experts: each expert has either fewer or more than the mean.
  for (const double value : one) EXPECT_EQ(std::abs(value), 0.25);
  EXPECT_NE(std::count(one.begin(), one.end(), 0.25), 0);
  EXPECT_NE(std::count(one.begin(), one.end(), -0.25), 0);
  for (const double value : bias_after({}, 1)) EXPECT_NEAR(std::abs(value), 1e-3, 1e-9);
  for (const double value : bias_after({"moe.bias_rate=0"}, 2)) EXPECT_EQ(value, 0.0);
  EXPECT_EQ(one, bias_after({"moe.bias_rate=0.25", "training.micro_batch_size=1"}, 1));
  const std::string refused = lab.refusal_of_toml(lab.toml(kModel), {"moe.bias_rate=0.25"});
  EXPECT_TRUE(has(refused, "no bias") && has(refused, "moe.bias_rate")) << refused;
}

}  // namespace

Contracts moe_keys() {
  return {{"moe.bias_rate", bias_rate},
          {"moe.balance", balance},
          {"moe.pool_layers", pooled},
          {"moe.aux_coef", coefficients},
          {"moe.z_coef", coefficients},
          {"moe.jitter", jitter},
          {"moe.force_balanced", force_balanced},
          {"moe.router", router},
          {"moe.groups", groups},
          {"moe.kept_groups", kept_groups},
          {"moe.slots", inputs},
          {"moe.capacity_factor", capacity},
          {"moe.min_capacity", min_capacity},
          {"moe.drop", drop},
          {"moe.capacity_over", capacity_over},
          {"model.allow_leaking_routing", leaking}};
}

}  // namespace strata::contracts
