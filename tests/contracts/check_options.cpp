// Contracts of the options of `strata check`.
#include "cli/describe.h"
#include "contracts/contract.h"
#include "contracts/options.h"

namespace strata::contracts {
namespace {

// The step of the run, at all positions and at fewer.
void check_run(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  const json all = desk.object("check causality run.toml --json");
  EXPECT_EQ(all["causal"], true);
  EXPECT_TRUE(all["leaks"].empty());
  const auto of_mode = [](const json& found, const char* mode) {
    for (const json& one : found["modes"])
      if (one["mode"] == mode) return one;
    ADD_FAILURE() << "no mode " << mode << " in " << found;
    return json();
  };
  const json few = desk.object("check causality run.toml --json --positions 2");
  EXPECT_EQ(of_mode(few, "train")["positions"], 2);
  EXPECT_GT(of_mode(all, "train")["positions"], 2);
  // Longer sequences than the run's.
  const json longer =
      desk.object("check causality run.toml --json --positions 10000 --set training.sequence_length=40");
  // No logit precedes the first token.
  EXPECT_EQ(of_mode(longer, "train")["positions"], 39);
  const std::string text = desk.strata("check causality run.toml").out;
  EXPECT_TRUE(has(text, "causal: no token affects"));
  desk.refused("check causality");
  desk.refused("check causality nowhere.toml");
}

void check_ranks(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  const json two =
      desk.object("check causality run.toml --json --ranks 2 --set parallel.tensor=2 --positions 4");
  EXPECT_EQ(two["causal"], true);
  EXPECT_EQ(two["layout"]["tensor"], 2);
  desk.refused("check causality run.toml --ranks 0");
  desk.refused("check causality run.toml --set parallel.tensor=2");
}

void check_model(const std::string&) {
  const Desk desk;
  desk.train();
  const json found = desk.object("check causality --model run/final --json --positions 4");
  EXPECT_EQ(found["causal"], true);
  EXPECT_TRUE(has(desk.strata("check causality --model run/final --positions 1").out, "run/final"));
  desk.refused("check causality run.toml --model run/final");
}

// In fp32 both kernels agree up to rounding.
void check_drift(const std::string&) {
  const Desk desk;
  desk.train();
  const json found = desk.object("check drift --model run --json --length 16 --texts 2");
  EXPECT_EQ(found["drifts"], false);
  EXPECT_EQ(found["source"], "random tokens");
  ASSERT_EQ(found["precisions"].size(), 2u);
  EXPECT_EQ(found["precisions"][0]["precision"], "fp32");
  // Prompts of 4 and 12 tokens; there are logits after each prompt and after each token that follows.
  EXPECT_EQ(found["precisions"][0]["tokens"], 13 + 5);
  EXPECT_LT(found["precisions"][0]["largest_logit"], 1e-4);
  EXPECT_GT(found["precisions"][0]["largest_logit"], 0);
  EXPECT_LT(found["precisions"][0]["mean_kl"], 1e-9);
  const json one =
      desk.object("check drift --model run/final --json --length 16 --texts 1 --set precision.compute=bf16");
  ASSERT_EQ(one["precisions"].size(), 1u);
  EXPECT_EQ(one["precisions"][0]["precision"], "bf16");
  EXPECT_EQ(one["precisions"][0]["tokens"], 9);
  // The model has 64 positions.
  EXPECT_EQ(desk.object("check drift --model run --json --length 1000 --texts 1")["length"], 64);
  const json of_text = desk.object("check drift --model run --json --length 16 --text corpus.txt");
  EXPECT_EQ(of_text["source"], "corpus.txt");
  EXPECT_NE(of_text["precisions"][0]["mean_kl"], found["precisions"][0]["mean_kl"]);
  EXPECT_TRUE(has(desk.strata("check drift --model run --length 16").out, "largest KL"));
  desk.put("short.txt", "a");
  EXPECT_EQ(desk.strata("check drift --model run --text short.txt").code, 3);
  desk.refused("check drift");
  desk.refused("check drift --model run --length 1");
}

void check_precision(const std::string&) {
  const Desk desk;
  desk.train();
  const std::string coded = " --json --set precision.keep=[\"head\"] --set precision.compute=fp8 ";
  const json found = desk.object("check precision run.toml" + coded);
  EXPECT_EQ(found["recipe"], "block");
  EXPECT_EQ(found["step"], 3);
  EXPECT_EQ(found["fits"], true);
  ASSERT_EQ(found["products"].size(), 2u * 4 * 3);
  for (const char* key : {"op", "layer", "role", "operands", "snr_db"})
    EXPECT_TRUE(found["products"][0].contains(key)) << key;
  for (const char* key : {"format", "snr_db", "saturated", "flushed"})
    EXPECT_TRUE(found["products"][0]["operands"][1].contains(key)) << key;
  const json row = desk.object("check precision run.toml" + coded + "--set precision.recipe=row");
  EXPECT_EQ(row["recipe"], "row");
  EXPECT_NE(row["worst"], found["worst"]);
  // Named otherwise, but the same.
  const json of_model = desk.object("check precision --model run" + coded);
  EXPECT_TRUE(of_model["products"] == found["products"]);
  EXPECT_EQ(of_model["weights"], "run/checkpoints/step-00000002");
  EXPECT_TRUE(has(
      desk.strata("check precision run.toml --set precision.compute=fp4 --set precision.keep=[\"head\"]").out,
      "nvfp4"));
  EXPECT_TRUE(has(desk.refused("check precision run.toml"), "precision.compute"));
  desk.refused("check precision run.toml --model run");
}

}  // namespace

Contracts check_options() {
  return {{"check causality RUN.toml", check_run},
          {"check causality --set", check_run},
          {"check causality --positions", check_run},
          {"check causality --json", check_run},
          {"check causality --ranks", check_ranks},
          {"check causality --model", check_model},
          {"check drift --model", check_drift},
          {"check drift --text", check_drift},
          {"check drift --length", check_drift},
          {"check drift --texts", check_drift},
          {"check drift --set", check_drift},
          {"check drift --json", check_drift},
          {"check precision RUN.toml", check_precision},
          {"check precision --model", check_precision},
          {"check precision --set", check_precision},
          {"check precision --json", check_precision}};
}

}  // namespace strata::contracts
