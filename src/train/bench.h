// The built-in benchmarks. Each prints a table, or adds to a JSON object, what it measured in one run of this
// process; ratios compare figures that were measured alternately.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hardware/device_spec.h"

namespace strata::train {

struct BenchContext {
  int threads = 1;
  bool json = false;
  std::vector<std::string> sets;  // KEY=VALUE of a run's configuration
  nlohmann::ordered_json result;  // of the running benchmark

  template <typename... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) const {
    if (!json) fmt::print(format, std::forward<Args>(args)...);
  }
};

struct Benchmark {
  std::string_view name, what;
  void (*run)(BenchContext&);
  bool takes_sets;  // it runs a model, which --set may choose
};
std::span<const Benchmark> benchmarks();

void bench_peak(BenchContext& context);       // bench_machine.cpp
void bench_attention(BenchContext& context);  // bench_machine.cpp
void bench_step(BenchContext& context);       // bench_step.cpp
void bench_predict(BenchContext& context);    // bench_predict.cpp
void bench_load(BenchContext& context);       // bench_costs.cpp
void bench_eval(BenchContext& context);       // bench_costs.cpp
void bench_decode(BenchContext& context);     // bench_decode.cpp

}  // namespace strata::train
