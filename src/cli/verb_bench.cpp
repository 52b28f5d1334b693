// strata bench

#include "base/error.h"
#include "base/json.h"
#include "base/parallel.h"
#include "base/suggest.h"
#include "benchmarks/benchmarks.h"
#include "cli/actions.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace strata::cli {

namespace {

const benchmarks::Benchmark& find_benchmark(const std::string& name) {
  std::string known;
  for (const benchmarks::Benchmark& one : benchmarks::benchmarks()) {
    if (one.name == name) return one;
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  throw ConfigError("[bench] there is no benchmark \"{}\"; there are {}", name, known);
}

}  // namespace

int run_bench(const BenchOptions& options) {
  nlohmann::ordered_json out;
  if (options.list) {
    for (const benchmarks::Benchmark& one : benchmarks::benchmarks()) {
      if (!options.json) print_out("{:<10} {}\n", one.name, one.what);
      out["benchmarks"].push_back({{"name", one.name}, {"what", one.what}});
    }
    if (options.json) print_out("{}\n", dump_json(out));
    return 0;
  }
  std::vector<const benchmarks::Benchmark*> chosen;
  for (const std::string& name : options.names) chosen.push_back(&find_benchmark(name));
  if (chosen.empty()) {
    for (const benchmarks::Benchmark& one : benchmarks::benchmarks()) chosen.push_back(&one);
  }
  if (!options.sets.empty()) {
    for (const benchmarks::Benchmark* one : chosen) {
      if (!one->takes_sets && !options.names.empty())
        throw ConfigError("[bench] {} runs no model, so --set has no effect on it", one->name);
    }
    std::erase_if(chosen, [](const benchmarks::Benchmark* one) { return !one->takes_sets; });
  }
  const int threads = available_processors();
  const auto print = [&](const std::string& text) {
    if (options.json) return;
    print_out(text);
    flush_out();  // a benchmark takes minutes; one that is stopped has then printed its results so far
  };
  for (const benchmarks::Benchmark* one : chosen) {
    auto& result = out[std::string(one->name)];
    benchmarks::BenchContext context{threads, print, options.sets, result};
    set_compute_threads(threads);
    context.print("{}: {}\n", one->name, one->what);
    one->run(context);
    context.print("\n");
  }
  if (options.json) print_out("{}\n", dump_json(out));
  return 0;
}

void add_bench(Verb root) {
  auto options = std::make_shared<BenchOptions>();
  Verb verb = root.verb("bench", "Run the built-in benchmarks, as ratios to this machine's measured limits",
                        "strata bench step --set model.preset=llama3-29m --set training.micro_batch_size=8");
  verb.option("NAME", options->names, "Only these; left out: all");
  verb.flag("--list", options->list, "List the benchmarks and stop");
  verb.sets(options->sets).suggest(configuration_keys());
  verb.json(options->json);
  verb.action([options] { return run_bench(*options); });
}

}  // namespace strata::cli
