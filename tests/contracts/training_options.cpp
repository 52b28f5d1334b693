// Contracts of the options of init, train, explain, config, presets, bench, doctor, man and completions.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "base/version.h"
#include "cli/describe.h"
#include "contracts/contract.h"
#include "contracts/options.h"
#include "fixtures/environment.h"

namespace strata::contracts {
namespace {

json shown(const Desk& desk, const std::string& file) {
  return desk.object("config show " + file + " --json");
}

void version(const std::string&) {
  const Desk desk;
  EXPECT_EQ(desk.strata("--version").out, std::string(program_version()) + "\n");
  EXPECT_TRUE(
      has(read_file(Path(STRATA_SOURCE) / "CMakeLists.txt"), "VERSION " + std::string(program_version())));
}

void version_as_json(const std::string&) {
  const Desk desk;
  EXPECT_EQ(desk.object("--version --json")["version"], std::string(program_version()));
  // A limit of the instruction sets shows.
  const fixtures::Environment limit("STRATA_MAX_CPU_ISA", "baseline");
  const json sets = desk.object("--version --json")["instruction_sets"];
  EXPECT_FALSE(std::find(sets["used"].begin(), sets["used"].end(), "avx2") != sets["used"].end());
  desk.refused("--json");
}

void init(const std::string&) {
  const Desk desk;
  desk.put("own.txt", "a text");
  ASSERT_EQ(desk.strata("init gpt2-124m --data own.txt").code, 0);
  EXPECT_EQ(shown(desk, "RUN.toml")["model.preset"]["value"], "gpt2-124m");
  EXPECT_EQ(shown(desk, "RUN.toml")["data.train"]["value"], json::array({"own.txt"}));
  const std::string before = desk.read("RUN.toml");
  EXPECT_TRUE(has(desk.refused("init llama3-5m"), "--force"));
  EXPECT_EQ(desk.read("RUN.toml"), before);
  ASSERT_EQ(desk.strata("init llama3-5m --force").code, 0);
  EXPECT_EQ(shown(desk, "RUN.toml")["model.preset"]["value"], "llama3-5m");
  ASSERT_EQ(desk.strata("init llama3-5m -o other.toml").code, 0);
  EXPECT_EQ(desk.read("other.toml").substr(300), desk.read("RUN.toml").substr(298))
      << "except the file's name";
  EXPECT_TRUE(has(desk.refused("init --force --data nowhere"), "nowhere"));
  EXPECT_TRUE(has(desk.refused("init llama3-5n -o third.toml"), "llama3-5m"));
  EXPECT_FALSE(desk.exists("third.toml"));
}

void train_inputs(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  EXPECT_EQ(desk.object("train run.toml --json")["folder"], "run");
  EXPECT_TRUE(desk.exists("run/final/model.safetensors"));
  // Given only texts, the program chooses a small model.
  const json of_text = desk.object(
      "train corpus.txt --json --set model.override.num_hidden_layers=1 --set model.override.vocab_size=280 "
      "--set training.steps=1 --set training.global_batch_size=1 --set training.sequence_length=16 "
      "--set eval.sample_tokens=0 --set tokenizer.path=\"tokenizer.json\"");
  EXPECT_EQ(of_text["folder"], "runs/corpus");
  EXPECT_TRUE(desk.exists("runs/corpus/final/model.safetensors"));
  EXPECT_TRUE(has(desk.refused("train run.toml other.toml"), "one configuration"));
  desk.refused("train");
}

void train_set(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  EXPECT_EQ(desk.object("train run.toml --json --set training.steps=3 --set run.folder=\"three\"")["step"],
            3);
  EXPECT_TRUE(desk.exists("three/final"));
  EXPECT_TRUE(has(desk.refused("train run.toml --set training.stepz=3"), "steps"));
  desk.refused("train run.toml --set training.steps");
}

void resume(const std::string&) {
  const Desk desk;
  desk.train();
  EXPECT_TRUE(has(desk.refused("train run.toml --resume never"), "holds a run"));
  const std::string metrics = desk.read("run/metrics.jsonl");
  EXPECT_EQ(desk.object("train run.toml --resume auto --json")["step"], 2);
  EXPECT_EQ(desk.read("run/metrics.jsonl"), metrics) << "the run had finished";
  // From a given checkpoint only the second step is repeated, with bitwise equal results.
  const json again =
      desk.object("train run.toml --json --resume run/checkpoints/step-00000001 --set run.folder=\"again\"");
  EXPECT_EQ(again["step"], 2);
  int steps = 0;
  for (const json& line : desk.lines("again/metrics.jsonl")) steps += line.contains("event") ? 0 : 1;
  EXPECT_EQ(steps, 1);
  EXPECT_TRUE(same(tensors_in(desk.path("again/checkpoints/step-00000002")),
                   tensors_in(desk.path("run/checkpoints/step-00000002"))));
  desk.refused("train run.toml --resume nowhere --set run.folder=\"x\"");
}

void accept_changes(const std::string&) {
  const Desk desk;
  desk.train();
  const std::string change = "train run.toml --json --set training.steps=3 --set optimizer.lr=0.5";
  EXPECT_TRUE(has(desk.refused(change), "--accept-changes"));
  EXPECT_EQ(desk.object(change + " --accept-changes")["step"], 3);
  EXPECT_TRUE(has(desk.read("run/run.toml"), "lr = 0.5"));
  EXPECT_TRUE(
      has(desk.refused("train run.toml --accept-changes --set model.hidden_size=64"), "model.hidden_size"));
}

void dry_run(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  const json end = desk.object("train run.toml --dry-run --json");
  EXPECT_EQ(end["end"], "dry_run");
  EXPECT_FALSE(desk.exists("run/run.toml") || desk.exists("run/checkpoints") ||
               desk.exists("run/metrics.jsonl"));
  EXPECT_EQ(end["fingerprint"], desk.object("explain run.toml --json")["fingerprint"]);
  EXPECT_TRUE(has(desk.refused("train run.toml --dry-run --resume nowhere"), "nowhere"));
  desk.refused("train run.toml --dry-run --set data.train=\"nowhere.txt\"");
}

void ranks(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  // The number of ranks does not change the training.
  const std::string two = "train run.toml --ranks 2 --set run.folder=two --json";
  EXPECT_NEAR(desk.object(two)["loss"].get<double>(),
              desk.object("train run.toml --set run.folder=one --json")["loss"].get<double>(), 1e-5);
  desk.refused("train run.toml --ranks 1025");
  desk.refused("train run.toml --ranks 0");
  EXPECT_EQ(desk.object("train run.toml --ranks 1 --json")["step"], 2);
}

// Compares memory and traffic of a rank with the formulas of ZeRO (Rajbhandari et al. 2020) in fp32.
void explained_ranks(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  const auto of = [&](int64_t ranks, int zero) {
    const json out =
        desk.object("explain run.toml --set precision.compute=fp32 --ranks " + std::to_string(ranks) +
                    " --set parallel.zero=" + std::to_string(zero) + " --json");
    return ranks > 1 ? out["ranks"] : out;
  };
  const json plain = of(4, 0);
  const auto held = [](const json& ranks, const char* what) { return ranks["holds"][what].get<double>(); };
  const auto sent = [](const json& ranks) { return ranks["sends"][0]["bytes"].get<double>(); };
  const double weights = held(plain, "weights");
  EXPECT_EQ(plain["count"], 4);
  EXPECT_EQ(plain["mesh"]["shard"], 4);
  EXPECT_NEAR(held(plain, "gradients"), weights, 0.01 * weights);
  EXPECT_NEAR(held(plain, "optimizer states"), 2 * weights, 0.01 * weights);
  EXPECT_NEAR(sent(plain), 2 * 0.75 * weights, 0.02 * weights);
  for (const int zero : {1, 2, 3}) {
    const json sharded = of(4, zero);
    EXPECT_NEAR(held(sharded, "optimizer states"), 0.5 * weights, 0.02 * weights);
    EXPECT_NEAR(held(sharded, "weights"), 0.25 * weights, 0.02 * weights);
    EXPECT_NEAR(held(sharded, "gradients"), (zero == 1 ? 1 : 0.25) * weights, 0.02 * weights);
    EXPECT_NEAR(held(sharded, "weights for kernels"), zero == 3 ? 0 : weights, 0.02 * weights);
  }
  EXPECT_FALSE(of(1, 0).contains("ranks"));
  desk.refused("explain run.toml --ranks 0");
}

// One rank of a pipeline has some of the layers; `--rank all` shows all stages.
void explained_rank(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  const std::string command =
      "explain run.toml --set precision.compute=fp32 --ranks 2 --set parallel.pipeline=2 --json --rank ";
  const auto held = [](const json& one) { return one["holds"]["weights"].get<double>(); };
  const json first = desk.object(command + "0")["ranks"], last = desk.object(command + "1")["ranks"];
  EXPECT_EQ(first["coordinates"]["pipeline"], 0);
  EXPECT_EQ(last["coordinates"]["pipeline"], 1);
  EXPECT_NE(first["parts"], last["parts"]);
  const json all = desk.object(command + "all");
  ASSERT_EQ(all["stages"].size(), 2U);
  EXPECT_EQ(held(all["stages"][0]), held(first));
  EXPECT_EQ(held(all["stages"][1]), held(last));
  desk.refused(command + "2");
}

void train_json(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  const json end = desk.object("train run.toml --json");
  const auto lines = desk.lines("run/metrics.jsonl");
  for (const json& line : lines) {
    if (line.contains("event") || line["step"] != 2) continue;
    EXPECT_EQ(end["loss"], line["loss"]);
  }
  EXPECT_EQ(end["end"], "finished");
  EXPECT_EQ(end["step"], 2);
  EXPECT_EQ(desk.strata("train run.toml --set run.folder=\"quiet\"").out, "");
}

// Parameters of layers of width 32 with a tied head.
void explain(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  const auto parameters = [](int64_t layers) {
    return 300 * 32 + 32 + layers * (2 * 32 + 64 * 32 + 32 * 32 + 3 * 32 * 48);
  };
  for (const int64_t layers : {2, 3}) {
    const json plan =
        desk.object("explain run.toml --json --set model.num_hidden_layers=" + std::to_string(layers));
    int64_t weights = 0;
    for (const json& value : plan["persistent"]) {
      if (value["role"] != "parameter") continue;
      int64_t elements = 1;
      for (const json& size : value["shape"]) elements *= size.get<int64_t>();
      weights += elements;
    }
    EXPECT_EQ(weights, parameters(layers));
    EXPECT_EQ(plan["programs"].size(), 4u);
    EXPECT_TRUE(plan["fits"]);
  }
  EXPECT_FALSE(desk.exists("run"));
  const std::string text = desk.strata("explain run.toml").out;
  EXPECT_TRUE(has(text, "2 layers of width 32") && has(text, "arena") && text[0] != '{');
  EXPECT_TRUE(has(desk.strata("explain corpus.txt").out, "llama3-5m"));
  desk.refused("explain nowhere.toml");
}

void schedule(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  const json order = desk.object("explain run.toml --schedule --json --set training.global_batch_size=6");
  EXPECT_EQ(order["microbatches"], 3);
  EXPECT_EQ(order["ranks"],
            parse_json<json>(R"([[["F",0,0],["B",0,0],["F",1,0],["B",1,0],["F",2,0],["B",2,0]]])"));
  EXPECT_FALSE(has(desk.strata("explain run.toml --schedule").out, "arena"));
}

void schedule_picture(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  desk.strata("explain run.toml --schedule --svg order.svg");
  EXPECT_TRUE(desk.exists("order.svg"));
  EXPECT_TRUE(has(desk.refused("explain run.toml --svg x.svg"), "add --schedule"));
  EXPECT_FALSE(desk.exists("x.svg"));
}

// Devices that are not here: nine tenths of their memory, and more bandwidth makes a shorter step.
void explained_cluster(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  const std::string at =
      "explain run.toml --json --ranks 16 --set training.micro_batch_size=1 --set memory.budget=auto --set parallel.shard=16 --set parallel.zero=3 ";
  const std::string more = "--set training.global_batch_size=16 --cluster h100-sxm";
  const json h100 = desk.object(at + more);
  EXPECT_EQ(h100["memory_budget"], 72'000'000'000);
  const auto seconds = [](const json& plan) { return plan["expected"]["step_seconds"].get<double>(); };
  const json slow =
      desk.object(at + "--set cluster.link.infiniband.startup=0.05 --set chip.memory=40e9 " + more);
  EXPECT_EQ(slow["memory_budget"], 36'000'000'000);
  EXPECT_GT(seconds(slow), seconds(h100) + 0.1);
  EXPECT_TRUE(has(desk.strata("explain run.toml --cluster h100-sxm").out, "NVIDIA H100 SXM 80 GB"));
  EXPECT_TRUE(has(desk.refused("explain run.toml --cluster h1000-sxm"), "did you mean \"h100-sxm\""));
  EXPECT_TRUE(has(desk.refused("explain run.toml --set cluster.pue=1"), "add --cluster"));
}

// Instructions are printed only on request.
void program(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  const std::string plain = desk.strata("explain run.toml").out;
  const std::string all = desk.strata("explain run.toml --program").out;
  EXPECT_TRUE(has(plain, "tokens/s") && !has(plain, "rms_norm_grad"));
  EXPECT_TRUE(has(all, "tokens/s") && has(all, "rms_norm_grad"));
}

void config_show(const std::string&) {
  const Desk desk;
  desk.train();
  const json keys = desk.object("config show run.toml --json --set optimizer.lr=0.25");
  EXPECT_EQ(keys["optimizer.lr"]["value"], 0.25);
  EXPECT_EQ(keys["optimizer.lr"]["origin"], "--set optimizer.lr");
  EXPECT_EQ(keys["training.steps"]["value"], 2);
  const std::string file = desk.read("run.toml");
  const auto line =
      std::count(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(file.find("steps")), '\n') + 1;
  EXPECT_EQ(keys["training.steps"]["origin"], "run.toml:" + std::to_string(line));
  // For a run's folder: the values that the run chose.
  EXPECT_EQ(shown(desk, "run")["schedule.steps"]["value"], 2);
  EXPECT_EQ(shown(desk, "run.toml")["schedule.steps"]["value"], "training");
  EXPECT_TRUE(has(desk.strata("config show run.toml --set optimizer.lr=0.25").out, "optimizer.lr = 0.25"));
  desk.refused("config show nowhere.toml");
}

void config_diff(const std::string&) {
  const Desk desk;
  desk.write_run();
  desk.put(
      "other.toml",
      "include = [\"run.toml\"]\n[optimizer]\nlr = 0.02\n[log]\ninterval_steps = 3\n[run]\nname = \"run\"\n");
  const json changes = desk.object("config diff run.toml other.toml --json")["changes"];
  ASSERT_EQ(changes.size(), 2u) << changes;
  EXPECT_EQ(changes[0], parse_json<json>(
                            R"({"key": "optimizer.lr", "before": 0.01, "after": 0.02, "resume": "accept"})"));
  EXPECT_EQ(changes[1]["key"], "log.interval_steps");
  EXPECT_EQ(changes[1]["resume"], "free");
  EXPECT_EQ(desk.object("config diff other.toml run.toml --json")["changes"][0]["after"], 0.01);
  EXPECT_TRUE(has(desk.strata("config diff run.toml other.toml").out, "0.01 → 0.02"));
  EXPECT_EQ(desk.strata("config diff run.toml run.toml").out, "no key differs\n");
}

// Numbers of parameters agree with the sizes in the list.
void presets(const std::string&) {
  const Desk desk;
  const json all = desk.object("presets --json")["presets"];
  EXPECT_GT(all.size(), 50u);
  const json one = desk.object("presets llama3-5m --json")["presets"];
  ASSERT_EQ(one.size(), 1u);
  const json& c = one[0]["config"];
  const auto size = [&](const char* name) { return c[name].get<int64_t>(); };
  const int64_t width = size("hidden_size"), keys = size("num_key_value_heads") * size("head_dim");
  EXPECT_EQ(one[0]["parameters"],
            size("vocab_size") * width + width +
                size("num_hidden_layers") * (2 * width + 2 * width * width + 2 * width * keys +
                                             3 * width * size("intermediate_size")));
  const auto relatives = std::count_if(all.begin(), all.end(), [](const json& preset) {
    return preset["name"].get<std::string>().starts_with("qwen3");
  });
  EXPECT_GT(relatives, 8);  // with experts, and hybrids
  EXPECT_EQ(desk.object("presets qwen3 --json")["presets"].size(), static_cast<size_t>(relatives));
  const std::string text = desk.strata("presets llama3-5m").out;
  EXPECT_TRUE(has(text, "4.20M") && !has(text, "llama3-29m"));
  EXPECT_TRUE(has(desk.refused("presets llama3-5n"), "llama3-5m"));
}

void bench(const std::string&) {
  const Desk desk;
  const json names = desk.object("bench --list --json")["benchmarks"];
  const std::string list = desk.strata("bench --list").out;
  for (const json& one : names) EXPECT_TRUE(has(list, one["name"].get<std::string>()));
  EXPECT_TRUE(has(desk.refused("bench nothing"), names[0]["name"].get<std::string>()));
  EXPECT_TRUE(has(desk.refused("bench peak --set training.steps=2"), "--set"));
}

// Runs only the named benchmark, with the given model, whose checkpoint has three numbers per parameter. The
// benchmark starts the program again, so it cannot run in this process.
void bench_sets(const std::string&) {
  const Desk desk;
  for (const int64_t layers : {1, 2}) {
    std::string command = "cd '" + desk.path("").string() + "' && '" STRATA_PROGRAM "' bench eval --json";
    for (const std::string& set :
         {std::string("model.family='llama3'"), std::string("model.vocab_size=300"),
          std::string("model.hidden_size=32"), std::string("model.intermediate_size=48"),
          "model.num_hidden_layers=" + std::to_string(layers), std::string("model.num_attention_heads=4"),
          std::string("model.num_key_value_heads=2"), std::string("model.max_position_embeddings=64"),
          std::string("training.sequence_length=16"), std::string("training.global_batch_size=8"),
          std::string("training.steps=2"), std::string("precision.compute='fp32'")})
      command += " --set \"" + set + "\"";
    ASSERT_EQ(std::system((command + " >out 2>err").c_str()), 0) << desk.read("err");
    const json found = parse_json<json>(desk.read("out"));
    EXPECT_EQ(found.size(), 1u);
    const double parameters =
        300 * 32 + 32 + static_cast<double>(layers) * (2 * 32 + 64 * 32 + 32 * 32 + 3 * 32 * 48);
    EXPECT_NEAR(found["eval"]["checkpoint_bytes"].get<double>(), 12 * parameters, 12000);
  }
}

void doctor(const std::string&) {
  const Desk desk;
  // Ignores earlier measurements.
  const fixtures::Environment cache("XDG_CACHE_HOME", desk.path("cache"));
  const json quick = desk.object("doctor --quick --json");
  const std::string text = desk.strata("doctor --quick").out;
  EXPECT_TRUE(has(text, "not measured"));
  EXPECT_EQ(quick["version"], std::string(program_version()));
  EXPECT_TRUE(has(text, quick["device"]["name"].get<std::string>()));
  EXPECT_FALSE(desk.exists("cache")) << "nothing was measured or stored";
}

// Its checks are in tests/self_test and, with a GPU, in tests/gpu/self_test_test.cpp; without one it names the missing part.
void doctor_self_test(const std::string&) {
  const Desk desk;
  if (desk.object("doctor --quick --json")["gpu"].is_null()) {
    const auto refused = desk.strata("doctor --self-test --minutes 0");
    EXPECT_EQ(refused.code, 4);
    EXPECT_TRUE(has(refused.err, "device.kind"));
  }
  desk.refused("doctor --self-test --quick");
}

void doctor_minutes(const std::string&) {
  const Desk desk;
  desk.refused("doctor --minutes 1");
  desk.refused("doctor --self-test --minutes -1");
}

void doctor_report(const std::string& option) {
  const Desk desk;
  desk.refused("doctor " + option + " there");
  desk.put("there", "mine");
  EXPECT_TRUE(has(desk.refused("doctor --self-test --report there"), "there"));
  EXPECT_EQ(read_file(desk.path("there")), "mine");
}

void doctor_force(const std::string&) {
  const Desk desk;
  desk.put("there", "mine");
  desk.refused("doctor --force");
  // Without a GPU the file stays unchanged.
  if (desk.object("doctor --quick --json")["gpu"].is_null()) {
    EXPECT_EQ(desk.strata("doctor --self-test --report there --force").code, 4);
    EXPECT_EQ(read_file(desk.path("there")), "mine");
  }
}

// Counts a run's own numbers: a second process sees them in the run's files.
void doctor_run(const std::string&) {
  const Desk desk;
  desk.train();
  const json done = desk.object("doctor run --json");
  EXPECT_EQ(done["state"], "finished");
  EXPECT_EQ(done["step"], 2);
  double productive = 0, first = 0, last = 0;
  for (const json& line : desk.lines("run/metrics.jsonl")) {
    if (line.contains("step_ms")) productive += line["step_ms"].get<double>() / 1e3;
    last = line["time"];
    if (first == 0) first = last;
  }
  EXPECT_NEAR(done["goodput"].get<double>(), productive / (last - first), 1e-9);
  EXPECT_EQ(done["ettr"], done["goodput"]);
  EXPECT_TRUE(has(desk.strata("doctor run").out, "finished, step 2 of 2"));
  // Without its last lines the run looks like one that was killed in step 2, and whose step 1 is saved.
  const std::string metrics = desk.read("run/metrics.jsonl");
  desk.put("run/metrics.jsonl", metrics.substr(0, metrics.find("{\"step\":2") + 40));
  const json killed = desk.object("doctor run --json");
  EXPECT_EQ(killed["state"], "failed");
  EXPECT_EQ(killed["step"], 1);
  ASSERT_FALSE(killed["findings"].empty());
  EXPECT_EQ(killed["findings"][0]["name"], "failed");
  EXPECT_TRUE(killed["findings"][0]["try"].is_array());
  std::filesystem::create_directories(desk.path("runs"));
  std::filesystem::rename(desk.path("run"), desk.path("runs/mine"));
  EXPECT_EQ(desk.object("doctor mine --json")["state"], "failed");
  desk.refused("doctor run");
  desk.refused("doctor mine --quick");
}

// Every verb has a man page that lists its options. Completions contain verbs and options.
void man(const std::string&) {
  const Desk desk;
  ASSERT_EQ(desk.strata("man share").code, 0);
  for (const cli::VerbText& verb : cli::describe_commands()) {
    if (verb.path.empty()) continue;
    const std::string page =
        desk.read("share/man/man1/strata-" + verb.path.substr(0, verb.path.find(' ')) + ".1");
    for (const cli::OptionText& option : verb.options) {
      std::string name;
      for (const char c : option.names.back()) name += c == '-' ? "\\-" : std::string(1, c);
      EXPECT_TRUE(has(page, name)) << verb.path << " " << option.names.back();
    }
  }
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string text = desk.strata(std::string("completions ") + shell).out;
    EXPECT_TRUE(has(text, "repetition-penalty") && has(text, "checkpoint")) << shell;
  }
  EXPECT_EQ(desk.strata("completions bash").out, desk.read("share/bash-completion/completions/strata"));
  EXPECT_EQ(desk.strata("completions zsh").out, desk.read("share/zsh/site-functions/_strata"));
  EXPECT_EQ(desk.strata("completions fish").out, desk.read("share/fish/vendor_completions.d/strata.fish"));
  desk.refused("completions tcsh");
}

}  // namespace

Contracts training_options() {
  return {{"--version", version},
          {"--json", version_as_json},
          {"init PRESET", init},
          {"init --data", init},
          {"init --output", init},
          {"init --force", init},
          {"train RUN.toml", train_inputs},
          {"train --set", train_set},
          {"train --resume", resume},
          {"train --ranks", ranks},
          {"train --accept-changes", accept_changes},
          {"train --dry-run", dry_run},
          {"train --json", train_json},
          {"explain RUN.toml", explain},
          {"explain --set", explain},
          {"explain --schedule", schedule},
          {"explain --program", program},
          {"explain --ranks", explained_ranks},
          {"explain --rank", explained_rank},
          {"explain --svg", schedule_picture},
          {"explain --cluster", explained_cluster},
          {"explain --json", explain},
          {"config show FILE", config_show},
          {"config show --set", config_show},
          {"config show --json", config_show},
          {"config diff FIRST", config_diff},
          {"config diff SECOND", config_diff},
          {"config diff --json", config_diff},
          {"presets NAME", presets},
          {"presets --json", presets},
          {"bench NAME", bench_sets},
          {"bench --list", bench},
          {"bench --set", bench_sets},
          {"bench --json", bench_sets},
          {"doctor RUN", doctor_run},
          {"doctor --quick", doctor},
          {"doctor --self-test", doctor_self_test},
          {"doctor --minutes", doctor_minutes},
          {"doctor --report", [](const std::string&) { doctor_report("--report"); }},
          {"doctor --expected", [](const std::string&) { doctor_report("--expected"); }},
          {"doctor --force", doctor_force},
          {"doctor --json", doctor},
          {"man FOLDER", man},
          {"completions SHELL", man}};
}

}  // namespace strata::contracts
