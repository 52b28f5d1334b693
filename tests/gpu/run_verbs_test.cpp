// Verbs that use a trained model, on the GPU device with device.kind, whose driver is the twin.
#include <nlohmann/json.hpp>

#include "fixtures/environment.h"
#include "fixtures/program_process.h"
#include "run_fixture.h"

namespace strata::training {
namespace {

class GpuVerbs : public GpuRun {
 protected:
  // `strata eval` of the trained run; the exit code.
  int evaluate(const std::string& device, const std::string& twin = "") const {
    const fixtures::Environment settings("STRATA_TWIN", twin);
    return Process({"eval", "--model", tiny_.folder().string(), "--tokens", tiny_.path("train.bin").string(),
                    "--sequence-length", "16", "--set", "device.kind=" + device, "--json"},
                   output_)
        .wait();
  }
  std::string output() const { return read_file(output_); }

  const Path output_ = tiny_.path("output");
};

TEST_F(GpuVerbs, EvalHasTheProcessorsLoss) {
  tiny_.train_with({.config = config::parse_run_config(tiny_.toml(), "RUN.toml", kSmall)});
  const auto loss_on = [&](const std::string& device) {
    EXPECT_EQ(evaluate(device), 0) << output();
    // Lines of progress come first on a slow machine.
    return nlohmann::json::parse(output().substr(output().find('{'))).at("loss").get<double>();
  };
  const double expected = loss_on("cpu");
  EXPECT_NEAR(loss_on("cuda"), expected, 2e-5 * expected);
  EXPECT_EQ(evaluate("cuda", "memory=64KiB"), 4);
  EXPECT_NE(output().find("65.5 kB are free on PTX executor"), std::string::npos) << output();
}

}  // namespace
}  // namespace strata::training
