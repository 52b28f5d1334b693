// strata bench
#include <array>

#include "base/error.h"
#include "base/parallel.h"
#include "base/suggest.h"
#include "train/bench.h"
#include "train/commands.h"

namespace strata::train {

std::span<const Benchmark> benchmarks() {
  static constexpr std::array kAll{
      Benchmark{"peak", "GEMM peak in fp32 and bf16, memory and cache bandwidth", bench_peak, false},
      Benchmark{"step", "a training step against the GEMM peak, by kernel family; how soon a run begins",
                bench_step, true},
      Benchmark{"predict", "predicted against measured time, by kernel family, at three model sizes",
                bench_predict, true},
      Benchmark{"attention", "attention forward and backward against the GEMM peak", bench_attention, false},
      Benchmark{"load", "token loading as a share of a training step", bench_load, true},
      Benchmark{"eval", "evaluation, samples and checkpoints as a share of a run", bench_eval, true},
      Benchmark{"decode", "writing text against memory bandwidth: bytes of weights and cache a token",
                bench_decode, true},
  };
  return kAll;
}

namespace {

const Benchmark& find_benchmark(const std::string& name) {
  std::string known;
  for (const Benchmark& one : benchmarks()) {
    if (one.name == name) return one;
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  throw ConfigError("[bench] there is no benchmark \"{}\"; there are {}", name, known);
}

}  // namespace

int run_bench(const BenchOptions& options) {
  nlohmann::ordered_json out;
  if (options.list) {
    for (const Benchmark& one : benchmarks()) {
      if (!options.json) fmt::print("{:<10} {}\n", one.name, one.what);
      out["benchmarks"].push_back({{"name", one.name}, {"what", one.what}});
    }
    if (options.json) fmt::print("{}\n", out.dump());
    return 0;
  }
  std::vector<const Benchmark*> chosen;
  for (const std::string& name : options.names) chosen.push_back(&find_benchmark(name));
  if (chosen.empty()) {
    for (const Benchmark& one : benchmarks()) chosen.push_back(&one);
  }
  if (!options.sets.empty()) {
    for (const Benchmark* one : chosen) {
      if (!one->takes_sets && !options.names.empty())
        throw ConfigError("[bench] {} runs no model, so that --set changes nothing there", one->name);
    }
    std::erase_if(chosen, [](const Benchmark* one) { return !one->takes_sets; });
  }
  const int threads = available_processors();
  for (const Benchmark* one : chosen) {
    BenchContext context{threads, options.json, options.sets, {}};
    set_compute_threads(threads);
    context.print("{}: {}\n", one->name, one->what);
    one->run(context);
    context.print("\n");
    out[std::string(one->name)] = std::move(context.result);
  }
  if (options.json) fmt::print("{}\n", out.dump());
  return 0;
}

}  // namespace strata::train
