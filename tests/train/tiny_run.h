// A run so small that a test can make dozens of them: two-layer Llama of width 32 on random tokens, six steps
// of eight sequences of sixteen tokens.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "support/faulty_file_system.h"
#include "support/scratch_folder.h"
#include "train/config/run_config.h"
#include "train/trainer.h"

namespace strata::train {

inline constexpr int64_t kTinyVocab = 300;

// Documents of 1 to 60 tokens that follow a simple rule, so that there is something to learn; 0 ends each.
inline std::vector<uint16_t> tiny_tokens(int64_t count, uint64_t seed = 7) {
  std::vector<uint16_t> ids;
  for (uint64_t at = 0; static_cast<int64_t>(ids.size()) < count; ++at) {
    const auto bits = philox({seed, 1}, at);
    uint32_t id = 1 + bits[0] % (kTinyVocab - 1);
    for (uint32_t i = 0; i < 1 + bits[1] % 60; ++i) {
      ids.push_back(static_cast<uint16_t>(id));
      id = 1 + (id * 7 + bits[2] % 3) % (kTinyVocab - 1);
    }
    ids.push_back(0);
  }
  ids.resize(static_cast<size_t>(count));
  return ids;
}

inline void put_tokens(const Path& path, const std::vector<uint16_t>& ids, int64_t vocab = kTinyVocab) {
  put_file(path, std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 2));
  Path meta = path;
  meta.replace_extension(".json");
  put_file(meta, nlohmann::json{{"dtype", "u16"}, {"vocab_size", vocab}, {"end_of_text_id", 0}}.dump());
}

class TinyRun {
 public:
  TinyRun() {
    set_log_level(LogLevel::kError);
    put_tokens(scratch_ / "train.bin", tiny_tokens(6000));
  }

  Path folder(const std::string& name = "run") const { return scratch_ / name; }
  Path path(const std::string& name) const { return scratch_ / name; }

  // RUN.toml of a run in folder(name); the program can read it as well.
  std::string toml(const std::string& name = "run") const {
    return R"([run]
folder = ")" +
           folder(name).string() + R"("
[model]
family = "llama3"
vocab_size = 300
hidden_size = 32
intermediate_size = 48
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 64
[data]
train = [")" +
           path("train.bin").string() +
           R"("]
[training]
sequence_length = 16
global_batch_size = 8
micro_batch_size = 4
steps = 6
[optimizer]
lr = 1e-2
[schedule]
warmup_steps = 2
[precision]
compute = "fp32"
[device]
threads = 1
[checkpoint]
interval = "2 steps"
[eval]
interval = "never"
[memory]
budget = "2GB"
)";
  }
  RunConfig config(const std::vector<std::string>& sets = {}, const std::string& name = "run") const {
    return parse_run_config(toml(name), "RUN.toml", sets);
  }

  // Trains; stops once `steps` steps were made by this call, where given.
  TrainResult train_with(const RunOptions& options, int64_t steps = -1) const {
    FaultyFileSystem quick;  // without real syncs
    RunOptions own = options;
    if (own.files == nullptr) own.files = &quick;
    // Asked before the first step too, while text is tokenized.
    int64_t asked = 0;
    const size_t starts_before = starts(own.config.run.folder);
    return train_run(own, [&] { return starts(own.config.run.folder) > starts_before && ++asked == steps; });
  }
  TrainResult train(const std::vector<std::string>& sets = {}, const std::string& name = "run",
                    int64_t steps = -1) const {
    return train_with(RunOptions{.config = config(sets, name)}, steps);
  }

 private:
  // How often training began in this folder.
  static size_t starts(const Path& run) {
    if (!std::filesystem::exists(run / "metrics.jsonl")) return 0;
    const std::string metrics = read_file(run / "metrics.jsonl");
    size_t count = 0;
    for (const char* event : {"\"event\":\"start\"", "\"event\":\"resume\""})
      for (size_t at = metrics.find(event); at != metrics.npos; at = metrics.find(event, at + 1)) ++count;
    return count;
  }

  ScratchFolder scratch_;
};

// Weights, moments and position of a checkpoint, as bytes.
struct FinalBits {
  std::string model, optimizer, state;
  bool operator==(const FinalBits&) const = default;
};
inline FinalBits bits_of(const Path& run, int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  const Path folder = run / "checkpoints" / name;
  return {read_file(folder / "model.safetensors"), read_file(folder / "optimizer.safetensors"),
          read_file(folder / "state.json")};
}
inline void expect_same_bits(const FinalBits& a, const FinalBits& b, const std::string& what = "") {
  EXPECT_TRUE(a.model == b.model) << what << ": weights differ";
  EXPECT_TRUE(a.optimizer == b.optimizer) << what << ": moments differ";
  EXPECT_EQ(a.state, b.state) << what;
}

// What metrics.jsonl says of the steps, as text of what must repeat; fails where steps do not rise by one.
struct MetricsLog {
  std::vector<std::string> steps;  // "loss grad_norm param_norm lr tokens first_sample"
  std::vector<double> loss, grad_norm, lr;
  std::vector<nlohmann::json> events;
};
inline MetricsLog metrics_of(const Path& run) {
  MetricsLog log;
  const std::string text = read_file(run / "metrics.jsonl");
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "metrics.jsonl ends in a torn line";
      break;
    }
    const auto line = nlohmann::json::parse(text.substr(at, end - at));
    at = end + 1;
    if (line.contains("event")) {
      log.events.push_back(line);
      continue;
    }
    EXPECT_EQ(line.at("step").get<size_t>(), log.steps.size() + 1) << "steps rise by one, each once";
    std::string kept;
    for (const char* name : {"loss", "grad_norm", "param_norm", "lr", "tokens", "first_sample"})
      kept += line.at(name).dump() + " ";
    log.steps.push_back(kept);
    log.loss.push_back(line.at("loss").get<double>());
    log.grad_norm.push_back(line.at("grad_norm").get<double>());
    log.lr.push_back(line.at("lr").get<double>());
  }
  return log;
}
inline const nlohmann::json* find_event(const MetricsLog& log, const std::string& name) {
  for (const auto& event : log.events) {
    if (event.at("event") == name) return &event;
  }
  return nullptr;
}

}  // namespace strata::train
