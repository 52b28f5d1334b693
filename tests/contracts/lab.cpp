#include "contracts/lab.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/parallel.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/tensor_io.h"
#include "cli/verbs.h"

namespace strata::contracts {
namespace {

std::string numbered(const char* format, int64_t number) {
  char text[48];
  std::snprintf(text, sizeof text, format, static_cast<long long>(number));
  return text;
}

Seen seen(const training::TrainResult& result, const Path& folder) {
  Seen out{.result = result, .folder = folder, .steps = {}, .events = {}};
  const std::string text = read_file(folder / "metrics.jsonl");
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    json line = parse_json<json>(text.substr(at, text.find('\n', at) - at));
    (line.contains("event") ? out.events : out.steps).push_back(std::move(line));
  }
  return out;
}

}  // namespace

const Sets kFlat{"schedule.name=\"constant\"", "schedule.warmup_steps=0"};
const Sets kStill =
    Sets{"optimizer.lr=1e-30", "optimizer.weight_decay=0", "optimizer.beta1=0", "training.clip_grad_norm=0"} +
    kFlat;

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Tensors tensors_in(const Path& folder, const std::string& stem) {
  Tensors out;
  const checkpoint::TensorSource source = checkpoint::open_tensors(folder, stem);
  for (const auto& [name, entry] : source.tensors) {
    Tensor tensor{.shape = entry.tensor->shape, .dtype = entry.tensor->dtype_name, .values = {}};
    if (entry.tensor->dtype && checkpoint::is_convertible(*entry.tensor->dtype, DType::kF32)) {
      std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
      checkpoint::read_tensor(*entry.file, *entry.tensor,
                              {name, tensor.shape, DType::kF32, checkpoint::in_memory(values.data())});
      tensor.values.assign(values.begin(), values.end());
    }
    out[name] = std::move(tensor);
  }
  return out;
}

Path Seen::checkpoint(int64_t step) const {
  return folder / "checkpoints" / numbered("step-%08lld", step);
}

std::vector<int64_t> Seen::checkpoints() const {
  std::vector<int64_t> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "checkpoints")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-")) out.push_back(std::stoll(name.substr(5)));
  }
  std::sort(out.begin(), out.end());
  return out;
}

json Seen::config() const {
  return parse_json<json>(read_file(folder / "final/config.json"));
}

std::vector<double> Seen::values(const std::string& name) const {
  std::vector<double> out;
  for (const json& step : steps) {
    if (step.contains(name)) out.push_back(step.at(name).get<double>());
  }
  return out;
}

double Seen::last(const std::string& name) const {
  const std::vector<double> all = values(name);
  EXPECT_FALSE(all.empty()) << "no step has " << name;
  return all.empty() ? NAN : all.back();
}

const json& Seen::event(const std::string& name) const {
  static const json kNone;
  for (const json& one : events) {
    if (one.at("event") == name) return one;
  }
  ADD_FAILURE() << "no event " << name;
  return kNone;
}

std::string Lab::list(const std::vector<std::string>& names) const {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "\"" : ", \"") + path(name).string() + "\"";
  return "[" + out + "]";
}

std::string Lab::text(int lines) const {
  std::string text, records;
  for (int i = 0; i < lines; ++i) {
    const std::string line = "the cat number " + std::to_string(i * 7919 % 100) + " sat on the mat.";
    text += line + "\n";
    records += dump_json(json{{"id", "d" + std::to_string(i)}, {"text", line}}) + "\n";
  }
  put("corpus.txt", text);
  put("corpus.jsonl", records);
  return text;
}

Path Lab::next_folder() {
  return tiny_.folder("run-" + std::to_string(++runs_));
}

namespace {

// The message of the ConfigError that `run` must throw.
template <typename Run>
std::string refusal_of(const Run& run) {
  try {
    run();
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError";
  return "";
}

// Evaluates held-out text only at the end.
const Sets kTiny{"checkpoint.interval=\"1 steps\"", "checkpoint.keep_last=99", "eval.interval=\"100 steps\""};
constexpr const char* kSizes =
    "[training]\nsequence_length = 16\nglobal_batch_size = 2\nmicro_batch_size = 2\nsteps = 2\n";

}  // namespace

std::string Lab::toml(const std::string& model) const {
  const std::string whole = tiny_.toml();
  const auto part = [&](const char* from, const char* to) {
    return whole.substr(whole.find(from), whole.find(to) - whole.find(from));
  };
  return (model.empty() ? part("[model]", "[data]") : model + "\n") + part("[data]", "[training]") +
         whole.substr(whole.find("[optimizer]"));
}

config::RunConfig Lab::config(const Sets& sets, const std::string& more) {
  return config::parse_run_config(toml() + kSizes + more, "RUN.toml",
                                  Sets{"run.folder=\"" + next_folder().string() + "\""} + kTiny + sets);
}

Seen Lab::run(const Sets& sets, const std::string& more) {
  return run_toml(toml() + kSizes + more, sets);
}

Seen Lab::run_to_end(const Sets& sets, std::string& diverged, const std::string& more) {
  const config::RunConfig settings = config(sets, more);
  training::TrainResult result{.end = training::RunEnd::kInterrupted};
  try {
    result = tiny_.train_with(training::RunOptions{.config = settings});
  } catch (const DivergedError& error) {
    diverged = error.what();
  }
  return seen(result, settings.run.folder);
}

Seen Lab::run_on(int ranks, const Sets& sets) {
  return run_toml_on(ranks, toml() + kSizes, sets);
}
Seen Lab::run_toml_on(int ranks, const std::string& toml, const Sets& sets) {
  const auto config = config::parse_run_config(
      toml, "RUN.toml", Sets{"run.folder=\"" + next_folder().string() + "\""} + kTiny + sets);
  FaultyFileSystem quick;
  const auto result =
      training::train_on_threads({.config = config, .files = &quick}, ranks, [] { return false; });
  return seen(result, config.run.folder);
}
std::string Lab::refusal_on(int ranks, const Sets& sets) {
  return refusal_of_toml_on(ranks, toml() + kSizes, sets);
}
std::string Lab::refusal_of_toml_on(int ranks, const std::string& toml, const Sets& sets) {
  return refusal_of([&] { run_toml_on(ranks, toml, sets); });
}
Seen Lab::run_toml(const std::string& toml, const Sets& sets) {
  const auto config = config::parse_run_config(
      toml, "RUN.toml", Sets{"run.folder=\"" + next_folder().string() + "\""} + kTiny + sets);
  const auto result = tiny_.train_with(training::RunOptions{.config = config});
  return seen(result, config.run.folder);
}

std::vector<int32_t> Lab::ids_of(const Seen& run) const {
  std::vector<int32_t> ids;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run.folder / "data")) {
    if (entry.path().extension() != ".bin") continue;
    ++files;
    const std::string bytes = read_file(entry.path());
    std::vector<uint16_t> found(bytes.size() / 2);
    std::memcpy(found.data(), bytes.data(), bytes.size());
    ids.assign(found.begin(), found.end());
  }
  EXPECT_EQ(files, 1);
  return ids;
}

json Lab::explain(const std::vector<std::string>& options, const Sets& sets, const std::string& more) {
  put("explained.toml", toml() + kSizes + more);
  std::vector<std::string> words{"explain", path("explained.toml").string(), "--json"};
  words.insert(words.end(), options.begin(), options.end());
  for (const std::string& set : Sets{"run.folder=\"" + next_folder().string() + "\""} + sets)
    words.insert(words.end(), {"--set", set});
  return strata(path("explained"), words).parsed();
}

std::string Lab::refusal(const Sets& sets, const std::string& more) {
  return refusal_of_toml(toml() + kSizes + more, sets);
}

std::string Lab::refusal_of_toml(const std::string& toml, const Sets& sets) {
  return refusal_of([&] { run_toml(toml, sets); });
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double apart = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(apart / size);
}

double norm(const Tensors& tensors, const std::string& prefix) {
  double sum = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!name.starts_with(prefix)) continue;
    for (const double value : tensor.values) sum += value * value;
  }
  return std::sqrt(sum);
}

bool same(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.first == other.first && one.second.shape == other.second.shape &&
           one.second.values == other.second.values;
  });
}

json Outcome::parsed() const {
  json out_json = parse_json_or_discard<json>(out);
  EXPECT_TRUE(out_json.is_object()) << "not one JSON object: " << out << err;
  return out_json;
}

std::vector<json> Outcome::lines() const {
  std::vector<json> found;
  for (size_t at = 0; at < out.size(); at = out.find('\n', at) + 1)
    found.push_back(parse_json<json>(out.substr(at, out.find('\n', at) - at)));
  return found;
}

Outcome strata(const Path& folder, const std::vector<std::string>& arguments) {
  std::vector<const char*> words{"strata"};
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  const Path before = std::filesystem::current_path();
  const int threads = compute_threads();
  std::filesystem::create_directories(folder);
  std::filesystem::current_path(folder);
  Outcome outcome;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  outcome.code = cli::run_command_line(static_cast<int>(words.size()), words.data());
  std::fflush(stdout);
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  std::filesystem::current_path(before);
  set_compute_threads(threads);
  return outcome;
}

double evaluated(const Lab& lab, const Seen& run, const std::string& file) {
  return strata(lab.path("x"), {"eval", "--model", run.checkpoint(run.result.step).string(), "--tokens",
                                lab.path(file).string(), "--sequence-length", "16", "--set",
                                "precision.compute=\"fp32\"", "--json"})
      .parsed()["loss"];
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace strata::contracts
