// Contracts of [run], [log], [profile], [debug], [device], [memory] and [precision].
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/json.h"
#include "base/parallel.h"
#include "base/pin.h"
#include "config/run_config.h"
#include "contracts/contract.h"
#include "contracts/lab.h"

namespace strata::contracts {
namespace {

void name(const std::string&) {
  Lab lab;
  const Seen run = lab.run({"run.name=\"a-name\""});
  for (const char* file : {"index.html", "loss.svg"})
    EXPECT_TRUE(has(read_file(run.folder / file), "a-name")) << file;
  EXPECT_TRUE(has(lab.refusal({"run.name=\"a/b\""}), "run.name"));
  // The default is the name of the file; it determines the default folder.
  lab.put("second.toml", lab.toml());
  const json shown =
      strata(lab.path("x"), {"config", "show", lab.path("second.toml").string(), "--json"}).parsed();
  EXPECT_EQ(shown["run.name"]["value"], "second");
  EXPECT_EQ(shown["run.folder"]["value"], "runs/second");
}

void folder(const std::string&) {
  Lab lab;
  const Path folder = lab.path("else/where");
  lab.run({"run.folder=\"" + folder.string() + "\""});
  for (const char* file : {"run.toml", "metrics.jsonl", "loss.svg", "index.html", "checkpoints/latest",
                           "final/model.safetensors"})
    EXPECT_TRUE(std::filesystem::exists(folder / file)) << file;
}

// Relative paths in a run's run.toml are resolved against started_in, not the current directory.
void started_in(const std::string&) {
  Lab lab;
  std::filesystem::create_directories(lab.path("project"));
  lab.put("project/train.bin", read_file(lab.path("train.bin")));
  lab.put("project/train.json", read_file(lab.path("train.json")));
  const Sets sets{"data.train=[\"train.bin\"]", "run.folder=\"" + lab.path("a-run").string() + "\""};
  EXPECT_TRUE(has(lab.refusal(sets), "train.bin"));
  lab.put("here.toml", "[run]\nstarted_in = \"" + lab.path("project").string() + "\"\nfolder = \"runs/x\"\n" +
                           "[model]\npreset = \"llama3-5m\"\n[data]\ntrain = [\"train.bin\"]\n");
  const json shown =
      strata(lab.path("x"), {"config", "show", lab.path("here.toml").string(), "--json"}).parsed();
  EXPECT_EQ(shown["data.train"]["value"][0], lab.path("project/train.bin").string());
  EXPECT_EQ(shown["run.folder"]["value"], lab.path("project/runs/x").string());
  // A run records the directory in which it was started.
  EXPECT_TRUE(has(lab.run().run_toml(), "started_in = \"" + std::filesystem::current_path().string() + "\""));
}

// Values that the program chose do not count as the user's requests when a run resumes from its folder.
void chosen(const std::string&) {
  Lab lab;
  const auto run = lab.run();
  EXPECT_TRUE(has(run.run_toml(), "memory.recompute=")) << run.run_toml();
  EXPECT_EQ(config::read_stored_config(run.folder)->memory.recompute.is_word(), false);
  EXPECT_TRUE(config::read_asked_config(run.folder)->memory.recompute.is_word());
  const std::string given[] = {"memory.recompute=full"};
  EXPECT_FALSE(config::read_asked_config(run.folder, given)->memory.recompute.is_word());
}

void seed(const std::string&) {
  Lab lab;
  const Seen one = lab.run({"run.seed=5"}), again = lab.run({"run.seed=5"}), other = lab.run({"run.seed=6"});
  EXPECT_TRUE(same(one.weights(2), again.weights(2)));
  EXPECT_EQ(one.values("loss"), again.values("loss"));
  // Different initial weights and a different order of the data.
  const auto start = lab.run(kStill + Sets{"run.seed=5"}).weights(1);
  EXPECT_GT(distance(lab.run(kStill + Sets{"run.seed=6"}).weights(1).at("model.embed_tokens.weight").values,
                     start.at("model.embed_tokens.weight").values),
            0.5);
  EXPECT_NE(one.values("loss"), other.values("loss"));
}

void max_time(const std::string&) {
  Lab lab;
  const Seen run =
      lab.run({"run.max_time=\"0.000001s\"", "training.steps=50", "checkpoint.interval=\"50 steps\""});
  EXPECT_EQ(run.result.end, training::RunEnd::kTimeLimit);
  EXPECT_EQ(std::ssize(run.steps), 1);
  EXPECT_EQ(run.checkpoints(), std::vector<int64_t>{1});
  EXPECT_EQ(run.event("time_limit").at("at_step"), 1);
  EXPECT_EQ(lab.run({"run.max_time=\"1h\""}).result.end, training::RunEnd::kFinished);
}

// The steps for which the terminal prints a line.
void interval_steps(const std::string&) {
  Lab lab;
  for (const int interval : {2, 3}) {
    testing::internal::CaptureStderr();
    lab.run({"log.interval_steps=" + std::to_string(interval), "training.steps=7"});
    const std::string printed = testing::internal::GetCapturedStderr();
    for (int step = 1; step <= 7; ++step) {
      const bool wanted = step == 1 || step == 7 || step % interval == 0;
      EXPECT_EQ(has(printed, "step " + std::to_string(step) + "/7 "), wanted) << step << "\n" << printed;
    }
  }
}

// The steps that have a line in layers.jsonl.
void layers(const std::string&) {
  Lab lab;
  const Seen run = lab.run({"log.layers=\"2 steps\"", "training.steps=5"});
  std::istringstream lines(read_file(run.folder / "layers.jsonl"));
  std::vector<int64_t> steps;
  for (std::string text; std::getline(lines, text);) {
    const json line = parse_json<json>(text);
    steps.push_back(line.at("step"));
    double largest = 0;
    for (const json& one : line.at("layers")) {
      if (!one.at("weight_rms").is_null()) largest = std::max(largest, one.at("weight_rms").get<double>());
    }
    EXPECT_GT(largest, 0);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{2, 4}));
  const Seen none = lab.run({"log.layers=\"never\"", "training.steps=2"});
  EXPECT_FALSE(std::filesystem::exists(none.folder / "layers.jsonl"));
  EXPECT_TRUE(has(lab.refusal({"log.layers=\"10min\""}), "log.layers"));
}

// The records in TensorFlow's event files: length, its checksum, bytes, their checksum. The first contains
// the version.
std::vector<std::string> event_records(const Path& folder) {
  std::vector<std::string> records;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string bytes = read_file(file.path());
    for (size_t at = 0; at + 12 <= bytes.size();) {
      uint64_t length = 0;
      std::memcpy(&length, bytes.data() + at, 8);
      records.push_back(bytes.substr(at + 12, length));
      at += 12 + length + 4;
    }
  }
  return records;
}
void tensorboard(const std::string&) {
  Lab lab;
  const Seen run = lab.run({"log.tensorboard=true", "training.steps=3"});
  const auto records = event_records(run.folder / "tensorboard");
  ASSERT_FALSE(records.empty());
  EXPECT_TRUE(has(records[0], "brain.Event:2"));
  // Each value in metrics.jsonl is in a record with its name.
  for (const char* tag : {"loss", "grad_norm", "lr", "param_norm", "step_ms", "memory_bytes"}) {
    ASSERT_FALSE(run.values(tag).empty()) << tag;
    for (const double value : run.values(tag)) {
      const auto number = static_cast<float>(value);
      const std::string bytes(reinterpret_cast<const char*>(&number), sizeof number);
      EXPECT_TRUE(std::any_of(records.begin(), records.end(), [&](const std::string& record) {
        return has(record, tag) && has(record, bytes);
      })) << tag;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(lab.run({"log.tensorboard=false"}).folder / "tensorboard"));
}

void profiled(const std::string&) {
  Lab lab;
  const Seen run = lab.run({"profile.steps=[2, [4, 5]]", "training.steps=6"});
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(run.folder / "traces"))
    files.push_back(entry.path().filename());
  std::sort(files.begin(), files.end());
  EXPECT_EQ(files,
            (std::vector<std::string>{"step-00000002.json", "step-00000004.json", "step-00000005.json"}));
  const json trace = parse_json<json>(read_file(run.folder / "traces/step-00000004.json"));
  int updates = 0;
  for (const json& event : trace.at("traceEvents")) updates += event.at("name") == "adamw" ? 1 : 0;
  EXPECT_GT(updates, 0);
}

// The fp64 reference kernels agree with the kernels but differ in rounding.
void reference_kernels(const std::string&) {
  Lab lab;
  const Sets sets{"training.steps=1"};
  const Seen usual = lab.run(sets), plain = lab.run(sets + Sets{"debug.reference_kernels=true"});
  EXPECT_NEAR(plain.values("loss").at(0), usual.values("loss").at(0), 1e-5);
  EXPECT_NEAR(plain.values("grad_norm").at(0), usual.values("grad_norm").at(0), 1e-4);
  EXPECT_FALSE(same(plain.states(1), usual.states(1)));
}

// Each entry acts at its step, once, and is an event. tests/train/injector_test.cpp has every kind.
void inject(const std::string&) {
  Lab lab;
  const Sets sets{"training.steps=4", "recovery.rules=\"none\""};
  const Seen clean = lab.run(sets), run = lab.run(sets + Sets{"debug.inject=[\"garbage@step=3\"]"});
  EXPECT_EQ(run.values("loss").at(1), clean.values("loss").at(1));
  EXPECT_NE(run.values("loss").at(2), clean.values("loss").at(2));
  EXPECT_EQ(run.event("injected").at("fault"), "garbage@step=3");
  EXPECT_EQ(run.event("injected").at("rank"), 0);
  EXPECT_EQ(run.event("injected").at("at_step"), 3);
  EXPECT_TRUE(std::filesystem::exists(run.folder / "injected" / "001.json"));
  EXPECT_FALSE(std::filesystem::exists(clean.folder / "injected"));
  EXPECT_TRUE(has(lab.refusal({"debug.inject=[\"garbadge@step=3\"]"}), "did you mean \"garbage\"?"));
}

void kind(const std::string&) {
  Lab lab;
  EXPECT_TRUE(
      same(lab.run({"device.kind=\"cpu\""}).weights(2), lab.run({"device.kind=\"auto\""}).weights(2)));
  // tests/gpu shows its results.
  EXPECT_TRUE(
      has(lab.refusal({"device.kind=\"cuda\"", "debug.reference_kernels=true"}), "expected one of them"));
}

void threads(const std::string&) {
  Lab lab;
  std::vector<Tensors> weights;
  for (const int wanted : {1, 2, 3}) {
    FaultyFileSystem quick;
    int found = 0;
    const auto config = lab.config({"device.threads=" + std::to_string(wanted)});
    training::train_on_threads({.config = config, .files = &quick}, 1, [&] {
      found = compute_threads();
      return false;
    });
    EXPECT_EQ(found, wanted);
    weights.push_back(tensors_in(Path(config.run.folder) / "final"));
  }
  EXPECT_TRUE(same(weights[0], weights[1]) && same(weights[0], weights[2])) << "work is split only by size";
}

// Each compute thread is bound to a core if the run has all cores and no other run uses them.
void pin(const std::string&) {
  const int all = available_processors();
  if (!pinning_helps(all, all, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))))
    GTEST_SKIP() << "not on this machine";
  Lab lab;
  // Another run may have bound its threads when this one starts and have ended when this one checks.
  const auto bound_in_run = [&](bool wanted) {
    FaultyFileSystem quick;
    bool bound = false;
    const auto config = lab.config(
        {"device.threads=" + std::to_string(all), std::string("device.pin=") + (wanted ? "true" : "false")});
    training::train_on_threads({.config = config, .files = &quick}, 1, [&] {
      on_each_thread([&](int thread) {
        if (thread == 1) bound = available_processors() == 1;
      });
      return true;
    });
    return bound;
  };
  EXPECT_FALSE(bound_in_run(false));
  bool bound = false;
  for (int attempt = 0; attempt < 20 && !bound; ++attempt) bound = bound_in_run(true);
  if (!bound && !PinnedThreads(true).pinned()) GTEST_SKIP() << "another run uses the cores";
  EXPECT_TRUE(bound);
  set_compute_threads(all);
}

// A run that does not fit is rejected; "auto" selects the least recomputation that fits.
void budget(const std::string&) {
  Lab lab;
  const Sets sets{"training.global_batch_size=8", "training.micro_batch_size=8",
                  "training.sequence_length=64"};
  const auto bytes = [&](const Sets& more) {
    return lab.run(sets + more).event("start").at("arena_bytes").get<int64_t>();
  };
  const int64_t none = bytes({"memory.recompute=\"none\""}), full = bytes({"memory.recompute=\"full\""});
  ASSERT_LT(full, none);
  const auto budget = [](int64_t size) { return "memory.budget=" + std::to_string(size); };
  EXPECT_EQ(bytes({budget(none), "memory.recompute=\"auto\""}), none);
  EXPECT_LE(bytes({budget(none - 1), "memory.recompute=\"auto\""}), none - 1);
  EXPECT_TRUE(has(lab.refusal(sets + Sets{budget(none - 1), "memory.recompute=\"none\""}), "memory"));
  EXPECT_TRUE(has(lab.refusal(sets + Sets{budget(full / 2)}), "memory"));
}

void recompute(const std::string&) {
  Lab lab;
  const Sets sets{"training.global_batch_size=8", "training.micro_batch_size=8",
                  "training.sequence_length=64"};
  std::vector<Tensors> weights;
  std::map<std::string, int64_t> bytes, instructions;
  for (const char* kind : {"none", "selective", "full"}) {
    const Seen run = lab.run(sets + Sets{std::string("memory.recompute=\"") + kind + "\""});
    weights.push_back(run.weights(2));
    bytes[kind] = run.event("start").at("arena_bytes");
  }
  EXPECT_TRUE(same(weights[0], weights[1]) && same(weights[0], weights[2]));
  EXPECT_LT(bytes["selective"], bytes["none"]);
  EXPECT_LT(bytes["full"], bytes["selective"]);
}

void offload(const std::string&) {
  Lab lab;
  EXPECT_TRUE(has(lab.refusal({"memory.offload=\"optimizer\""}), "not yet"));
  EXPECT_TRUE(same(lab.run({"memory.offload=\"auto\""}).weights(2), lab.run().weights(2)));
}

// Values between instructions have half the bits; the loss agrees to about three digits.
void compute(const std::string&) {
  Lab lab;
  // Enough rows that activations outweigh the scratch memory of matmuls, which depends on the processor.
  const Sets sets{"training.steps=1", "training.global_batch_size=64", "training.micro_batch_size=64"};
  const Seen fp32 = lab.run(sets + Sets{"precision.compute=\"fp32\""}),
             bf16 = lab.run(sets + Sets{"precision.compute=\"bf16\""});
  const double apart = std::abs(bf16.values("loss").at(0) - fp32.values("loss").at(0));
  EXPECT_GT(apart, 1e-7);
  EXPECT_LT(apart, 0.02);
  EXPECT_LT(bf16.event("start").at("arena_bytes"), fp32.event("start").at("arena_bytes"));
  EXPECT_EQ(bf16.weights(1).at("model.norm.weight").dtype, "F32") << "masters";
  const Seen fp16 = lab.run(sets + Sets{"precision.compute=\"fp16\""});
  const double nearer = std::abs(fp16.values("loss").at(0) - fp32.values("loss").at(0));
  EXPECT_GT(nearer, 1e-8);
  EXPECT_LT(nearer, 0.0025) << "three more bits";
  EXPECT_LT(fp16.event("start").at("arena_bytes"), fp32.event("start").at("arena_bytes"));
  EXPECT_EQ(fp16.weights(1).at("model.norm.weight").dtype, "F32") << "masters";
  EXPECT_TRUE(has(lab.refusal({"precision.compute=\"fp16\"", "device.kind=\"cuda\""}), "not yet"));
}

// What overflows and halves it is in tests/train/fp16_test.cpp.
void loss_scale(const std::string&) {
  Lab lab;
  const Sets fp16{"precision.compute=\"fp16\""};
  const auto scaled = [&](const std::string& scale) {
    return lab.run(fp16 + Sets{"precision.loss_scale=" + scale});
  };
  EXPECT_EQ(scaled("\"dynamic\"").values("loss_scale"), (std::vector<double>{65536, 65536}));
  const Seen fixed = scaled("1024");
  EXPECT_EQ(fixed.values("loss_scale"), (std::vector<double>{1024, 1024}));
  EXPECT_NEAR(fixed.values("grad_norm").at(0), lab.run().values("grad_norm").at(0), 0.01);
  EXPECT_TRUE(has(lab.refusal(fp16 + Sets{"precision.loss_scale=3000"}), "such as 2048 or 4096"));
  EXPECT_TRUE(has(lab.refusal(fp16 + Sets{"precision.loss_scale=0.5"}), "from 1 to 32768"));
  EXPECT_TRUE(has(lab.refusal({"precision.loss_scale=1024"}), "precision.compute"));
}

int64_t blocks_of(int64_t n, int64_t length) {
  return (n + length - 1) / length;
}

// A recipe decides which codes and scales weights have, by the shapes of its publisher, and trains with nearly the
// loss of bf16.
void recipe(const std::string&) {
  Lab lab;
  struct Form {
    std::string codes, scales;
    int64_t rows, columns;  // of a block; 0: the whole tensor
  };
  const std::map<std::string, Form> forms{
      {"block", {"e4m3", "f32", 128, 128}},    {"tensor", {"e4m3", "f32", 0, 0}},
      {"delayed", {"e4m3", "f32", 0, 0}},      {"row", {"e4m3", "f32", 1, 0}},
      {"row_hp_wgrad", {"e4m3", "f32", 1, 0}}, {"mxfp8", {"e4m3", "e8m0", 1, 32}},
      {"nvfp4", {"e2m1", "e4m3", 16, 16}}};
  const Sets sets{"precision.keep=[\"head\"]"};
  const double usual = lab.run({"precision.compute=\"bf16\""}).last("loss");
  for (const auto& [name, form] : forms) {
    SCOPED_TRACE(name);
    const Sets of =
        sets + Sets{std::string("precision.compute=\"") + (name == "nvfp4" ? "fp4" : "fp8") + "\"",
                    "precision.recipe=\"" + name + "\""};
    int64_t weights = 0;
    std::map<std::string, json> entries;
    const json explained = lab.explain({}, of);
    for (const json& entry : explained.at("persistent")) entries[entry.at("name").get<std::string>()] = entry;
    for (const auto& [entry_name, entry] : entries) {
      if (!entry_name.ends_with("@codes")) continue;
      ++weights;
      const std::string weight = entry_name.substr(0, entry_name.find('@'));
      const int64_t rows = entries.at(weight).at("shape").at(0),
                    columns = entries.at(weight).at("shape").at(1);
      EXPECT_EQ(entry.at("dtype"), form.codes);
      EXPECT_EQ(entry.at("bytes"), form.codes == "e2m1" ? rows * columns / 2 : rows * columns);
      const json& scales = entries.at(weight + "@scales");
      EXPECT_EQ(scales.at("dtype"), form.scales);
      EXPECT_EQ(scales.at("shape").at(0), form.rows == 0 ? 1 : blocks_of(rows, form.rows));
      EXPECT_EQ(scales.at("shape").at(1), form.columns == 0 ? 1 : blocks_of(columns, form.columns));
    }
    EXPECT_EQ(weights, 2 * 4) << "in two layers: qkv, out, up, down";
    const double loss = lab.run(of).last("loss");
    EXPECT_NE(loss, usual);
    EXPECT_NEAR(loss, usual, 0.02);
  }
  // auto, and recipes for another type.
  const auto chosen = [&](const std::string& type) {
    const json explained = lab.explain({}, sets + Sets{"precision.compute=\"" + type + "\""});
    for (const json& choice : explained.at("choices"))
      if (choice.at("key") == "precision.recipe") return choice.at("value").get<std::string>();
    return std::string();
  };
  EXPECT_EQ(chosen("fp8"), "\"block\"");
  EXPECT_EQ(chosen("fp4"), "\"nvfp4\"");
  EXPECT_EQ(chosen("bf16"), "");
  for (const char* type : {"auto", "bf16", "fp32", "fp4"})
    EXPECT_TRUE(
        has(lab.refusal({std::string("precision.compute=\"") + type + "\"", "precision.recipe=\"row\""}),
            "expected \"fp8\""));
  EXPECT_TRUE(
      has(lab.refusal({"precision.compute=\"fp8\"", "precision.recipe=\"nvfp4\""}), "expected \"fp4\""));
  EXPECT_TRUE(has(lab.refusal({"precision.compute=\"fp8\"", "precision.recipe=\"blocks\""}), "block"));
}

// Bytes of the shards that ranks of ZeRO-3 put together, by type. The losses are the same.
void gather(const std::string&) {
  Lab lab;
  const auto gathered = [&](const Sets& sets) {
    std::map<std::string, int64_t> elements;
    const json explained = lab.explain({"--ranks", "2", "--program"},
                                       sets + Sets{"parallel.zero=3", "training.global_batch_size=2"});
    for (const json& one : explained.at("programs").at(0).at("segments").at("forward")) {
      if (one.at("op") != "reshard") continue;
      for (const json& in : one.at("inputs"))
        if (in.at("shape").size() == 2)
          elements[in.at("dtype").get<std::string>()] +=
              in.at("shape").at(0).get<int64_t>() * in.at("shape").at(1).get<int64_t>();
    }
    return elements;
  };
  const Sets bf16{"precision.compute=\"bf16\""},
      fp8{"precision.compute=\"fp8\"", "precision.recipe=\"row\"", "precision.keep=[]"};
  const auto with = [](const char* type) { return Sets{std::string("precision.gather=\"") + type + "\""}; };
  const int64_t all = gathered(bf16 + with("fp32")).at("f32");
  EXPECT_EQ(gathered(bf16 + with("bf16")).at("bf16"), all);
  EXPECT_EQ(gathered(bf16 + with("bf16")).count("f32"), 0U);
  EXPECT_EQ(gathered(bf16 + with("auto")).at("f32"), all);
  EXPECT_EQ(gathered({"precision.compute=\"fp32\""}).at("f32"), all);
  for (const char* type : {"auto", "fp8"}) EXPECT_GT(gathered(fp8 + with(type)).at("e4m3"), all / 2);
  EXPECT_EQ(gathered(fp8 + with("fp32")).count("e4m3"), 0U);
  const Sets two{"parallel.zero=3"};
  EXPECT_EQ(lab.run_on(2, two + bf16 + with("bf16")).values("loss"),
            lab.run_on(2, two + bf16 + with("fp32")).values("loss"));
  EXPECT_EQ(lab.run_on(2, two + fp8 + with("auto")).values("loss"),
            lab.run_on(2, two + fp8 + with("fp32")).values("loss"));
  EXPECT_TRUE(has(lab.refusal(bf16 + with("fp8")), "precision.gather"));
  EXPECT_TRUE(has(lab.refusal(fp8 + with("bf16")), "precision.gather"));
  EXPECT_TRUE(
      has(lab.refusal({"precision.compute=\"fp32\"", "precision.gather=\"bf16\""}), "precision.gather"));
  // Shards of 16 rows end inside blocks of 128.
  const Sets block{"precision.compute=\"fp8\"", "precision.keep=[]", "parallel.zero=3"};
  EXPECT_TRUE(has(lab.refusal_on(2, block + with("fp8")), "blocks"));
}

// The matmuls that stay in bf16: by layer and by tensor.
void keep(const std::string&) {
  Lab lab;
  const Sets sets{"precision.compute=\"fp8\""};
  const auto quantised = [&](const std::string& list) {
    std::set<std::string> weights;
    const json explained = lab.explain({}, sets + Sets{"precision.keep=" + list});
    for (const json& entry : explained.at("persistent")) {
      const std::string name = entry.at("name");
      if (name.ends_with("@codes")) weights.insert(name.substr(0, name.find('@')));
    }
    return weights;
  };
  const auto all = quantised("[]");
  EXPECT_EQ(all.size(), 8U);
  EXPECT_EQ(quantised("[\"head\"]"), all);
  const auto without = [&](const std::string& part) {
    std::set<std::string> rest;
    for (const std::string& name : all)
      if (name.find(part) == name.npos) rest.insert(name);
    return rest;
  };
  EXPECT_EQ(quantised("[\"first 1\"]"), without("layers.0."));
  EXPECT_EQ(quantised("[\"last 1\"]"), without("layers.1."));
  EXPECT_EQ(quantised("[\"*.mlp.down_proj.weight\"]"), without(".ffn.down."));
  EXPECT_EQ(quantised("[\"*.self_attn.?_proj.weight\"]").count("layers.0.attention.qkv.weight"), 0U);
  for (const char* wrong : {"first 0", "last 3", "*.mlp.down.weight", "first"}) {
    const std::string message = lab.refusal(sets + Sets{std::string("precision.keep=[\"") + wrong + "\"]"});
    EXPECT_TRUE(has(message, "precision.keep") && has(message, wrong)) << message;
  }
  EXPECT_TRUE(has(lab.refusal(sets), "leaves nothing")) << "the default keeps both layers";
}

// Only the type of precision.compute is supported so far.
void residual(const std::string&) {
  Lab lab;
  for (const char* type : {"fp32", "bf16"}) {
    const Sets sets{std::string("precision.compute=\"") + type + "\""};
    const auto usual = lab.run(sets).weights(2);
    EXPECT_TRUE(
        same(lab.run(sets + Sets{std::string("precision.residual=\"") + type + "\""}).weights(2), usual));
    const std::string other = std::string(type) == "fp32" ? "bf16" : "fp32";
    EXPECT_TRUE(has(lab.refusal(sets + Sets{"precision.residual=\"" + other + "\""}), "not yet"));
  }
}

float as_bf16(double value) {
  return static_cast<float>(BF16(static_cast<float>(value)));
}

// The first update of AdamW in doubles, by weights that are not rounded.
struct FirstUpdate {
  explicit FirstUpdate(Lab& lab) {
    const auto begin = lab.run(
        kStill + Sets{"training.steps=1", "precision.weights=\"bf16\"", "precision.rounding=\"nearest\""});
    before = begin.weights(1);
  }
  std::vector<double> of(const Seen& run, const std::string& name) const {
    const Tensors states = run.states(1);
    const auto &m = states.at("m/" + name).values, &v = states.at("v/" + name).values;
    std::vector<double> moved = before.at(name).values;
    for (size_t i = 0; i < moved.size(); ++i)
      moved[i] = moved[i] * (1 - kRate * 0.1) - kRate * (m[i] / 0.1) / (std::sqrt(v[i] / 0.05) + 1e-8);
    return moved;
  }
  static constexpr double kRate = 1e-3;
  Tensors before;
};
const Sets kOneUpdate = kFlat + Sets{"training.steps=1", "optimizer.lr=1e-3", "training.clip_grad_norm=0"};
const std::string kLowMatrix = "model.layers.0.mlp.down_proj.weight";

// Matrices and tables are bf16 in checkpoints and in the next step, norms fp32; and there is no other copy.
void weights(const std::string&) {
  Lab lab;
  EXPECT_TRUE(
      has(lab.refusal({"precision.weights=\"bf16\"", "optimizer.name=\"muon\""}), "precision.weights"));
  const Seen low = lab.run(kOneUpdate + Sets{"precision.weights=\"bf16\""});
  const Seen full = lab.run(kOneUpdate + Sets{"precision.weights=\"fp32\""});
  EXPECT_TRUE(same(full.weights(1), lab.run(kOneUpdate).weights(1)));
  EXPECT_EQ(low.states(1).size(), full.states(1).size());
  const Tensors moved = low.weights(1);
  for (const auto& [name, tensor] : full.weights(1)) {
    EXPECT_EQ(tensor.dtype, "F32") << name;
    const Tensor& found = moved.at(name);
    EXPECT_EQ(found.dtype, tensor.shape.rank() == 2 ? "BF16" : "F32") << name;
    for (size_t i = 0; i < tensor.values.size(); ++i)
      ASSERT_NEAR(found.values[i], tensor.values[i], 0.003 + std::abs(tensor.values[i]) / 128) << name;
  }
  const auto bytes = [&](const char* type) {
    const json plan = lab.explain({}, kOneUpdate + Sets{std::string("precision.weights=\"") + type + "\""});
    for (const json& region : plan["regions"])
      if (region["name"] == "parameter") return region["bytes"].get<int64_t>();
    return int64_t{0};
  };
  int64_t matrices = 0, vectors = 0;
  for (const auto& [name, tensor] : full.weights(1))
    (tensor.shape.rank() == 2 ? matrices : vectors) += tensor.shape.elements();
  EXPECT_EQ(bytes("fp32"), 4 * (matrices + vectors));
  EXPECT_EQ(bytes("bf16"), 2 * matrices + 4 * vectors);
}

// How each of the three makes bf16 of the new weights.
void rounding(const std::string&) {
  Lab lab;
  const FirstUpdate first(lab);
  const auto run = [&](const std::string& kind) {
    return lab.run(kOneUpdate + Sets{"precision.weights=\"bf16\"", "precision.rounding=\"" + kind + "\""});
  };
  const Seen nearest = run("nearest"), kahan = run("kahan"), random = run("stochastic");
  const auto wanted = first.of(nearest, kLowMatrix);
  const auto of = [](const Seen& run_of) { return run_of.weights(1).at(kLowMatrix).values; };
  const auto to_nearest = of(nearest), by_kahan = of(kahan), by_chance = of(random);
  const auto rest = kahan.states(1).at("compensation/" + kLowMatrix);
  EXPECT_EQ(rest.dtype, "BF16");
  int64_t others = 0;
  double off_nearest = 0, off_chance = 0, spread = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    others += to_nearest[i] != static_cast<double>(as_bf16(wanted[i]));
    EXPECT_EQ(by_kahan[i], to_nearest[i]);
    ASSERT_NEAR(by_kahan[i] + rest.values[i], wanted[i], std::abs(wanted[i]) * 0x1p-15 + 1e-7) << i;
    const double unit = std::abs(wanted[i]) / 128;
    ASSERT_LE(std::abs(by_chance[i] - wanted[i]), unit) << i;
    off_nearest += std::abs(to_nearest[i] - wanted[i]);
    off_chance += by_chance[i] - wanted[i];
    spread += (by_chance[i] - wanted[i]) * (by_chance[i] - wanted[i]);
  }
  EXPECT_LE(others, 3);  // doubles round elsewhere
  EXPECT_GT(off_nearest, 0);
  EXPECT_LT(std::abs(off_chance), 4 * std::sqrt(spread));  // no direction is preferred
  EXPECT_NE(by_chance, to_nearest);
  EXPECT_TRUE(same(random.weights(1), run("stochastic").weights(1)));
  EXPECT_TRUE(same(random.weights(1),
                   lab.run(kOneUpdate + Sets{"precision.weights=\"bf16\""}).weights(1)));  // the default
}

}  // namespace

Contracts run_keys() {
  return {{"run.name", name},
          {"run.folder", folder},
          {"run.started_in", started_in},
          {"run.chosen", chosen},
          {"run.seed", seed},
          {"run.max_time", max_time},
          {"log.interval_steps", interval_steps},
          {"log.layers", layers},
          {"log.tensorboard", tensorboard},
          {"profile.steps", profiled},
          {"debug.reference_kernels", reference_kernels},
          {"debug.inject", inject},
          {"device.kind", kind},
          {"device.threads", threads},
          {"device.pin", pin},
          {"memory.budget", budget},
          {"memory.recompute", recompute},
          {"memory.offload", offload},
          {"precision.compute", compute},
          {"precision.loss_scale", loss_scale},
          {"precision.residual", residual},
          {"precision.recipe", recipe},
          {"precision.keep", keep},
          {"precision.gather", gather},
          {"precision.weights", weights},
          {"precision.rounding", rounding}};
}

}  // namespace strata::contracts
