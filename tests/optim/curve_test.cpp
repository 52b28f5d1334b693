// Compares forty steps of each optimizer with PyTorch, bitsandbytes and the authors' code
// (tools/golden/make_optim_golden.py, which describes the problem).
#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "update_run.h"

namespace strata::optim {
namespace {

constexpr double kDecay = 0.1;

struct Tensor {
  uint64_t stream;
  Shape shape;
};
Tensor tensor_named(const std::string& name) {
  if (name == "wide") return {10, {24, 40}};
  if (name == "tall") return {20, {48, 20}};
  if (name == "square") return {30, {16, 16}};
  if (name == "large") return {40, {48, 96}};
  return {50, {56}};
}

struct Case {
  const char* name;
  Optimizer optimizer;
  double tolerance;      // of the loss, relative
  double end_tolerance;  // of the final parameter
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.name;
}

nlohmann::json golden_curves(const std::string& name) {
  return parse_json<nlohmann::json>(read_file(STRATA_TEST_DATA "/optim/curves.json")).at(name);
}

// Follows one golden curve.
void follow(const nlohmann::json& golden, const Case& one, UpdateRun& run, const Tensor& tensor) {
  const int64_t n = tensor.shape.elements();
  const auto wanted = golden.at("loss").get<std::vector<double>>();
  const double lr = golden.at("lr").get<double>();
  float* const p = run.values("p");
  for (int64_t i = 0; i < n; ++i) p[i] = number(tensor.stream, static_cast<uint64_t>(i));
  for (size_t step = 0; step < wanted.size(); ++step) {
    double loss = 0;
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<uint64_t>(i);
      const float target = number(tensor.stream + 1, at), weight = 1.25f + number(tensor.stream + 2, at);
      const float factor = 1 + 0.5f * number(1000 * (step + 1) + tensor.stream, at), off = p[i] - target;
      loss += 0.5 * double{weight} * (double{p[i]} - double{target}) * (double{p[i]} - double{target});
      const float pull = weight * off;
      run.gradient("p")[i] = pull * factor;
    }
    EXPECT_NEAR(loss, wanted[step], one.tolerance * wanted[step]) << "after " << step << " steps";
    if (step + 1 < wanted.size()) run.step(lr);
  }
  const auto end = golden.at("end").get<std::vector<double>>();
  for (size_t i = 0; i < end.size(); ++i) EXPECT_NEAR(p[i], end[i], one.end_tolerance) << "element " << i;
}

class Curve : public testing::TestWithParam<Case> {};

TEST_P(Curve, AgreesWithTheAuthorsCode) {
  for (const auto& golden : golden_curves(GetParam().name)) {
    SCOPED_TRACE(golden.at("tensor").get<std::string>());
    const Tensor tensor = tensor_named(golden.at("tensor"));
    UpdateRun run({{"p", tensor.shape}}, [](const std::string&, graph::ParameterRole) {
      return one_rule({kDecay, 1, GetParam().optimizer});
    });
    follow(golden, GetParam(), run, tensor);
    EXPECT_EQ(*run.at<int64_t>("updates"), 40);
  }
}

// "muon_torch" multiplies in bf16, Strata in fp32.
INSTANTIATE_TEST_SUITE_P(
    All, Curve,
    testing::Values(Case{"adamw", AdamW{}, 1e-6, 1e-6}, Case{"lion", Lion{}, 1e-6, 1e-6},
                    Case{"adafactor", Adafactor{}, 1e-6, 1e-6},
                    Case{"muon_original", Muon{.scale = MuonScale::kOriginal}, 1e-6, 2e-6},
                    Case{"muon_match_rms", Muon{}, 1e-6, 2e-6},
                    Case{"muon_without_nesterov", Muon{.nesterov = false, .scale = MuonScale::kOriginal},
                         1e-6, 2e-6},
                    Case{"muon_torch", Muon{.scale = MuonScale::kOriginal}, 3e-4, 2e-3},
                    Case{"adamw8bit", AdamW8Bit{}, 1e-6, 1e-5}, Case{"adopt", Adopt{}, 1e-6, 1e-6}),
    [](const auto& instance) { return std::string(instance.param.name); });

// Compares the codes of the moments too; a few may differ where the last bit of fp32 decides.
TEST(Curve, AdamW8BitEndsWithBitsandbytesCodes) {
  const auto golden = golden_curves("adamw8bit").at(0);
  const Tensor tensor = tensor_named("large");
  UpdateRun run({{"p", tensor.shape}}, [](const std::string&, graph::ParameterRole) {
    return one_rule({kDecay, 1, AdamW8Bit{}});
  });
  follow(golden, {"adamw8bit", AdamW8Bit{}, 1e-6, 1e-5}, run, tensor);
  for (const std::string name : {"m", "v"}) {
    const auto wanted = golden.at(name).get<std::string>();
    const uint8_t* codes = run.at<uint8_t>(name + ".p");
    int64_t others = 0;
    for (int64_t i = 0; i < tensor.shape.elements(); ++i) {
      const int code = std::stoi(wanted.substr(static_cast<size_t>(2 * i), 2), nullptr, 16);
      others += codes[i] != code;
    }
    EXPECT_LE(others, 5) << name;
    const auto scales = golden.at(name + "_scale").get<std::vector<double>>();
    for (size_t i = 0; i < scales.size(); ++i)
      EXPECT_NEAR(run.values(name + "_scale.p")[i], scales[i], 1e-5 * scales[i]) << name << " " << i;
  }
}

}  // namespace
}  // namespace strata::optim
