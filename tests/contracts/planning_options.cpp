// Contracts of the options of `strata scale` and `strata plan`.
#include <cmath>

#include "base/json.h"
#include "contracts/contract.h"
#include "contracts/options.h"

namespace strata::contracts {
namespace {

// The replication of Chinchilla's third approach (Epoch AI, arXiv 2404.10102).
constexpr double kE = 1.8172, kA = 482.01, kB = 2085.43, kAlpha = 0.3478, kBeta = 0.3658;
double loss_of(double params, double tokens) {
  return kE + kA / std::pow(params, kAlpha) + kB / std::pow(tokens, kBeta);
}

double number(const json& value) {
  return value.get<double>();
}

void scale_sizes(const std::string&) {
  const Desk desk;
  // Half of the budget at neither more nor fewer parameters has a lower loss.
  const json best = desk.object("scale --flops 1e21 --json");
  const double params = number(best["params"]), tokens = number(best["tokens"]);
  EXPECT_NEAR(6 * params * tokens / 1e21, 1, 1e-9);
  EXPECT_NEAR(number(best["loss"]), loss_of(params, tokens), 1e-9);
  for (const double factor : {0.9, 1.1})
    EXPECT_GT(loss_of(params * factor, tokens / factor), number(best["loss"]));
  // From either size back to the other.
  const auto text = [](double value) { return std::to_string(static_cast<int64_t>(value)); };
  EXPECT_NEAR(number(desk.object("scale --params " + text(params) + " --json")["tokens"]) / tokens, 1, 1e-6);
  EXPECT_NEAR(number(desk.object("scale --tokens " + text(tokens) + " --json")["params"]) / params, 1, 1e-6);
  // Two of them are a model.
  EXPECT_NEAR(number(desk.object("scale --params 7B --tokens 2T --json")["loss"]), loss_of(7e9, 2e12), 1e-9);
  EXPECT_NEAR(number(desk.object("scale --flops 8.4e22 --params 7B --json")["tokens"]) / 2e12, 1, 1e-9);
  EXPECT_TRUE(has(desk.strata("scale --flops 1e21").out, "parameters      2.78B  (90 %: "));
  for (const char* wrong :
       {"scale", "scale --flops 0", "scale --flops -1", "scale --flops 7B", "scale --params x",
        "scale --tokens", "scale --flops 1e21 --params 1B --tokens 1B"})
    desk.refused(wrong);
}

void scale_law(const std::string&) {
  const Desk desk;
  EXPECT_NEAR(number(desk.object("scale --flops 6e23 --law rule-of-20 --json")["params"]) / 70.7e9, 1, 1e-3);
  EXPECT_NEAR(number(desk.object("scale --flops 5.76e23 --law chinchilla-paper --json")["params"]) / 32.2e9,
              1, 2e-3);
  const std::vector<json> all = desk.strata("scale --flops 1e21 --law all --json").lines();
  EXPECT_GE(all.size(), 7u);
  for (const json& one : all) EXPECT_NEAR(6 * number(one["params"]) * number(one["tokens"]) / 1e21, 1, 1e-9);
  EXPECT_TRUE(has(desk.refused("scale --flops 1e21 --law chinchila"), "did you mean \"chinchilla\""));
}

void scale_inference(const std::string&) {
  const Desk desk;
  const json life = desk.object("scale --params 13B --inference-tokens 2T --json")["lifetime"];
  const double params = number(life["params"]), tokens = number(life["tokens"]);
  EXPECT_LT(params, 13e9);
  EXPECT_NEAR(loss_of(params, tokens), number(life["loss"]), 1e-6);
  EXPECT_NEAR(number(life["flops"]) / (6 * params * tokens + 2 * params * 2e12), 1, 1e-9);
  desk.refused("scale --params 13B --inference-tokens 2T --law chinchilla-1");
}

void scale_unique(const std::string&) {
  const Desk desk;
  const json scarce = desk.object("scale --flops 1e22 --unique-tokens 10B --json");
  EXPECT_EQ(scarce["law"], "data-constrained");
  const double unique = 10e9, tokens = number(scarce["tokens"]), decay = 15.387756;
  EXPECT_NEAR(number(scarce["effective_tokens"]),
              unique + unique * decay * (1 - std::exp(-(tokens / unique - 1) / decay)), 1e3);
  EXPECT_TRUE(has(desk.refused("scale --flops 1e22 --unique-tokens 10B --law kaplan"), "--law kaplan"));
}

void scale_experts(const std::string&) {
  const Desk desk;
  const json one = desk.object("scale --params 1B --experts 1 --json");
  EXPECT_NEAR(number(one["dense_params"]) / 1e9, 1, 1e-6) << "one expert is the dense model";
  EXPECT_GT(number(desk.object("scale --params 1B --experts 32 --json")["dense_params"]), 2e9);
  desk.refused("scale --flops 1e21 --experts 8");
  const json fine = desk.object("scale --flops 1e22 --granularity 8 --json");
  const double params = number(fine["params"]), tokens = number(fine["tokens"]);
  // Krajewski et al., table 1; all parameters are 43 times the active ones.
  EXPECT_NEAR(
      number(fine["loss"]),
      0.47 + (2.1 / std::pow(8, 0.58) + 18.1) / std::pow(43 * params, 0.115) + 30.8 / std::pow(tokens, 0.147),
      1e-9);
  desk.refused("scale --flops 1e22 --granularity 0.5");
}

void scale_batch(const std::string&) {
  const Desk desk;
  const json found = desk.object(
      "scale --params 1B --batch 2M --critical-batch 1M@10B --lr 3e-4 --lr-batch 0.5M --width-multiple 4 --json");
  const json& batches = found["batches"];
  const double critical = 1e6 * std::pow(number(found["tokens"]) / 10e9, 0.47);
  EXPECT_NEAR(number(batches["critical"]) / critical, 1, 1e-9);
  EXPECT_NEAR(number(batches["token_multiple"]), 1 + 2e6 / critical, 1e-9);
  EXPECT_NEAR(number(batches["learning_rate"]),
              3e-4 * std::sqrt((1 + critical / 0.5e6) / (1 + critical / 2e6)), 1e-9);
  EXPECT_EQ(batches["width"]["matrix_learning_rate"], 0.25);
  const json plain = desk.object("scale --params 1B --json");
  EXPECT_NEAR(number(plain["batches"]["critical"]) / (2e8 * std::pow(number(plain["loss"]), -1 / 0.21)), 1,
              1e-9);
  for (const char* wrong :
       {"scale --params 1B --lr 3e-4", "scale --params 1B --lr-batch 1M",
        "scale --params 1B --critical-batch 1M", "scale --params 1B --batch 0",
        "scale --params 1B --lr -1 --width-multiple 2", "scale --params 1B --width-multiple 0"})
    desk.refused(wrong);
}

const char* const kPriced = "scale --params 7B --tokens 2T --cluster h100-sxm --gpus 512 --mfu 0.4 --json";

void scale_cost(const std::string&) {
  const Desk desk;
  const json cost = desk.object(kPriced)["cost"];
  const double hours = 8.4e22 / (989e12 * 0.4 * 3600);
  EXPECT_NEAR(number(cost["useful_hours"]["value"]) / hours, 1, 1e-9);
  EXPECT_EQ(cost["useful_hours"]["low"], cost["useful_hours"]["high"]);
  EXPECT_EQ(cost["devices"], 512);
  const double ettr = number(cost["risk"]["ettr"]);
  EXPECT_NEAR(number(cost["risk"]["ettr_simulated"]) / ettr, 1, 0.05);
  EXPECT_NEAR(number(cost["wall_hours"]["value"]) * 512 * ettr / hours, 1, 1e-9);
  for (const json& offer : cost["offers"])
    EXPECT_NEAR(number(offer["usd"]["low"]) * ettr / (number(offer["usd_per_hour"]["low"]) * hours), 1, 1e-9);
  // Unset: a range of the MFU, and whole hosts.
  const json open = desk.object("scale --params 7B --tokens 2T --cluster h100-sxm --json")["cost"];
  EXPECT_LT(number(open["mfu"]["low"]), number(open["mfu"]["high"]));
  EXPECT_EQ(open["devices"].get<int64_t>() % 8, 0);
  EXPECT_TRUE(has(desk.strata("scale --params 7B --tokens 2T --cluster h100-sxm").out, "--gpus sets them"));
  for (const char* option :
       {"--gpus 8", "--mfu 0.4", "--region france", "--provider AWS", "--save-seconds 1",
        "--spot-interruptions 1", "--ablations 1", "--ablation-share 1", "--failure-share 0.1"})
    EXPECT_TRUE(has(desk.refused(std::string("scale --flops 1e21 ") + option), "--cluster")) << option;
  EXPECT_TRUE(has(desk.refused("scale --flops 1e21 --cluster h100-smx"), "did you mean \"h100-sxm\""));
  EXPECT_TRUE(has(desk.refused("scale --params 405B --cluster h100-sxm --gpus 8"), "--gpus"));
  desk.refused("scale --flops 1e21 --cluster h100-sxm --mfu 1.5");
  desk.refused("scale --flops 1e21 --cluster h100-sxm --law all");
  // A file with another price and a faster chip.
  const std::string file =
      "[cluster.mine]\nextends = \"h100-sxm\"\n[[price]]\nchip = \"h100-sxm\"\nprovider = \"mine\"\n"
      "date = \"2026\"\nusd_per_hour = ";
  desk.put("mine.toml", file + "1\n");
  const json mine = desk.object(
      "scale --params 7B --tokens 2T --cluster mine.toml --gpus 512 --mfu 0.4 --provider mine --json");
  ASSERT_EQ(mine["cost"]["offers"].size(), 1u);
  EXPECT_NEAR(number(mine["cost"]["offers"][0]["usd"]["low"]) * ettr / hours, 1, 1e-9);
  desk.put("mine.toml", file + "-1\n");
  EXPECT_TRUE(has(desk.refused("scale --flops 1e21 --cluster mine.toml"), "price.usd_per_hour"));
}

void scale_cost_choices(const std::string&) {
  const Desk desk;
  const json all = desk.object(kPriced)["cost"];
  const auto with = [&](const std::string& more) { return desk.object(kPriced + (" " + more))["cost"]; };
  const json lambda = with("--provider Lambda");
  ASSERT_EQ(lambda["offers"].size(), 1u);
  EXPECT_EQ(lambda["offers"][0]["provider"], "Lambda");
  EXPECT_TRUE(has(desk.refused(kPriced + std::string(" --provider Lamda")), "did you mean \"Lambda\""));
  const json france = with("--region france");
  ASSERT_EQ(france["regions"].size(), 1u);
  EXPECT_NEAR(number(france["regions"][0]["co2_kg"]["value"]) / number(france["regions"][0]["kwh"]["value"]),
              0.056, 1e-9);
  EXPECT_GT(all["regions"].size(), 5u);
  desk.refused(kPriced + std::string(" --region atlantis"));
  const json slow = with("--save-seconds 600");
  EXPECT_EQ(slow["risk"]["save_s"], 600);
  EXPECT_LT(number(slow["risk"]["ettr"]), number(all["risk"]["ettr"]));
  // 20 ablations of 5 % each are a second final run; half of all attempts fail halfway.
  EXPECT_NEAR(number(with("--ablations 20 --ablation-share 0.05")["campaign"]["multiple"]), 2, 1e-9);
  EXPECT_NEAR(number(with("--failure-share 0.5")["campaign"]["multiple"]), 1.5, 1e-9);
  desk.refused(kPriced + std::string(" --failure-share 1"));
  const auto spot = [&](const char* interruptions) {
    const json cost =
        desk.object(std::string("scale --params 7B --tokens 2T --cluster b200 --gpus 512 --mfu 0.4 "
                                "--json --spot-interruptions ") +
                    interruptions)["cost"];
    for (const json& offer : cost["offers"])
      if (offer["terms"] == "spot") return offer;
    ADD_FAILURE() << "no spot offer";
    return json();
  };
  EXPECT_GT(number(spot("30")["wall_hours"]), number(spot("0.1")["wall_hours"]));
}

// A law without noise.
std::string table_of_runs() {
  std::string text = "params,tokens,loss\n";
  for (const double params : {1e8, 2e8, 4e8, 8e8}) {
    for (const double tokens : {2e9, 4e9, 8e9, 16e9})
      text += std::to_string(params) + "," + std::to_string(tokens) + "," +
              std::to_string(loss_of(params, tokens)) + "\n";
  }
  return text;
}

void scale_fit(const std::string&) {
  const Desk desk;
  desk.put("runs.csv", table_of_runs());
  const json fit = desk.object("scale fit runs.csv --flops 1e21 --html page.html --json");
  EXPECT_EQ(fit["law"], "chinchilla");
  EXPECT_NEAR(number(fit["coefficients"]["alpha"]["value"]), kAlpha, 0.01);
  EXPECT_NEAR(number(fit["coefficients"]["beta"]["value"]), kBeta, 0.01);
  EXPECT_NEAR(
      number(fit["optimum"]["params"]["value"]) / number(desk.object("scale --flops 1e21 --json")["params"]),
      1, 0.05);
  EXPECT_TRUE(has(desk.read("page.html"), "<svg"));
  EXPECT_TRUE(has(desk.refused("scale fit runs.csv --html page.html"), "page.html"));
  EXPECT_TRUE(has(desk.strata("scale fit runs.csv --html page.html --force").out, "page.html"));
  EXPECT_TRUE(desk.object("scale fit runs.csv --json")["optimum"].is_null());
  desk.put("few.csv", "params,tokens,loss\n1e8,1e9,3\n2e8,1e9,2.9\n");
  EXPECT_EQ(desk.strata("scale fit few.csv").code, 3);
  desk.refused("scale fit");
  desk.refused("scale fit nowhere");
  EXPECT_TRUE(has(desk.refused("scale --flops 1e21 fit runs.csv"), "--flops"));
}

void plan_claims(const std::string&) {
  const Desk desk;
  const json checked = desk.object("plan --check-claims --json");
  EXPECT_GE(checked["off"], 12) << "the reference lists at least that many";
  for (const json& claim : checked["claims"]) {
    EXPECT_NEAR(number(claim["ratio"]) * number(claim["computed"]) / number(claim["published"]), 1, 1e-9);
    if (claim["id"] != "kernel-speedup") continue;
    EXPECT_NEAR(number(claim["computed"]), 1.15 * 2.02 * 1.60, 1e-9);
  }
  size_t hold = 0;
  for (const json& curve : checked["curves"]) {
    hold += curve["direction_holds"] == true ? 1 : 0;
    for (const json& point : curve["points"]) {
      if (point["published"].is_null()) continue;
      EXPECT_NEAR((number(point["error"]) + 1) * number(point["published"]) / number(point["predicted"]), 1,
                  1e-9);
    }
  }
  EXPECT_GE(hold, 15u);
  EXPECT_TRUE(has(desk.strata("plan --check-claims").out, "impossible guide 0"));
  EXPECT_TRUE(has(desk.refused("plan"), "--check-claims"));
}

// A small model on 16 H100: two hosts.
const char* const kPlanned =
    "plan llama3-1b --cluster h100-sxm --gpus 16 --json --set training.global_batch_size=128 "
    "--set training.sequence_length=2048 ";

void plan_layouts(const std::string&) {
  const Desk desk;
  const json plan = desk.object(std::string(kPlanned) + "--tokens 20B");
  const json& layouts = plan["layouts"];
  ASSERT_GE(layouts.size(), 3u);
  double before = 0;
  for (const json& layout : layouts) {
    const json& parallel = layout["parallel"];
    int64_t ranks = 1;
    for (const char* degree : {"replicate", "shard", "context", "tensor", "pipeline"})
      ranks *= parallel[degree].get<int64_t>();
    EXPECT_EQ(ranks, 16);
    EXPECT_EQ(128 % (layout["training"]["micro_batch_size"].get<int64_t>() *
                     parallel["replicate"].get<int64_t>() * parallel["shard"].get<int64_t>()),
              0);
    EXPECT_LT(number(layout["step_time_low_s"]), number(layout["step_time_s"]));
    EXPECT_LT(number(layout["step_time_s"]), number(layout["step_time_high_s"]));
    EXPECT_LE(number(layout["memory_bytes"]), 72e9);
    if (!layout["compiled"].is_null()) {
      EXPECT_GE(number(layout["step_time_s"]), before);
      before = number(layout["step_time_s"]);
    }
    // 20 B tokens in whole steps, at the price of 16 devices.
    const double steps = std::ceil(20e9 / (128 * 2048));
    EXPECT_NEAR(number(layout["run_s"]) / (steps * number(layout["step_time_s"])), 1, 1e-3);
    EXPECT_NEAR(number(layout["cost"]) /
                    (number(layout["run_s"]) / 3600 * 16 * number(plan["price"]["usd_per_hour"])),
                1, 1e-9);
  }
  // explain takes the written configuration and expects the same.
  desk.put("best.toml", plan["run_toml"].get<std::string>());
  const json explained = desk.object("explain best.toml --json --cluster h100-sxm --ranks 16");
  EXPECT_EQ(explained["fits"], true);
  EXPECT_NEAR(number(explained["expected"]["step_seconds"]) / number(layouts[0]["step_time_s"]), 1, 1e-9);
  const std::string text =
      desk.strata("plan llama3-1b --cluster h100-sxm --gpus 16 --set training.sequence_length=2048").out;
  for (const char* part : {"The best: ", "What more would give", "RUN.toml of the best", "assumed"})
    EXPECT_TRUE(has(text, part)) << text;
  EXPECT_TRUE(has(desk.refused("plan lama3-1b --cluster h100-sxm"), "did you mean llama3-1b"));
  EXPECT_TRUE(has(desk.refused("plan llama3-1b --cluster h100-smx"), "did you mean \"h100-sxm\""));
  EXPECT_TRUE(has(desk.refused("plan llama3.1-405b --cluster h100-sxm --gpus 8"), "it fits on"));
  desk.refused("plan llama3-1b --cluster h100-sxm --gpus 0");
  desk.refused("plan llama3-1b --cluster h100-sxm --tokens x");
}

void plan_sets(const std::string&) {
  const Desk desk;
  for (const json& layout :
       desk.object(std::string(kPlanned) + "--set parallel.tensor=2 --set parallel.zero=1")["layouts"]) {
    EXPECT_EQ(layout["parallel"]["tensor"], 2);
    EXPECT_EQ(layout["parallel"]["zero"], 1);
  }
  const double slow = number(desk.object(kPlanned)["layouts"][0]["step_time_s"]);
  const double fast = number(
      desk.object(kPlanned, {"--set", "chip.memory_bandwidth=\"6.7 TB/s\""})["layouts"][0]["step_time_s"]);
  EXPECT_LT(fast, slow);
  const std::string wrong = desk.refused(std::string(kPlanned) + "--set parallel.tensor=32");
  EXPECT_TRUE(has(wrong, "parallel.tensor") && has(wrong, "--gpus 16")) << wrong;
}

void plan_devices(const std::string&) {
  const Desk desk;
  const std::string open =
      "plan llama3-1b --cluster h100-sxm --json --tokens 100B --set training.global_batch_size=512 "
      "--set training.sequence_length=2048 ";
  const json few = desk.object(open), soon = desk.object(open + "--deadline 1d"),
             rich = desk.object(open + "--budget $3000");
  EXPECT_EQ(few["devices"], 8);
  EXPECT_GT(soon["devices"].get<int64_t>(), 8);
  EXPECT_LE(number(soon["layouts"][0]["run_s"]), 86400);
  EXPECT_LE(number(rich["layouts"][0]["cost"]), 3000);
  EXPECT_TRUE(has(desk.refused(open + "--deadline 1s"), "--deadline"));
  EXPECT_TRUE(has(desk.refused(open + "--deadline soon"), "--deadline"));
  EXPECT_TRUE(has(desk.refused(open + "--budget $1"), "--budget"));
  EXPECT_TRUE(has(desk.refused(open + "--budget x"), "--budget"));
  EXPECT_TRUE(has(desk.refused(open + "--budget $1M --gpus 8"), "--gpus"));
  EXPECT_TRUE(has(desk.refused("plan llama3-1b --budget $1M"), "--cluster"));
}

void plan_here(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  const json plan = desk.object("plan run.toml --gpus 2 --json");
  EXPECT_EQ(plan["devices"], 2);
  EXPECT_EQ(plan["cluster"], "this machine");
  ASSERT_FALSE(plan["layouts"].empty());
  EXPECT_TRUE(plan["layouts"][0]["cost"].is_null());
  desk.put("best.toml", plan["run_toml"].get<std::string>());
  EXPECT_EQ(desk.object("explain best.toml --json --ranks 2")["fits"], true);
}

// The trials start the program again, so it cannot run in this process.
void plan_try(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  const std::string command = "cd '" + desk.path("").string() +
                              "' && '" STRATA_PROGRAM "' plan run.toml --gpus 2 --try 2 --json >out 2>err";
  ASSERT_EQ(std::system(command.c_str()), 0) << desk.read("err");
  const json layouts = parse_json<json>(desk.read("out"))["layouts"];
  ASSERT_GE(layouts.size(), 2u);
  // Those that ran come first, the fastest before the other; no further one ran.
  EXPECT_GT(number(layouts[0]["measured_s"]), 0);
  EXPECT_LE(number(layouts[0]["measured_s"]), number(layouts[1]["measured_s"]));
  for (size_t i = 2; i < layouts.size(); ++i) EXPECT_FALSE(layouts[i].contains("measured_s"));
  EXPECT_FALSE(desk.exists("run")) << "trials use other folders";
  EXPECT_TRUE(has(desk.refused("plan llama3-1b --cluster h100-sxm --try 1"), "--try"));
  desk.refused("plan run.toml --try 0");
}

void plan_page(const std::string&) {
  const Desk desk;
  const std::string words =
      "plan llama3-1b --cluster h100-sxm --gpus 16 --tokens 20B --set training.sequence_length=2048 --html p.html";
  EXPECT_TRUE(has(desk.strata(words).out, "p.html"));
  const std::string page = desk.read("p.html");
  for (const char* part : {"Layouts, the best first", "Ranks on the hosts", "Where a step",
                           "Memory of a rank", "Timeline", "Cost of", "What more of one resource",
                           "Assumptions: Hosts of 8 H100", "RUN.toml of the best", "preset = "})
    EXPECT_TRUE(has(page, part)) << part;
  EXPECT_FALSE(has(page, "src=\"http") || has(page, "href=\"http") || has(page, "url(http"))
      << "it is offline";
  EXPECT_TRUE(has(desk.refused(words), "p.html"));
  EXPECT_EQ(desk.strata(words + " --force").code, 0);
}

void plan_hypothetical(const std::string&) {
  const Desk desk;
  const json plan = desk.object(std::string(kPlanned) + "--hypothetical");
  const auto find = [&](const char* key, const std::string& value) {
    for (const json& one : plan["hypothetical"])
      if (one.value(key, "") == value) return one;
    ADD_FAILURE() << "no " << value;
    return json();
  };
  const double best = number(plan["layouts"][0]["formula"]["step_time_s"]);
  EXPECT_LT(number(find("what", "fp8 matmuls")["step_time_s"]), best);
  // Adam's 12 bytes of each parameter are in the host's memory.
  const json offloaded = find("what", "optimizer in the host's memory");
  EXPECT_GT(number(offloaded["host_memory_bytes"]), 0);
  // Another device by formulas, as planned for it.
  const json other = desk.object(
      "plan llama3-1b --cluster mi300x --gpus 16 --json --set training.global_batch_size=128 "
      "--set training.sequence_length=2048");
  double least = INFINITY;
  for (const json& layout : other["layouts"])
    least = std::min(least, number(layout["formula"]["step_time_s"]));
  EXPECT_NEAR(number(find("cluster", "mi300x")["step_time_s"]) / least, 1, 0.1);
  // None of it is in the configuration.
  for (const char* word : {"fp8", "offload"}) EXPECT_FALSE(has(plan["run_toml"].get<std::string>(), word));
  EXPECT_FALSE(desk.object(kPlanned).contains("hypothetical"));
}

}  // namespace

Contracts planning_options() {
  return {{"scale --flops", scale_sizes},
          {"scale --params", scale_sizes},
          {"scale --tokens", scale_sizes},
          {"scale --json", scale_sizes},
          {"scale --law", scale_law},
          {"scale --inference-tokens", scale_inference},
          {"scale --unique-tokens", scale_unique},
          {"scale --experts", scale_experts},
          {"scale --granularity", scale_experts},
          {"scale --batch", scale_batch},
          {"scale --critical-batch", scale_batch},
          {"scale --lr", scale_batch},
          {"scale --lr-batch", scale_batch},
          {"scale --width-multiple", scale_batch},
          {"scale --cluster", scale_cost},
          {"scale --gpus", scale_cost},
          {"scale --mfu", scale_cost},
          {"scale --region", scale_cost_choices},
          {"scale --provider", scale_cost_choices},
          {"scale --save-seconds", scale_cost_choices},
          {"scale --spot-interruptions", scale_cost_choices},
          {"scale --ablations", scale_cost_choices},
          {"scale --ablation-share", scale_cost_choices},
          {"scale --failure-share", scale_cost_choices},
          {"scale fit RUN", scale_fit},
          {"scale fit --flops", scale_fit},
          {"scale fit --html", scale_fit},
          {"scale fit --force", scale_fit},
          {"scale fit --json", scale_fit},
          {"plan MODEL", plan_layouts},
          {"plan --tokens", plan_layouts},
          {"plan --gpus", plan_here},
          {"plan --cluster", plan_layouts},
          {"plan --set", plan_sets},
          {"plan --budget", plan_devices},
          {"plan --deadline", plan_devices},
          {"plan --try", plan_try},
          {"plan --html", plan_page},
          {"plan --force", plan_page},
          {"plan --hypothetical", plan_hypothetical},
          {"plan --check-claims", plan_claims},
          {"plan --json", plan_claims}};
}

}  // namespace strata::contracts
