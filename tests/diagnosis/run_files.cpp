#include "diagnosis/run_files.h"

#include <fmt/core.h>

#include <cmath>
#include <numbers>

#include "base/random.h"
#include "checkpoint/manifest.h"

namespace strata::diagnosis {
namespace {

constexpr double kBegin = 1.7e9;  // Unix seconds
constexpr double kStepSeconds = 0.5;
constexpr int64_t kSaveEvery = 200, kEvaluateEvery = 100, kLogEvery = 10;

std::string text_of(const std::vector<Line>& lines) {
  std::string text;
  for (const Line& line : lines) text += dump_json(line) + "\n";
  return text;
}

double rate_at(int64_t step, int64_t steps) {
  constexpr double kPeak = 1e-3, kWarmup = 100;
  if (step <= kWarmup) return kPeak * static_cast<double>(step) / kWarmup;
  const double done = (static_cast<double>(step) - kWarmup) / (static_cast<double>(steps) - kWarmup);
  return kPeak * (0.1 + 0.9 * (1 + std::cos(std::numbers::pi * done)) / 2);
}

}  // namespace

double RunFiles::noise(int64_t step, uint64_t stream) const {
  double sum = 0;
  for (uint32_t i = 0; i < 3; ++i) {
    for (const uint32_t bits : philox(RandomKey{seed_, i}, static_cast<uint64_t>(step) * 16 + stream))
      sum += bits * 0x1p-32;
  }
  return sum - 6;
}

RunFiles::RunFiles(int64_t steps, uint64_t seed) : seed_(seed) {
  settings = {{"model.preset", "\"llama3-5m\""},
              {"data.train", "[\"tokens.bin\"]"},
              {"training.steps", std::to_string(steps)},
              {"training.global_batch_size", "64"},
              {"schedule.warmup_steps", "100"}};
  double time = kBegin;
  lines.push_back({{"event", "start"}, {"at_step", 0}, {"parameters", 5000000}, {"time", time}});
  for (int64_t step = 1; step <= steps; ++step) {
    time += kStepSeconds;
    const auto s = static_cast<double>(step);
    const double loss = (2.5 + 8 * std::pow(s + 10, -0.4)) * (1 + 0.01 * noise(step, 0));
    Line line{{"step", step},
              {"tokens", step * 32768},
              {"time", time},
              {"loss", loss},
              {"grad_norm", (0.5 + 2 * std::exp(-s / 100)) * std::exp(0.15 * noise(step, 1))},
              {"lr", rate_at(step, steps)},
              {"tokens_per_s", 65536 * (1 + 0.02 * noise(step, 2))},
              {"step_ms", 1e3 * kStepSeconds},
              {"data_wait_ms", 2},
              {"checkpoint_ms", 0},
              {"memory_bytes", 1000000000 + 1000 * step},
              {"update_ratio", 1e-3},
              {"router_z", 2.2},
              {"first_sample", (step - 1) * 64}};
    if (step % kLogEvery == 0) {
      line["attention_max"] = 12 + 0.5 * noise(step, 3);
      line["logit_max"] = 90 + noise(step, 10);
      line["noise_scale"] = 512 * (60 + 5 * noise(step, 4));
    }
    if (step % kEvaluateEvery == 0) line["eval/valid/loss"] = 1.02 * (2.5 + 8 * std::pow(s + 10, -0.4));
    lines.push_back(std::move(line));
    if (step % kSaveEvery == 0) {
      time += 0.2;
      lines.push_back({{"event", "save"},
                       {"at_step", step},
                       {"seconds", 0.2},
                       {"bytes", 60000000},
                       {"held_up", 0.2},
                       {"time", time}});
    }
    if (step % kLogEvery != 0) continue;
    ranks.push_back(
        {{"step", step},
         {"ranks", 4},
         {"step_ms",
          {500 + noise(step, 5), 500 + noise(step, 6), 500 + noise(step, 7), 500 + noise(step, 8)}},
         {"data_wait_ms", {2, 2, 2, 2}},
         {"memory_bytes", {1e9, 1e9, 1e9, 1e9}}});
    experts.push_back(
        {{"step", step},
         {"steps", kLogEvery},
         {"layers", {1, 2}},
         {"tokens",
          {{900, 1000, 1100, 950, 1050, 990, 1010, 1000}, {1000, 1000, 1000, 1000, 900, 1100, 800, 1200}}}});
    layers.push_back({{"step", step}, {"layers", Line::array()}});
    for (int layer = 0; layer < 4; ++layer)
      layers.back()["layers"].push_back({{"layer", layer},
                                         {"tensor", "mlp"},
                                         {"grad_rms", 1e-5},
                                         {"weight_rms", 0.02},
                                         {"zero_share", 0.3}});
  }
  lines.push_back({{"event", "finish"}, {"at_step", steps}, {"time", time}});
  checkpoints = {{.step = steps - kSaveEvery}, {.step = steps}};
}

void RunFiles::each(const std::function<void(int64_t, Line&)>& edit) {
  each_between(1, int64_t{1} << 40, edit);
}

void RunFiles::each_between(int64_t first, int64_t last, const std::function<void(int64_t, Line&)>& edit) {
  for (Line& line : lines) {
    if (line.contains("event")) continue;
    const int64_t step = line["step"];
    if (step >= first && step <= last) edit(step, line);
  }
}

void RunFiles::scale(const std::string& name, double factor, const std::vector<int64_t>& steps) {
  for (const int64_t one : steps)
    each_between(one, one, [&](int64_t, Line& line) { line[name] = line[name].get<double>() * factor; });
}

size_t RunFiles::after(int64_t step) const {
  size_t place = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto its = lines[i].contains("event") ? lines[i].find("at_step") : lines[i].find("step");
    if (its != lines[i].end() && its->get<int64_t>() <= step) place = i + 1;
  }
  return place;
}

void RunFiles::event(const std::string& name, int64_t at_step, const Line& fields) {
  const size_t place = after(at_step);
  Line line{{"event", name}, {"at_step", at_step}};
  line.update(fields);
  if (!line.contains("time")) line["time"] = lines[place - 1]["time"];
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(place), std::move(line));
}

void RunFiles::cut(int64_t last) {
  const size_t place = after(last);
  lines.resize(place);
  std::erase_if(checkpoints, [&](const Checkpoint& one) { return one.step > last; });
  if (checkpoints.empty()) checkpoints = {{.step = last / kSaveEvery * kSaveEvery}};
}

void RunFiles::delay(int64_t step, double seconds) {
  for (size_t i = after(step); i < lines.size(); ++i)
    lines[i]["time"] = lines[i]["time"].get<double>() + seconds;
}

double RunFiles::last_time() const {
  return lines.empty() ? kBegin : lines.back()["time"].get<double>();
}

void RunFiles::write() {
  std::string toml;
  for (const auto& [key, value] : settings) toml += key + " = " + value + "\n";
  put_file(folder_ / "run.toml", toml);
  const std::pair<const char*, const std::vector<Line>&> files[] = {
      {"metrics.jsonl", lines}, {"metrics.discarded.jsonl", discarded},
      {"layers.jsonl", layers}, {"experts.jsonl", experts},
      {"ranks.jsonl", ranks},   {"ledger.jsonl", ledger}};
  for (const auto& [name, content] : files) {
    if (!content.empty()) put_file(folder_ / name, text_of(content));
  }
  for (const Checkpoint& one : checkpoints) {
    const Path place = path() / "checkpoints" / fmt::format("step-{:08}", one.step);
    std::filesystem::create_directories(place);
    checkpoint::Manifest manifest;
    manifest.step = one.step;
    manifest.program = "strata";
    manifest.health = {.loss = 2.9, .grad_norm = 0.5, .finite = one.healthy, .metrics = {}};
    const std::string state =
        dump_json(Line{{"sources", {{{"name", "web"}, {"tokens", 1000000}, {"epoch", one.passes}}}}});
    put_file(place / "state.json", state);
    checkpoint::StoredFile& file = manifest.files.emplace_back();
    file.name = "state.json";
    file.bytes = state.size();
    put_file(place / "manifest.json",
             one.manifest.empty() ? checkpoint::format_manifest(manifest) : one.manifest);
  }
  if (locked) lock_.emplace(path() / ".lock");
}

Diagnosis RunFiles::diagnose() {
  write();
  Evidence evidence = read_evidence(path(), last_time() + seconds_since_last_line);
  if (change) change(evidence);
  return diagnosis::diagnose(evidence);
}

const Finding* find(const Diagnosis& diagnosis, const std::string& name) {
  for (const Finding& one : diagnosis.findings) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

std::string names_of(const Diagnosis& diagnosis) {
  std::string text;
  for (const Finding& one : diagnosis.findings) text += one.name + ": " + one.sentence + "\n";
  return text;
}

}  // namespace strata::diagnosis
