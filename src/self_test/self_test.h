// Checks a device against the reference kernels, the processor and recorded results: `strata doctor --self-test`.
//
// | part | what | needed to pass |
// | --- | --- | --- |
// | machine | the device, its driver, this machine and program | |
// | kernels | each case of an op on the kernels whose results the PTX executor recorded (expected.h) | if there is a record |
// | ops | each case of an op, with outputs also in the place of inputs, against reference kernels in fp64 | yes |
// | curves | twenty steps of small models against the processor's losses | yes |
// | resume | a run that is killed and resumed ends with the bits of one that was not | yes |
// | steps | the time of a step of models of the usual sizes, by family of kernels | |
// | rates | bandwidth and matmul rates, kept in the cache of device specs | |
//
// Parts run in this order, each within its share of the time, so that a cut self-test still has something of each. One thread.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/bench_model.h"
#include "device/device.h"

namespace strata::self_test {

enum class State : uint8_t {
  kPassed,
  kFailed,
  kCut,     // its time was over: nothing that ran has failed
  kNotRun,  // the summary has the reason
};
std::string_view name_of(State state);  // "passed", "failed", "cut", "not run"

struct Part {
  std::string name;
  State state = State::kNotRun;
  std::string summary;                // one line
  std::vector<std::string> failures;  // sentences
  nlohmann::ordered_json facts = nlohmann::ordered_json::object();
  double seconds = 0;
};

struct Options {
  double minutes = 8;
  Path expected;  // of bench/gpu: the executor's results; empty: the part kernels is not run
  Path program;   // started by the part resume; empty: this program
  // Of the part steps; those that do not fit into the device's memory are named.
  std::vector<std::string> models = {"llama3-29m", "gpt2-124m", "qwen3-0.6b", "qwen3-1.7b"};
  int64_t step_tokens = 16384;
  std::function<void(const Part&)> finished = [](const Part&) {};
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

struct Result {
  std::string device;
  std::vector<Part> parts;
  double seconds = 0;

  bool passed() const;
  bool failed() const;  // some part has; neither: a part that is needed was cut or not run
};

// An error of the device is a failure of its part; after it nothing else is run. ConfigError and DataError for a file of
// expected results that cannot be used.
Result test_device(const std::shared_ptr<device::Device>& device, const Options& options);

nlohmann::ordered_json to_json(const Part& part);

}  // namespace strata::self_test
