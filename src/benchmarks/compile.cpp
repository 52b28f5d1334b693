// strata bench compile: time and memory to compile a step program, by layers and by parameters.
#include <fmt/core.h>
#include <ctime>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/json.h"
#include "benchmarks/bench_model.h"
#include "benchmarks/bench_run.h"
#include "benchmarks/benchmarks.h"
#include "config/plan.h"
#include "device/open/open.h"

namespace strata::benchmarks {
namespace {

constexpr int kRepeats = 5;
constexpr double kGoalSeconds = 1;
constexpr int64_t kGoalBytes = 1'000'000'000;

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// A run that is compiled but never started: its folder and its configuration.
class CompileCase {
 public:
  explicit CompileCase(std::vector<std::string> sets) : folder_({}) {
    sets.emplace_back("training.global_batch_size=16");
    sets.emplace_back("training.micro_batch_size=1");
    const config::RunConfig config = bench_config(sets, folder_.path());
    write_file_atomically(posix_file_system(), run_toml(), config::commented_toml(config, "strata bench"));
    plan_ = config::make_plan(
        config,
        {.files = posix_file_system(), .data = config::PlanOptions::Data::kFromWhatIsThere, .places = {}});
  }

  const models::ModelConfig& model() const { return plan_->model; }

  // Processor time, which other load disturbs least; the minimum of several repetitions.
  double compile_seconds() const {
    double best = 0;
    for (int i = 0; i < kRepeats; ++i) {
      const double begin = thread_seconds();
      compile(plan_->config);
      const double seconds = thread_seconds() - begin;
      best = i == 0 ? seconds : std::min(best, seconds);
    }
    return best;
  }

  int64_t arena_bytes(program::Recompute recompute) const {
    config::RunConfig config = plan_->config;
    config.memory.recompute = recompute;
    return compile(config)->arena_bytes;
  }

  // The best of several processes.
  SelfRun explain(int64_t budget) const {
    SelfRun best;
    for (int i = 0; i < kRepeats; ++i) {
      const SelfRun run = run_self({"explain", run_toml().string(), "--set",
                                    fmt::format("memory.budget=\"{} MB\"", budget / 1'000'000)},
                                   folder_.path() / "log");
      best.seconds = i == 0 ? run.seconds : std::min(best.seconds, run.seconds);
      best.cpu_seconds = i == 0 ? run.cpu_seconds : std::min(best.cpu_seconds, run.cpu_seconds);
      best.peak_resident_bytes = std::max(best.peak_resident_bytes, run.peak_resident_bytes);
    }
    return best;
  }

 private:
  std::shared_ptr<const program::ProgramSet> compile(const config::RunConfig& config) const {
    return config::compile_run(config, plan_->model, {config, plan_->model}, plan_->data.tasks).set;
  }
  Path run_toml() const { return folder_.path() / "run.toml"; }

  BenchFolder folder_;
  std::shared_ptr<const config::RunPlan> plan_;
};

constexpr int64_t kAnyBudget = 1'000'000'000'000'000;

std::string budget_set() {
  return fmt::format("memory.budget=\"{} MB\"", kAnyBudget / 1'000'000);
}

// Slope of log y over log x by least squares: 1 is linear, 0 constant.
double growth(const std::vector<double>& x, const std::vector<double>& y) {
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  const auto n = static_cast<double>(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double a = std::log(x[i]), b = std::log(y[i]);
    sx += a;
    sy += b;
    sxx += a * a;
    sxy += a * b;
  }
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

// One row per case, then the growth of the time from the first row to the last.
class Table {
 public:
  Table(BenchContext& context, const char* key, const char* what) : context_(context), key_(key) {
    context_.print("\n{}; times are processor time\n  {:>8} {:>8} {:>12} {:>12} {:>12} {:>16}\n", what,
                   "layers", "width", "parameters", "compile", "explain", "peak resident");
  }

  void add(double along, const CompileCase& one) {
    const SelfRun explain = one.explain(kAnyBudget);
    const double seconds = one.compile_seconds();
    const auto parameters = static_cast<double>(models::parameter_count(one.model()));
    context_.print("  {:>8} {:>8} {:>12} {:>9.1f} ms {:>9.0f} ms {:>16}\n", one.model().layers,
                   one.model().hidden_size, human_count(parameters), 1e3 * seconds, 1e3 * explain.cpu_seconds,
                   human_bytes(static_cast<double>(explain.peak_resident_bytes)));
    along_.push_back(along);
    compile_.push_back(seconds);
    resident_.push_back(static_cast<double>(explain.peak_resident_bytes));
    context_.result[key_]["rows"].push_back({{"layers", one.model().layers},
                                             {"hidden_size", one.model().hidden_size},
                                             {"parameters", parameters},
                                             {"compile_cpu_seconds", seconds},
                                             {"explain_seconds", explain.seconds},
                                             {"explain_cpu_seconds", explain.cpu_seconds},
                                             {"explain_peak_resident_bytes", explain.peak_resident_bytes}});
  }

  // With `layers`, also the memory that each layer adds to that of an empty process.
  void finish(bool layers) {
    const double time = growth(along_, compile_);
    auto& json = context_.result[key_];
    json["compile_exponent"] = time;
    context_.print("  compile time grows with exponent {:.2f} (1: linear, 0: constant)\n", time);
    if (!layers) return;
    const size_t last = along_.size() - 1, middle = last / 2;
    const double few = added(0, middle), many = added(middle, last);
    context_.print("  each layer adds {} of memory up to {} layers, and {} beyond\n", human_bytes(few),
                   along_[middle], human_bytes(many));
    json["resident_bytes_a_layer"] = {few, many};
  }

 private:
  double added(size_t from, size_t to) const {
    return (resident_[to] - resident_[from]) / (along_[to] - along_[from]);
  }

  BenchContext& context_;
  const char* key_;
  std::vector<double> along_, compile_, resident_;
};

void explain_large(BenchContext& context) {
  const CompileCase one({"model.preset=\"llama3.1-405b\"", "training.sequence_length=8192", budget_set()});
  const int64_t none = one.arena_bytes(program::Recompute::kNone);
  const int64_t selective = one.arena_bytes(program::Recompute::kSelective);
  const int64_t full = one.arena_bytes(program::Recompute::kFull);
  context.print("\nstrata explain of llama3.1-405b, 8192 tokens, one process each (goals: {} s, {})\n",
                kGoalSeconds, human_bytes(static_cast<double>(kGoalBytes)));
  const auto row = [&](const char* key, const char* what, int64_t budget) {
    const SelfRun run = one.explain(budget);
    context.print("  {:<48} {:>8.2f} s {:>8.2f} s of CPU {:>12}\n", what, run.seconds, run.cpu_seconds,
                  human_bytes(static_cast<double>(run.peak_resident_bytes)));
    context.result["llama3.1-405b"][key] = {{"budget_bytes", budget},
                                            {"seconds", run.seconds},
                                            {"cpu_seconds", run.cpu_seconds},
                                            {"peak_resident_bytes", run.peak_resident_bytes}};
  };
  row("fits", "fits the budget", none + 1'000'000);
  row("recompute", "fits with some layers recomputed", (selective + full) / 2);
  row("remedies", "does not fit; alternatives are searched", full - 1'000'000);
}

}  // namespace

void bench_compile(BenchContext& context) {
  // Measure the machine's rates now, so that the first `explain` process does not.
  device::open(device::Kind::kCpu, 0, context.threads)->measured(posix_file_system());
  const auto sized = [](int64_t layers, int64_t width) {
    return CompileCase({"model.family=\"llama3\"", fmt::format("model.num_hidden_layers={}", layers),
                        fmt::format("model.hidden_size={}", width),
                        fmt::format("model.intermediate_size={}", 3 * width),
                        fmt::format("model.num_attention_heads={}", width / 64),
                        fmt::format("model.num_key_value_heads={}", width / 128), "model.head_dim=64",
                        "model.vocab_size=32000", "training.sequence_length=1024",
                        "model.max_position_embeddings=2048", budget_set()});
  };
  {
    Table table(context, "layers", "by layers, llama3 of constant width");
    for (int64_t layers = 8; layers <= 512; layers *= 2)
      table.add(static_cast<double>(layers), sized(layers, 1024));
    table.finish(true);
  }
  {
    Table table(context, "parameters", "by parameters, llama3 of 32 layers");
    for (int64_t width = 256; width <= 16384; width *= 4) {
      const CompileCase one = sized(32, width);
      table.add(static_cast<double>(models::parameter_count(one.model())), one);
    }
    table.finish(false);
  }
  explain_large(context);
}

}  // namespace strata::benchmarks
