// Whole runs on the GPU device, whose driver is the twin: the processor's curves, the same bits however a run is observed,
// stopped or saved.
#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/error.h"
#include "fixtures/byte_tokenizer.h"
#include "run_fixture.h"
#include "train/control.h"

namespace strata::training {
namespace {

// --- The processor's curve

struct Case {
  std::string family;
  std::string dtype;
  friend void PrintTo(const Case& one, std::ostream* out) { *out << one.family << " " << one.dtype; }
};

class GpuCurve : public GpuRun, public testing::WithParamInterface<Case> {
 protected:
  bool is_exact() const { return GetParam().dtype == "fp32"; }
  int64_t steps() const { return is_exact() ? 6 : 4; }  // the executor takes three times as long for bf16
  // Evaluations and statistics in two of the steps.
  Sets sets() const {
    const std::string every = "\"" + std::to_string(steps() / 2) + " steps\"";
    return {"precision.compute=\"" + GetParam().dtype + "\"",
            "training.steps=" + std::to_string(steps()),
            "log.layers=" + every,
            "eval.interval=" + every,
            "data.valid_fraction=0.1",
            "eval.max_tokens=32"};
  }
  TrainResult train(const Sets& device, const std::string& name, const std::string& twin = "") {
    std::string toml = tiny_.toml(name);
    if (GetParam().family == "gpt2") {
      toml.replace(toml.find("llama3"), 6, "gpt2");
      const std::string heads = "num_key_value_heads = 2\n";
      toml.erase(toml.find(heads), heads.size());
    }
    twin_.restart(twin);
    const auto config = config::parse_run_config(toml, "RUN.toml", kSmall + device + sets());
    TrainResult result = tiny_.train_with({.config = config});
    EXPECT_EQ(twin_.violation(), "") << name;
    return result;
  }
  // The keys of each line, without those that only a processor has.
  std::vector<std::string> keys(const std::string& name) const {
    std::vector<std::string> out;
    std::istringstream lines(read_file(tiny_.folder(name) / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      std::string names;
      const auto fields = parse_json<nlohmann::json>(line);
      for (const auto& [key, value] : fields.items())
        if (!key.starts_with("mfu"))
          names += key + (value.is_array() ? std::to_string(value.size()) : "") + " ";
      out.push_back(names);
    }
    return out;
  }
};

TEST_P(GpuCurve, IsTheProcessors) {
  const double tolerance = is_exact() ? 2e-5 : 1e-2;
  train({}, "cpu");
  EXPECT_EQ(train(kOnGpu, "gpu").step, steps());
  EXPECT_EQ(keys("gpu"), keys("cpu"));
  for (const char* key : {"loss", "param_norm"}) expect_near("gpu", "cpu", key, tolerance);
  for (const char* key : {"tokens", "lr", "first_sample"}) expect_near("gpu", "cpu", key, 0);
  expect_near("gpu", "cpu", "grad_norm", is_exact() ? 1e-4 : 3e-2);
  for (const char* key : {"update_ratio", "logit_max", "attention_max"})
    expect_near("gpu", "cpu", key, is_exact() ? 1e-3 : 5e-2);
  expect_near("gpu", "cpu", "eval/valid/loss", tolerance);
  EXPECT_EQ(values("gpu", "logit_max").size(), 2u);
  EXPECT_EQ(values("gpu", "eval/valid/loss").size(), 2u);
  if (GetParam().family != "llama3") return;
  train(kOnGpu, "again", "seed=7");
  expect_same("again", "gpu", steps());
}

INSTANTIATE_TEST_SUITE_P(Models, GpuCurve,
                         testing::Values(Case{"llama3", "fp32"}, Case{"llama3", "bf16"}, Case{"gpt2", "fp32"},
                                         Case{"gpt2", "bf16"}),
                         [](const auto& one) { return one.param.family + "_" + one.param.dtype; });

// A text after every evaluation, whose tokens are drawn.
TEST_F(GpuRun, WritesTheProcessorsSamples) {
  put_file(tiny_.path("tokenizer.json"), data::byte_tokenizer_json());
  std::string text;
  for (int i = 0; i < 30; ++i) text += "the cat sat on mat " + std::to_string(i) + ".\n";
  put_file(tiny_.path("corpus.txt"), text);
  const Sets sets{"model.vocab_size=257",
                  "tokenizer.path=\"" + tiny_.path("tokenizer.json").string() + "\"",
                  "data.train=[\"" + tiny_.path("corpus.txt").string() + "\"]",
                  "eval.interval=\"2 steps\"",
                  "eval.max_tokens=16",
                  "eval.sample_prompts=[\"the cat\", \"on\"]",
                  "eval.sample_tokens=3",
                  "training.steps=2"};
  cpu(sets, "cpu");
  gpu(sets, "gpu");
  const auto texts = [&](const std::string& name) {
    std::vector<std::string> out;
    for (const auto& event : metrics_of(tiny_.folder(name)).events)
      if (event.at("event") == "sample") out.push_back(dump_json(event.at("text")));
    return out;
  };
  EXPECT_EQ(texts("gpu"), texts("cpu"));
  EXPECT_EQ(texts("gpu").size(), 2u);
}

TEST_F(GpuRun, GrowsTheBatchAsTheProcessor) {
  const Sets sets{"training.batch_ramp=[[0, 1], [16, 2]]", "training.steps=4"};
  cpu(sets, "cpu");
  gpu(sets, "gpu");
  expect_near("gpu", "cpu", "loss", 2e-5);
  expect_near("gpu", "cpu", "tokens", 0);
  EXPECT_EQ(values("gpu", "tokens"), (std::vector<double>{8, 16, 32, 48}));
}

// --- The next step begins before the numbers of a step are read

// Tracing and evaluating every step, which forbid that, change nothing.
TEST_F(GpuRun, HasTheSameBitsHoweverItIsObserved) {
  gpu({}, "run");
  gpu({"profile.steps=[[1, 6]]"}, "traced", "seed=2");
  expect_same("traced", "run", 6);
  gpu({"eval.interval=\"1 steps\"",
       "eval.set=[{name=\"held\", path=[\"" + tiny_.path("train.bin").string() + "\"], max_tokens=16}]"},
      "evaluated", "seed=3");
  expect_same("evaluated", "run", 6);
  EXPECT_EQ(values("evaluated", "eval/held/loss").size(), 6u);
}

// A spike is a gradient that is as large as the largest of the first two: with this rule the run goes back and skips data.
const Sets kGoesBack{
    "recovery.rule=[{when=\"grad_spike\", preset=\"megatron\", threshold=0.8, window=2, "
    "action=\"rollback_skip\"}]",
    "recovery.snapshot=\"2 steps\"", "recovery.in_memory=true", "training.global_batch_size=4",
    "training.micro_batch_size=2"};

TEST_F(GpuRun, GoesBackAsTheProcessor) {
  cpu(kGoesBack, "cpu");
  gpu(kGoesBack, "gpu");
  EXPECT_EQ(events("gpu", "intervention"), events("cpu", "intervention"));
  EXPECT_FALSE(events("gpu", "intervention").empty());
  expect_near("gpu", "cpu", "loss", 2e-5);
  expect_near("gpu", "cpu", "first_sample", 0);
  gpu(kGoesBack + Sets{"profile.steps=[[1, 6]]"}, "traced");
  expect_same("traced", "gpu", 6);
}

TEST_F(GpuRun, RecoversFromInjectedFaultsAsTheProcessor) {
  const Sets sets{"recovery.snapshot=\"2 steps\"", "recovery.in_memory=true", "training.steps=7",
                  "debug.inject=[\"nan@step=4,phase=update\", \"spike@step=2,factor=1000\"]"};
  cpu(sets, "cpu");
  gpu(sets, "gpu");
  EXPECT_EQ(events("gpu", "intervention"), events("cpu", "intervention"));
  EXPECT_FALSE(events("gpu", "intervention").empty());
  expect_near("gpu", "cpu", "loss", 2e-5);
}

// The number of layers' statistics is asked for while a step that would not have them has begun.
TEST_F(GpuRun, TakesASettingInTheNextStepAsTheProcessor) {
  const auto train = [&](const Sets& device, const std::string& name) {
    twin_.restart();
    RunOptions options{.config = tiny_.config(kSmall + device + Sets{"log.layers=\"never\""}, name)};
    options.observer.log = [](LogLevel, std::string_view) {};
    options.observer.step = [&](const StepRecord& record) {
      if (record.step != 2) return;
      const Request request{.id = "a", .by = "test", .settings = {{"log.layers", "\"1 steps\""}}};
      put_file(tiny_.folder(name) / kControlFolder / "a.json", to_json(request));
    };
    tiny_.train_with(options);
    EXPECT_EQ(twin_.violation(), "") << name;
  };
  train({}, "cpu");
  train(kOnGpu, "gpu");
  EXPECT_EQ(events("gpu", "changed"), events("cpu", "changed"));
  EXPECT_EQ(values("cpu", "logit_max").size(), 3u);
  expect_near("gpu", "cpu", "logit_max", 1e-3);
  gpu({}, "run");
  expect_same("gpu", "run", 6);
}

// A file is damaged while the run reads it: the steps before the damage are reported.
TEST_F(GpuRun, ReportsAStepBeforeTheNextOnesSamplesFail) {
  const auto train = [&](const Sets& device, const std::string& name) {
    const Path file = tiny_.path(name + ".bin");
    put_tokens(file, tiny_tokens(6000));
    twin_.restart();
    RunOptions options{.config = tiny_.config(kSmall + device +
                                                  Sets{"data.train=[\"" + file.string() + "\"]",
                                                       "data.shuffle=false", "training.global_batch_size=1",
                                                       "training.micro_batch_size=1", "training.steps=12"},
                                              name)};
    options.observer.log = [](LogLevel, std::string_view) {};
    options.observer.step = [&](const StepRecord& record) {
      if (record.step != 2) return;
      // Of the tenth step, which is further than samples are prepared.
      std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekp((9 * 8 + 4) * 2).write("\xff\xff", 2);
    };
    EXPECT_THROW(tiny_.train_with(options), DataError);
    EXPECT_EQ(twin_.violation(), "") << name;
    EXPECT_EQ(metrics_of(tiny_.folder(name)).steps.size(), 9u) << name;
  };
  train({}, "cpu");
  train(kOnGpu, "gpu");
}

// --- Saves

// Copies to the host run during the next step's micro-batches.
TEST_F(GpuRun, SavesConsistentWeightsBesideTraining) {
  const Sets keep{"checkpoint.keep_last=100"};
  gpu(keep + Sets{"checkpoint.interval=\"1 steps\""}, "every", "seed=5");
  for (const int64_t step : {2, 3}) {
    const std::string name = "each-" + std::to_string(step);
    gpu(keep + Sets{"checkpoint.interval=\"" + std::to_string(step) + " steps\""}, name);
    for (int64_t at = step; at <= 6; at += step) {
      const FinalBits a = bits_of(tiny_.folder("every"), at), b = bits_of(tiny_.folder(name), at);
      EXPECT_TRUE(a.model == b.model && a.optimizer == b.optimizer) << "step " << at;
    }
  }
}

// As if killed: the next step's work is on the GPU when the run ends.
TEST_F(GpuRun, HasTheSameBitsHoweverOftenItEnds) {
  const Sets sets{"checkpoint.interval=\"2 steps\""};
  gpu(sets, "whole");
  twin_.restart();
  for (const int64_t kill : {1, 2}) {
    RunOptions options{.config = tiny_.config(kSmall + kOnGpu + sets, "killed")};
    int64_t made = 0;
    options.observer.log = [](LogLevel, std::string_view) {};
    options.observer.step = [&](const StepRecord&) {
      if (++made == kill) throw WorldError("[test] killed");
    };
    EXPECT_THROW(tiny_.train_with(options), WorldError);
    EXPECT_EQ(twin_.violation(), "");
  }
  gpu(sets, "killed", "seed=4");
  expect_same("killed", "whole", 6);
  // By request, after any step.
  gpu(sets, "stopped", "", 3);
  gpu(sets, "stopped");
  expect_same("stopped", "whole", 6);
}

// Checkpoints are those of any device. After three steps on each, the losses of a run on the processor.
TEST_F(GpuRun, ResumesOnTheOtherDevice) {
  cpu({}, "whole");
  tiny_.train(kSmall, "to-gpu", 3);
  gpu({}, "to-gpu");
  gpu({}, "to-cpu", "", 3);
  cpu({}, "to-cpu");
  for (const char* name : {"to-gpu", "to-cpu"}) {
    expect_near(name, "whole", "loss", 2e-5);
    expect_near(name, "whole", "param_norm", 2e-5);
  }
}

// A kernel's error that the driver reports when the next kernels are loaded.
TEST_F(GpuRun, NamesTheInstructionWhereAnotherCallReportsIt) {
  for (const char* call :
       {"cuModuleLoadDataEx:8:700", "cuStreamWriteValue32:2:700", "cuLaunchKernel:20:700"}) {
    twin_.restart(std::string("fail=") + call);
    try {
      tiny_.train(kSmall + kOnGpu, call);
      ADD_FAILURE() << "no error";
    } catch (const WorldError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("; it was computing "), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace strata::training
