// Contracts of [run], [log], [profile], [debug], [device] and [memory].
#include <unistd.h>

#include <algorithm>
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
          {"memory.offload", offload}};
}

}  // namespace strata::contracts
