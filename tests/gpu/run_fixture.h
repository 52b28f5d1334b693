// Whole runs on the GPU device, whose driver is the twin, and the same runs on the processor.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "fixtures/tiny_run.h"
#include "twin/twin.h"

namespace strata::training {

using gpu_tests::Twin;

inline const Sets kOnGpu{"device.kind=\"cuda\""};
// The executor takes a quarter of a second for a step of this size.
inline const Sets kSmall{"model.num_hidden_layers=1",     "training.sequence_length=8",
                         "training.global_batch_size=2",  "training.micro_batch_size=1",
                         "memory.budget=\"200MB\"",       "recovery.snapshot=\"never\"",
                         "checkpoint.interval=\"never\"", "recovery.in_memory=false"};

class GpuRun : public testing::Test {
 protected:
  TrainResult cpu(const Sets& sets, const std::string& name) { return tiny_.train(kSmall + sets, name); }
  // With these settings of the twin, which must find no fault.
  TrainResult gpu(const Sets& sets, const std::string& name, const std::string& twin = "",
                  int64_t steps = -1) {
    twin_.restart(twin);
    TrainResult result = tiny_.train(kSmall + kOnGpu + sets, name, steps);
    EXPECT_EQ(twin_.violation(), "") << name;
    return result;
  }
  std::vector<double> values(const std::string& name, const std::string& key) const {
    return values_of(tiny_.folder(name), key);
  }
  // Relative; both have the same number of values.
  void expect_near(const std::string& found, const std::string& expected, const std::string& key,
                   double tolerance) const {
    const std::vector<double> a = values(found, key), b = values(expected, key);
    ASSERT_EQ(a.size(), b.size()) << key;
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], tolerance * std::abs(b[i])) << key << " of step " << i + 1;
  }
  // Metrics with digests of weights, and the last checkpoint.
  void expect_same(const std::string& found, const std::string& expected, int64_t steps) const {
    EXPECT_EQ(metrics_of(tiny_.folder(found)).steps, metrics_of(tiny_.folder(expected)).steps) << found;
    EXPECT_EQ(digests(found), digests(expected)) << found;
    const FinalBits a = bits_of(tiny_.folder(found), steps), b = bits_of(tiny_.folder(expected), steps);
    EXPECT_TRUE(a.model == b.model) << found << ": weights differ";
    EXPECT_TRUE(a.optimizer == b.optimizer) << found << ": moments differ";
  }
  std::vector<std::string> digests(const std::string& name) const {
    std::vector<std::string> out;
    std::istringstream lines(read_file(tiny_.folder(name) / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto json = parse_json<nlohmann::json>(line);
      if (json.contains("weights_digest")) out.push_back(json.at("weights_digest"));
    }
    return out;
  }
  // "NAME at STEP", with the rule and action of interventions.
  std::vector<std::string> events(const std::string& name, const std::string& event) const {
    std::vector<std::string> out;
    for (const auto& one : metrics_of(tiny_.folder(name)).events) {
      if (one.at("event") != event) continue;
      out.push_back(one.value("rule", "") + " " + one.value("action", "") + " at " +
                    std::to_string(one.at("at_step").get<int64_t>()));
    }
    return out;
  }

  TinyRun tiny_;
  const Twin twin_;
};

}  // namespace strata::training
