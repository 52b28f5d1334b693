// Options of check.
#include "cli/describe.h"
#include "contracts/contract.h"
#include "contracts/options.h"

namespace strata::contracts {
namespace {

// The run's own step, on as many positions as there are, and on fewer.
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
  // In front of the first token there is nothing that could move.
  EXPECT_EQ(of_mode(longer, "train")["positions"], 39);
  const std::string text = desk.strata("check causality run.toml").out;
  EXPECT_TRUE(has(text, "causal: no token moves"));
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

}  // namespace

Contracts check_options() {
  return {{"check causality RUN.toml", check_run},    {"check causality --set", check_run},
          {"check causality --positions", check_run}, {"check causality --json", check_run},
          {"check causality --ranks", check_ranks},   {"check causality --model", check_model}};
}

}  // namespace strata::contracts
