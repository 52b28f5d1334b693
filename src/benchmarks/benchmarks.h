// The built-in benchmarks. Each produces a table and a JSON object from one run of this process; ratios
// compare figures that were measured alternately.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hardware/device_spec.h"

namespace strata::benchmarks {

struct BenchContext {
  int threads = 1;
  std::function<void(const std::string&)> show;  // prints a part of the table
  std::vector<std::string> sets;                 // KEY=VALUE settings of a run's configuration
  nlohmann::ordered_json& result;                // receives the fields of the running benchmark

  template <typename... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) const {
    show(fmt::format(format, std::forward<Args>(args)...));
  }
};

struct Benchmark {
  std::string_view name, what;  // what: one line for the help
  void (*run)(BenchContext&);
  bool takes_sets;  // runs a model, which --set can select
};
std::span<const Benchmark> benchmarks();

void bench_peak(BenchContext& context);         // machine.cpp
void bench_attention(BenchContext& context);    // machine.cpp
void bench_collectives(BenchContext& context);  // collectives.cpp
void bench_experts(BenchContext& context);      // experts.cpp
void bench_step(BenchContext& context);         // step.cpp
void bench_predict(BenchContext& context);      // predict.cpp
void bench_compile(BenchContext& context);      // compile.cpp
void bench_ranks(BenchContext& context);        // ranks.cpp
void bench_pipeline(BenchContext& context);     // pipeline.cpp
void bench_simulate(BenchContext& context);     // simulate.cpp
void bench_load(BenchContext& context);         // costs.cpp
void bench_eval(BenchContext& context);         // costs.cpp
void bench_saves(BenchContext& context);        // saves.cpp
void bench_decode(BenchContext& context);       // decode.cpp
void bench_monitors(BenchContext& context);     // monitors.cpp
void bench_precision(BenchContext& context);    // precision.cpp

}  // namespace strata::benchmarks
