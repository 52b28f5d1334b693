// Contracts of the options of simulate.
#include "contracts/contract.h"
#include "contracts/options.h"

namespace strata::contracts {
namespace {

// A published run of NVIDIA's benchmarks: Llama 3.1 70B on 64 H100, 14.72 s a step.
constexpr const char* kColumns =
    "id,params_total_B,params_active_B,layers,hidden,heads,kv_heads,ffn,vocab,seq_len,global_batch_tokens,gpu,"
    "num_gpus,stack,tp,pp,vpp,cp,micro_batch,precision";
constexpr const char* kRest = ",28672,128256,8192,1048576,H100-80GB-SXM,64,nemo,4,4,5,2,1,bf16";

double number(const json& value) {
  return value.get<double>();
}

void runs(const std::string&) {
  const Desk desk;
  const std::string row = "70.55,70.55,80,8192,64,8" + std::string(kRest);
  const std::string hole = "70.55,70.55,80,8192,64," + std::string(kRest);
  const std::string table = std::string(kColumns) + "\na," + row + "\nb," + hole + "\n";
  desk.put("runs.csv", table);
  const std::string text = desk.strata("simulate --runs runs.csv").out;
  EXPECT_TRUE(has(text, "a: 1")) << text;
  EXPECT_TRUE(has(text, "b: skipped, no value in kv_heads")) << text;
  // With results: how far they are off.
  desk.put("results.csv", std::string(kColumns) + ",step_time_s\na," + row + ",14.72\n");
  EXPECT_TRUE(has(desk.strata("simulate --runs results.csv").out, "| nemo | 1 |"));
  // One object per line, in order.
  const std::string lines = desk.strata("simulate --runs runs.csv --json").out;
  const size_t end = lines.find('\n');
  const json first = json::parse(lines.substr(0, end));
  const json second = json::parse(lines.substr(end + 1));
  EXPECT_EQ(first["id"], "a");
  EXPECT_NEAR(first["step_time_s"].get<double>() / 14.72, 1, 0.15);
  EXPECT_LT(first["step_time_low_s"].get<double>(), first["step_time_s"].get<double>());
  EXPECT_LT(first["step_time_s"].get<double>(), first["step_time_high_s"].get<double>());
  EXPECT_NEAR(first["tokens_per_s_per_gpu"].get<double>() * first["step_time_s"].get<double>() * 64, 1048576,
              1);
  EXPECT_GT(first["memory_GB"].get<double>(), 20);
  EXPECT_LT(first["memory_GB"].get<double>(), 80);
  EXPECT_TRUE(first["skipped"].is_null() && second["step_time_s"].is_null());
  EXPECT_EQ(second["skipped"], "no value in kv_heads");
  desk.put("header.csv", "id,gpu,stack,layer\na,H100,nemo,80\n");
  EXPECT_NE(desk.strata("simulate --runs header.csv").code, 0);
  EXPECT_TRUE(has(desk.strata("simulate --runs header.csv").err, "did you mean \"layers\"")) << text;
  EXPECT_NE(desk.strata("simulate --runs nowhere.csv").code, 0);
  desk.refused("simulate");
}

// On one device a step takes as long as explain expects, and the same on two that need not talk; with slower links more.
void simulation(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  const std::string on = "simulate run.toml --json --cluster h100-sxm ";
  const json one = desk.object(on);
  const json explained = desk.object("explain run.toml --json --cluster h100-sxm");
  EXPECT_EQ(one["step_time_s"], explained["expected"]["step_seconds"]);
  EXPECT_EQ(one["ranks"][0]["memory_bytes"], explained["arena_bytes"]);
  EXPECT_EQ(one["bubble"], 0);
  EXPECT_TRUE(one["exposed"].empty());
  EXPECT_LT(one["step_time_low_s"].get<double>(), one["step_time_s"].get<double>());
  EXPECT_GT(one["step_time_high_s"].get<double>(), one["step_time_s"].get<double>());
  EXPECT_GT(one["mfu"]["model, full attention"].get<double>(),
            one["mfu"]["model, causal attention"].get<double>());
  // Without --ranks, as many as the degrees make.
  const std::string four = on + "--set parallel.pipeline=2 --set parallel.replicate=2 ";
  const json spread = desk.object(four);
  const json slow = desk.object(four + "--set cluster.link.nvlink.startup=0.01");
  EXPECT_EQ(spread["ranks"].size(), 2u);
  EXPECT_EQ(spread["ranks"][1]["rank"], 2);
  EXPECT_GT(slow["step_time_s"].get<double>(), spread["step_time_s"].get<double>() + 0.02);
  EXPECT_GT(slow["exposed"]["pipeline"].get<double>(), spread["exposed"]["pipeline"].get<double>());
  // The path leads without gaps from the start to the end.
  double at = 0;
  for (const json& link : slow["critical_path"]) {
    EXPECT_NEAR(link["begin_s"].get<double>(), at, 1e-3);
    at = link["end_s"].get<double>();
  }
  EXPECT_NEAR(at, slow["step_time_s"].get<double>(), 1e-3);
  const std::string text = desk.strata("simulate run.toml --cluster h100-sxm").out;
  EXPECT_TRUE(has(text, "NVIDIA H100 SXM 80 GB") && has(text, "% by model, causal")) << text;
  EXPECT_TRUE(has(desk.strata("simulate run.toml").out, "threads")) << "this machine";
  desk.refused("simulate run.toml --runs x.csv");
  desk.refused("simulate --runs x.csv --cluster h100-sxm");
}

void timeline(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  desk.strata("simulate run.toml --cluster h100-sxm --trace step.json");
  const json trace = json::parse(desk.read("step.json"));
  int64_t updates = 0;
  for (const json& event : trace.at("traceEvents")) updates += event.value("name", "") == "adamw" ? 1 : 0;
  EXPECT_GT(updates, 0);
}

void page(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  const std::string words =
      "simulate run.toml --cluster h100-sxm --set parallel.pipeline=2 --set parallel.replicate=2 --html p.html";
  const json all = desk.object(words + " --json");
  const std::string html = desk.read("p.html");
  for (const char* part :
       {"Ranks on the hosts", "Where a step", "Memory of a rank", "Timeline", "Cost of",
        "Assumptions: Hosts of 8 H100", "model, full attention", "rank 3: pipeline 1, replicate 1"})
    EXPECT_TRUE(has(html, part)) << part;
  EXPECT_TRUE(has(html, std::to_string(static_cast<int64_t>(number(all["step_time_s"]) * 1e3)) + "."));
  EXPECT_TRUE(has(desk.refused(words), "p.html"));
  EXPECT_EQ(desk.strata(words + " --force").code, 0);
  // This machine has no price.
  EXPECT_EQ(desk.strata("simulate run.toml --html here.html").code, 0);
  EXPECT_FALSE(has(desk.read("here.html"), "Cost of"));
  EXPECT_TRUE(has(desk.refused("simulate --runs x.csv --html q.html"), "--html"));
}

// A run whose steps take another time than expected: the calibrated machine expects that time.
void calibration(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  ASSERT_EQ(desk.strata("train run.toml --set training.steps=12 --set profile.steps=[9]").code, 0);
  std::string slow;
  for (json line : desk.lines("run/metrics.jsonl")) {
    if (line.contains("step_ms")) line["step_ms"] = 40.0;
    slow += line.dump() + "\n";
  }
  desk.put("run/metrics.jsonl", slow);
  const json found = desk.object("simulate --calibrate run --output here.json --json");
  EXPECT_EQ(found["runs"][0]["measured_s"], 0.04);
  EXPECT_EQ(found["runs"][0]["traced_steps"], 1);
  EXPECT_LT(number(found["runs"][0]["predicted_before_s"]), 0.03) << "a tiny model";
  EXPECT_NEAR(number(found["runs"][0]["predicted_after_s"]) / 0.04, 1, 0.1);
  for (const char* factor : {"compute", "memory", "exchange", "linear"})
    EXPECT_TRUE(found["factors"].contains(factor)) << factor;
  EXPECT_NEAR(number(found["factors"]["exchange"]), 1, 1e-6) << "one rank does not show exchanges";
  const json again = desk.object("simulate run.toml --cluster here.json --json");
  EXPECT_NEAR(number(again["step_time_s"]) / number(found["runs"][0]["predicted_after_s"]), 1, 1e-6);
  EXPECT_NEAR(number(desk.object("explain run.toml --cluster here.json --json")["expected"]["step_seconds"]) /
                  number(again["step_time_s"]),
              1, 1e-9);
  EXPECT_TRUE(has(desk.refused("simulate --calibrate run --output here.json"), "here.json"));
  EXPECT_EQ(desk.strata("simulate --calibrate run --output here.json --force").code, 0);
  // On a described cluster: a cluster file, which no figure exceeds the peak in.
  EXPECT_EQ(desk.strata("simulate --calibrate run --cluster h100-sxm --output h100.toml").code, 0);
  EXPECT_TRUE(has(desk.read("h100.toml"), "--calibrate run"));
  EXPECT_GT(number(desk.object("simulate run.toml --cluster h100.toml --json")["step_time_s"]),
            number(desk.object("simulate run.toml --cluster h100-sxm --json")["step_time_s"]));
  EXPECT_TRUE(has(desk.refused("simulate --calibrate run"), "--output"));
  EXPECT_TRUE(has(desk.refused("simulate run.toml --output x.json"), "--calibrate"));
  EXPECT_TRUE(has(desk.refused("simulate --calibrate nowhere --output x.json"), "nowhere"));
  EXPECT_TRUE(has(desk.refused("simulate --calibrate run --output x.toml"), ".json"));
  EXPECT_TRUE(
      has(desk.refused("simulate run.toml --cluster here.json --set chip.memory=1GB"), "chip.memory"));
  desk.put("run/metrics.jsonl", slow.substr(0, slow.find("\"step\":2")));
  EXPECT_EQ(desk.strata("simulate --calibrate run --output few.json").code, 3);
}

}  // namespace

Contracts simulate_options() {
  return {{"simulate --runs", runs},          {"simulate --json", runs},
          {"simulate RUN.toml", simulation},  {"simulate --set", simulation},
          {"simulate --cluster", simulation}, {"simulate --ranks", simulation},
          {"simulate --trace", timeline},     {"simulate --html", page},
          {"simulate --force", page},         {"simulate --calibrate", calibration},
          {"simulate --output", calibration}};
}

}  // namespace strata::contracts
