// The matmuls of experts in nvfp4 against NumPy (tools/golden/precision_experts.py).
#include <gtest/gtest.h>

#include "fixtures/host_device.h"
#include "kernels/cpu/scaled_experts.h"
#include "kernels/cpu/scaled_testing.h"
#include "quantize/golden.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

using quantize::ScaleRule;
using testing::QuantizedOperand;
using Json = nlohmann::json;

struct GoldenExperts {
  const Json& file;
  bool treats_gradients;  // the transform, and stochastic rounding

  int64_t number(const char* name) const { return file[name].get<int64_t>(); }
  std::vector<int32_t> ids() const { return file["ids"].get<std::vector<int32_t>>(); }
  RandomKey key(uint32_t stream) const {
    return {file["seed"].get<uint64_t>(), file["stream"].get<uint32_t>() + stream};
  }
  int64_t rows(bool by_pair) const { return number("tokens") * (by_pair ? number("k") : 1); }

  // Samples of 60 tokens; of pairs, the expert is part of the place.
  std::vector<int32_t> places(bool by_pair) const {
    std::vector<int32_t> all;
    const std::vector<int32_t> experts = ids();
    for (int64_t row = 0; row < rows(by_pair); ++row) {
      const int64_t token = by_pair ? row / number("k") : row, place = token % 60;
      all.push_back(static_cast<int32_t>(7 + token / 60));
      all.push_back(static_cast<int32_t>(
          by_pair ? place * number("experts") + experts[static_cast<size_t>(row)] : place));
    }
    return all;
  }

  QuantizedOperand operand(bool by_pair, int64_t columns, uint32_t stream, bool is_gradient) const {
    const std::vector<float> x = quantize::golden_matrix(key(stream), rows(by_pair), columns, false);
    const std::vector<int32_t> of_rows = places(by_pair);
    QuantizedOperand made{.operand = {ScaleRule::nvfp4_by_row()}, .count = rows(by_pair), .depth = columns};
    auto source = quantize::source_of(x, rows(by_pair), columns);
    source.places = of_rows.data();
    quantize::Treatment treatment{made.operand.rule};
    if (is_gradient && treats_gradients) treatment.stochastic = {key(stream)};
    made.result = quantize::quantized(source, treatment, quantize::Along::kRows);
    return made;
  }
};

std::vector<float> computed(const GoldenExperts& golden, ExpertsRole role, bool pairs) {
  const int64_t outputs = golden.number("outputs"), inputs = golden.number("inputs"),
                experts = golden.number("experts");
  const bool is_forward = role == ExpertsRole::kIn || role == ExpertsRole::kOut,
             grads_weight = role == ExpertsRole::kInGradWeight || role == ExpertsRole::kOutGradWeight,
             a_by_pair = role == ExpertsRole::kInGradInput || role == ExpertsRole::kInGradWeight ||
                         role == ExpertsRole::kOut;
  const QuantizedOperand a = golden.operand(a_by_pair, is_forward ? inputs : outputs, is_forward ? 1 : 2,
                                            !is_forward),
                         b = grads_weight ? golden.operand(!a_by_pair, inputs, 1, false)
                                          : testing::quantized_operand(
                                                {ScaleRule::nvfp4_square()},
                                                quantize::golden_matrix(golden.key(0), experts * outputs,
                                                                        inputs, false),
                                                experts * outputs, inputs);
  ScaledExpertsSpec spec{.experts = {.role = role,
                                     .tokens = golden.number("tokens"),
                                     .k = golden.number("k"),
                                     .experts = experts,
                                     .outputs = outputs,
                                     .inputs = inputs,
                                     .dtype = DType::kF32},
                         .a = a.operand.rule,
                         .b = b.operand.rule};
  if (grads_weight) spec.a_along_pairs = spec.b_along_pairs = ScaleRule::nvfp4_by_row();
  if (grads_weight && golden.treats_gradients) {
    spec.hadamard = {golden.file["signs"].get<uint16_t>()};
    spec.stochastic = {golden.key(3)};
  }
  hardware::DeviceSpec device = fixtures::host_device();
  device.isa.avx512_bf16 = pairs;
  device.isa.amx = false;
  const ScaledExpertsPlan plan = plan_scaled_experts(spec, device);
  Arena scratch(plan.scratch_bytes);
  const int64_t rows = grads_weight ? experts * outputs : golden.rows(!a_by_pair);
  std::vector<float> c(static_cast<size_t>(rows * (is_forward ? outputs : inputs)));
  const std::vector<int32_t> ids = golden.ids(), places = golden.places(a_by_pair);
  run_scaled_experts(plan, a.matrix(), ids.data(), nullptr, b.matrix(), c.data(), scratch.data(),
                     {places.data(), {}, outputs});
  return c;
}

TEST(ScaledExpertsGolden, Nvfp4HasTheSumsOfNumPy) {
  const Json file = quantize::golden("experts.json");
  const std::vector<std::pair<const char*, ExpertsRole>> roles{
      {"in", ExpertsRole::kIn},
      {"in_grad_input", ExpertsRole::kInGradInput},
      {"in_grad_weight", ExpertsRole::kInGradWeight},
      {"out", ExpertsRole::kOut},
      {"out_grad_input", ExpertsRole::kOutGradInput},
      {"out_grad_weight", ExpertsRole::kOutGradWeight}};
  for (const char* const matmuls : {"matmuls", "plain"}) {
    const GoldenExperts golden{file, std::string_view(matmuls) == "matmuls"};
    for (const auto& [name, role] : roles) {
      if (!file[matmuls].contains(name)) continue;
      const bool grads_weight = std::string_view(name).ends_with("weight");
      const auto shown = file[grads_weight ? "shown_of_weights" : "shown"].get<std::vector<int64_t>>();
      const auto sums = file[matmuls][name]["sums"].get<std::vector<double>>(),
                 sizes = file[matmuls][name]["sizes"].get<std::vector<double>>();
      const size_t columns = sums.size() / shown.size();
      for (const bool pairs : {false, true}) {
        SCOPED_TRACE(std::string(matmuls) + ", " + name + (pairs ? ", pairs" : ""));
        const std::vector<float> got = computed(golden, role, pairs);
        for (size_t i = 0; i < shown.size(); ++i) {
          for (size_t j = 0; j < columns; ++j)
            ASSERT_NEAR(got[static_cast<size_t>(shown[i]) * columns + j], sums[i * columns + j],
                        32 * 0x1p-24 * sizes[i * columns + j] + 1e-37)
                << shown[i] << ' ' << j;
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata::cpu
