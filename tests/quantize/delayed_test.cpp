// Delayed scaling: scales and codes of many steps against NumPy with ml_dtypes' casts, which follows Transformer Engine's
// documentation (tools/golden/precision_delayed.py), and histories by hand.
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "fixtures/every_target.h"
#include "quantize/delayed.h"
#include "quantize/golden.h"
#include "quantize/quantizer_testing.h"

namespace strata::quantize {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const std::map<std::string, Format> kFormats{{"e4m3", Format::kE4M3}, {"e5m2", Format::kE5M2}};

float float_of(const nlohmann::json& bits) {
  return std::bit_cast<float>(bits.get<uint32_t>());
}

// As the Python script makes that of a step.
std::vector<float> matrix_of(const nlohmann::json& file, size_t step) {
  const RandomKey key{file["seed"].get<uint64_t>(), file["stream"].get<uint32_t>()};
  std::vector<float> x(file["rows"].get<size_t>() * file["columns"].get<size_t>());
  for (size_t i = 0; i < x.size(); ++i) {
    const uint32_t word = random_word({key, static_cast<uint32_t>(step)}, static_cast<int64_t>(i));
    x[i] = (static_cast<float>(word >> 8) * 0x1p-23f - 1.0f) * float_of(file["factors"][step]);
  }
  if (step == file["nan_step"].get<size_t>()) x[3 * file["columns"].get<size_t>() + 5] = std::nanf("");
  if (step == file["infinite_step"].get<size_t>()) x.back() = -kInfinity;
  return x;
}

TEST(Delayed, CodesAndScalesOfStepsAreEqualByteForByte) {
  const auto file = golden("delayed.json");
  const auto rows = file["rows"].get<int64_t>(), columns = file["columns"].get<int64_t>();
  for (const auto& [name, format] : kFormats) {
    const auto& steps = file["steps"][name];
    fixtures::on_every_target([&, &name = name, &format = format](int64_t) {
      std::vector<float> state(static_cast<size_t>(delayed_state_size(file["history"].get<int64_t>())));
      for (size_t step = 0; step < steps.size(); ++step) {
        const std::vector<float> x = matrix_of(file, step);
        const Treatment treatment{ScaleRule::delayed(format)};
        Result result = empty_result(source_of(x, rows, columns), treatment, Along::kRows);
        float found = 0;
        Request request = request_of(treatment, result);
        request.greatest = state.data();
        request.found = &found;
        quantize(source_of(x, rows, columns), request, std::nullopt);
        const std::string where = name + " in step " + std::to_string(step);
        uint32_t scale = 0;
        std::memcpy(&scale, result.scales.data(), sizeof scale);
        EXPECT_EQ(scale, steps[step]["inverse"].get<uint32_t>()) << where;
        EXPECT_EQ(digest(result.codes.data(), rows * columns), steps[step]["codes"].get<std::string>())
            << where;
        EXPECT_EQ(std::bit_cast<uint32_t>(found), steps[step]["greatest"].get<uint32_t>()) << where;
        follow_step(state, found);
      }
    });
  }
}

TEST(Delayed, ScalesOfALongHistory) {
  const auto file = golden("delayed.json");
  std::map<int64_t, float> exceptions;
  for (const auto& one : file["long_exceptions"]) exceptions[one[0].get<int64_t>()] = float_of(one[1]);
  for (const auto& [name, format] : kFormats) {
    const ScaleRule rule = ScaleRule::delayed(format);
    std::vector<float> state(static_cast<size_t>(delayed_state_size(kDelayedHistory)));
    std::vector<std::pair<int64_t, uint32_t>> changes, wanted;
    for (const auto& one : file["long"][name])
      wanted.emplace_back(one[0].get<int64_t>(), one[1].get<uint32_t>());
    for (int64_t step = 0; step < file["long_steps"].get<int64_t>(); ++step) {
      const float before = rule.scale_of(state[0]).applied;
      const auto exception = exceptions.find(step);
      follow_step(state, exception != exceptions.end() ? exception->second
                                                       : std::ldexp(1.0f, -static_cast<int>(step % 7)));
      const float after = rule.scale_of(state[0]).applied;
      if (after != before) changes.emplace_back(step, std::bit_cast<uint32_t>(after));
    }
    EXPECT_EQ(changes, wanted) << name;
  }
}

// An outlier leaves after as many steps as the history has; steps with nothing keep the scale.
TEST(Delayed, HistoryByHand) {
  std::vector<float> state(delayed_state_size(3));
  const auto after = [&](float greatest) {
    follow_step(state, greatest);
    return state;
  };
  EXPECT_EQ(after(2), (std::vector<float>{2, 0, 0, 2}));
  EXPECT_EQ(after(9), (std::vector<float>{9, 0, 2, 9}));
  EXPECT_EQ(after(1), (std::vector<float>{9, 2, 9, 1}));
  EXPECT_EQ(after(kInfinity), (std::vector<float>{9, 9, 1, 0}));
  EXPECT_EQ(after(std::nanf("")), (std::vector<float>{1, 1, 0, 0}));
  EXPECT_EQ(after(0), (std::vector<float>{1, 0, 0, 0}));
  EXPECT_EQ(after(0), (std::vector<float>{1, 0, 0, 0}));
  EXPECT_EQ(after(0x1p-149f), (std::vector<float>{0x1p-149f, 0, 0, 0x1p-149f}));
  EXPECT_EQ(ScaleRule::delayed(Format::kE4M3).scale_of(0).applied, 1.0f) << "nothing seen yet";
}

// It finds the greatest magnitude of several calls, in both orders of tiles, and NaN wins.
TEST(Delayed, FindsTheGreatestOverSeveralCalls) {
  const Treatment treatment{ScaleRule::delayed(Format::kE5M2)};
  float found = 0;
  const auto pass = [&](std::vector<float> x, Along along) {
    const Source source = source_of(x, 1, std::ssize(x));
    Result result = empty_result(source, treatment, along);
    result.greatest = {1.0f};
    Request request = request_of(treatment, result);
    request.found = &found;
    if (along == Along::kRows) {
      quantize(source, request, std::nullopt);
    } else {
      quantize(source, std::nullopt, request);
    }
    return found;
  };
  EXPECT_EQ(pass({1, -3}, Along::kRows), 3.0f);
  EXPECT_EQ(pass({2}, Along::kColumns), 3.0f);
  EXPECT_EQ(pass({0, 0, -8}, Along::kColumns), 8.0f);
  EXPECT_TRUE(std::isnan(pass({std::nanf(""), 9}, Along::kRows)));
  EXPECT_TRUE(std::isnan(pass({kInfinity}, Along::kRows)));
}

}  // namespace
}  // namespace strata::quantize
