#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/version.h"
#include "benchmarks/bench_run.h"
#include "device/open/open.h"
#include "observe/metrics.h"
#include "self_test/parts.h"

namespace strata::self_test {
namespace {

using Json = nlohmann::ordered_json;

std::string system_text() {
  utsname names{};
  if (::uname(&names) != 0) return "unknown";
  return fmt::format("{} {}", names.sysname, names.release);
}

std::string c_library() {
  std::string text(128, '\0');
  const size_t size = ::confstr(_CS_GNU_LIBC_VERSION, text.data(), text.size());
  return size == 0 ? "unknown" : text.substr(0, std::min(size, text.size()) - 1);
}

constexpr int kRunSteps = 12, kKilledStep = 7, kSaveInterval = 3;

// A small run on the device, on synthetic tokens.
class SmallRun {
 public:
  SmallRun(const DevicePtr& device, Path program)
      : folder_({}), device_(device->spec().kind == "cpu" ? "cpu" : "cuda"), program_(std::move(program)) {
    std::string tokens;
    for (int64_t i = 0; i < 4096; ++i) {
      const int64_t token = (i * i * 7 + i * 31) % 509;
      tokens += static_cast<char>(token & 0xff);
      tokens += static_cast<char>(token >> 8);
    }
    write_file_atomically(posix_file_system(), folder_.path() / "tokens.bin", tokens);
  }

  Path folder(const std::string& name) const { return folder_.path() / name; }
  // WorldError if the process fails or takes longer than `seconds`.
  void train(const std::string& name, const std::vector<std::string>& sets, double seconds) const {
    const Path toml = folder_.path() / (name + ".toml");
    write_file_atomically(posix_file_system(), toml,
                          fmt::format("[run]\nfolder = \"{}\"\n[model]\npreset = \"llama3-5m\"\n"
                                      "[model.override]\nnum_hidden_layers = 2\nvocab_size = 512\n"
                                      "hidden_size = 64\nintermediate_size = 128\nnum_attention_heads = 2\n"
                                      "num_key_value_heads = 1\nhead_dim = 32\n"
                                      "[data]\ntrain = [\"{}\"]\n"
                                      "[training]\nsequence_length = 16\nglobal_batch_size = 2\n"
                                      "micro_batch_size = 1\nsteps = {}\n"
                                      "[schedule]\nwarmup_steps = 2\n"
                                      "[checkpoint]\ninterval = {}\n[device]\nkind = \"{}\"\n",
                                      folder(name).string(), (folder_.path() / "tokens.bin").string(),
                                      kRunSteps, kSaveInterval, device_));
    std::vector<std::string> words{"train", toml.string()};
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    benchmarks::run_self(words, folder_.path() / (name + ".log"), {.program = program_, .seconds = seconds});
  }
  int64_t steps_recorded(const std::string& name) const {
    return std::ssize(observe::read_metrics(folder(name) / "metrics.jsonl").steps());
  }
  std::string weights(const std::string& name) const {
    return read_file(folder(name) / "final" / "model.safetensors");
  }

 private:
  benchmarks::BenchFolder folder_;
  std::string device_;
  Path program_;
};

}  // namespace

void test_machine(const DevicePtr& device, const Options&, TimeLimit, Part& part) {
  const hardware::DeviceSpec processor = device::open(device::Kind::kCpu)->spec();
  part.facts = {{"program", program_version()},
                {"device", Json::parse(hardware::to_json(device->spec()))},
                {"device_memory_free", device->free_memory()},
                {"device_used_by", device->other_users()},
                {"processor", processor.name},
                {"cores", processor.cores},
                {"instructions", processor.isa.str()},
                {"memory_available", available_memory()},
                {"system", system_text()},
                {"c_library", c_library()}};
  const hardware::DeviceSpec& spec = device->spec();
  part.summary = fmt::format("{}, compute capability {}.{}, {} multiprocessors, {:.1f} of {:.1f} GB free, {}",
                             spec.name, spec.architecture / 10, spec.architecture % 10, spec.multiprocessors,
                             static_cast<double>(device->free_memory()) / 1e9,
                             static_cast<double>(spec.memory_bytes) / 1e9, spec.library);
}

namespace {

void compare_runs(const DevicePtr& device, const Options& options, TimeLimit limit, Part& part) {
  const SmallRun run(device, options.program);
  // A run that hangs must not take the time of all later parts.
  const auto seconds = [&] { return 2 * std::max(1.0, limit.left()); };
  run.train("whole", {}, seconds());
  options.progress("resume: the run that is not killed has ended");
  bool killed = false;
  try {
    run.train("killed", {fmt::format("debug.inject=[\"kill@step={}\"]", kKilledStep)}, seconds());
  } catch (const WorldError&) {
    killed = true;
  }
  const int64_t before = run.steps_recorded("killed");
  part.facts = {{"steps", kRunSteps}, {"killed_in_step", kKilledStep}, {"steps_before_the_kill", before}};
  if (!killed || before < kSaveInterval || before >= kRunSteps) {
    part.failures.push_back(
        fmt::format("the run that was to be killed in step {} made {} steps", kKilledStep, before));
    return;
  }
  run.train("killed", {"debug.inject=[]"}, seconds());
  part.facts["steps_after_the_resume"] = run.steps_recorded("killed");
  const std::string whole = run.weights("whole"), resumed = run.weights("killed");
  const auto differs = std::mismatch(whole.begin(), whole.end(), resumed.begin(), resumed.end());
  if (differs.first != whole.end() || differs.second != resumed.end()) {
    part.failures.push_back(fmt::format(
        "a run that was killed in step {} and resumed has other weights than one that was not: byte {} of {}",
        kKilledStep, differs.first - whole.begin(), whole.size()));
  }
  part.summary = fmt::format("killed in step {} of {}, resumed: {}", kKilledStep, kRunSteps,
                             part.failures.empty() ? "the same bits" : "other bits");
}

}  // namespace

void test_resume(const DevicePtr& device, const Options& options, TimeLimit limit, Part& part) {
  try {
    compare_runs(device, options, limit, part);
  } catch (const WorldError&) {
    if (!limit.over()) throw;
    part.state = State::kCut;
    part.summary = "the runs did not end in time";
  }
}

void test_steps(const DevicePtr& device, const Options& options, TimeLimit limit, Part& part) {
  constexpr int kLeast = 3, kMost = 30;
  std::vector<std::string> lines;
  size_t ran = 0;
  for (const std::string& preset : options.models) {
    if (limit.over()) {
      part.state = State::kCut;
      break;
    }
    const int64_t length = std::min<int64_t>(1024, options.step_tokens);
    const benchmarks::BenchCase bench = benchmarks::preset_case(
        preset, std::max<int64_t>(1, options.step_tokens / length), length, DType::kBF16);
    std::unique_ptr<benchmarks::BenchModel> model;
    try {
      model = std::make_unique<benchmarks::BenchModel>(bench, device);
    } catch (const WorldError& error) {
      // Too little memory; another error shows when the device is used next.
      part.facts[bench.name()] = {{"not_run", error.what()}};
      lines.push_back(bench.name() + " does not fit");
      continue;
    }
    model->step();
    std::vector<double> seconds;
    const double begin = monotonic_seconds();
    while (std::ssize(seconds) < kLeast ||
           (std::ssize(seconds) < kMost && monotonic_seconds() < begin + 10 && !limit.over()))
      seconds.push_back(model->step());
    const double step = benchmarks::median(seconds);
    // Waiting for each segment takes time too, so families are timed in another step.
    model->executor().time_calls(true);
    model->step();
    model->reset();
    model->step();
    Json families = Json::object();
    for (const program::FamilyTotal& family : model->measured().families)
      families[family.family] = family.seconds;
    part.facts[bench.name()] = {{"step_seconds", step},
                                {"steps", seconds.size()},
                                {"tokens_per_s", static_cast<double>(model->tokens()) / step},
                                {"model_flops_per_s", model->flops() / step},
                                {"arena_bytes", model->executor().arena_bytes()},
                                {"family_seconds", families}};
    ++ran;
    lines.push_back(fmt::format("{} {:.2f} ms", bench.name(), 1e3 * step));
    options.progress("steps: " + lines.back());
  }
  if (ran == 0 && part.state == State::kPassed) part.state = State::kNotRun;
  part.summary = lines.empty() ? "no time was left" : fmt::format("{}", fmt::join(lines, ", "));
}

void test_rates(const DevicePtr& device, const Options&, TimeLimit, Part& part) {
  const hardware::DeviceSpec spec = device->measured(posix_file_system(), true);
  part.facts = Json::parse(hardware::to_json(spec));
  part.summary = fmt::format(
      "{:.0f} TFLOP/s bf16, {:.1f} fp32, {:.0f} GB/s of copies, {:.1f} us to start work",
      spec.gemm_flops[hardware::Precision::kBf16] / 1e12, spec.gemm_flops[hardware::Precision::kFp32] / 1e12,
      spec.memory_bytes_per_s / 1e9, spec.launch_seconds * 1e6);
}

}  // namespace strata::self_test
