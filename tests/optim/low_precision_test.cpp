// Weights and moments in fewer bits than fp32: curves against torchao (tools/golden/make_low_optim_golden.py), and the
// properties of stochastic rounding.
#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "kernels/cpu/stored_update.h"
#include "update_run.h"

namespace strata::optim {
namespace {

RuleOf rule_with(const Storage& storage, const Optimizer& optimizer = AdamW{}) {
  return [=](const std::string&, graph::ParameterRole) {
    return one_rule({.weight_decay = 0.1, .optimizer = optimizer, .storage = storage});
  };
}

const nlohmann::json& golden(const std::string& name) {
  static const auto kAll =
      parse_json<nlohmann::json>(read_file(STRATA_TEST_DATA "/optim/low_precision.json"));
  return kAll.at(name);
}

// The problem of curve_test.cpp, of a parameter "p" of any type.
constexpr uint64_t kStream = 40;
const Shape kLarge{48, 96};

float weight_at(UpdateRun& run, DType dtype, int64_t i) {
  return dtype == DType::kBF16 ? static_cast<float>(run.at<BF16>("p")[i]) : run.values("p")[i];
}

void start(UpdateRun& run, DType dtype) {
  for (int64_t i = 0; i < kLarge.elements(); ++i) {
    const float value = number(kStream, static_cast<uint64_t>(i));
    if (dtype == DType::kBF16) {
      run.at<BF16>("p")[i] = BF16(value);
    } else {
      run.values("p")[i] = value;
    }
  }
}

// Writes the gradients of a step; the loss before it.
double put_low_gradients(UpdateRun& run, DType dtype, size_t step) {
  double loss = 0;
  for (int64_t i = 0; i < kLarge.elements(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    const float p = weight_at(run, dtype, i), target = number(kStream + 1, at);
    const float weight = 1.25f + number(kStream + 2, at);
    const float factor = 1 + 0.5f * number(1000 * (step + 1) + kStream, at), pull = weight * (p - target);
    loss += 0.5 * double{weight} * (double{p} - double{target}) * (double{p} - double{target});
    run.gradient("p")[i] = pull * factor;
  }
  return loss;
}

void take_steps(UpdateRun& run, DType dtype, int steps, double lr) {
  start(run, dtype);
  for (int step = 0; step < steps; ++step) {
    put_low_gradients(run, dtype, static_cast<size_t>(step));
    run.step(lr);
  }
}

int64_t count_others(const std::string& words, const BF16* found) {
  int64_t others = 0, i = 0;
  for (size_t at = 0; at < words.size(); at += 5, ++i)
    others += std::stoi(words.substr(at, 4), nullptr, 16) != found[i].bits;
  EXPECT_GE(i, 512);
  return others;
}

struct LowCase {
  const char* name;
  Storage storage;
};
void PrintTo(const LowCase& one, std::ostream* out) {
  *out << one.name;
}
class LowCurve : public testing::TestWithParam<LowCase> {};

// A few numbers may differ where the last bit of fp32 decides; they differ for the steps that follow.
TEST_P(LowCurve, AgreesWithTorchao) {
  const nlohmann::json& wanted = golden(GetParam().name);
  const DType dtype = GetParam().storage.weights;
  const auto losses = wanted.at("loss").get<std::vector<double>>();
  UpdateRun run({{"p", kLarge}}, rule_with(GetParam().storage));
  start(run, dtype);
  for (size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(put_low_gradients(run, dtype, step), losses[step], 4e-5 * losses[step]) << "after " << step;
    if (step + 1 < losses.size()) run.step(wanted.at("lr").get<double>());
  }
  EXPECT_EQ(losses.size(), 31U);
  if (wanted.contains("end")) {
    EXPECT_LE(count_others(wanted.at("end"), run.at<BF16>("p")), 10);
  }
  if (GetParam().storage.moments == DType::kBF16) {
    for (const std::string name : {"m", "v"})
      EXPECT_LE(count_others(wanted.at(name), run.at<BF16>(name + ".p")), 10) << name;
  }
  if (GetParam().storage.moments != DType::kE4M3) return;
  for (const std::string name : {"m", "v"}) {
    const auto codes = wanted.at(name).get<std::string>();
    const uint8_t* const found = run.at<uint8_t>(name + ".p");
    int64_t others = 0;
    for (size_t i = 0; 2 * i < codes.size(); ++i)
      others += std::stoi(codes.substr(2 * i, 2), nullptr, 16) != found[i];
    EXPECT_EQ(codes.size(), 2048U);
    EXPECT_LE(others, 20) << name;
    const auto scales = wanted.at(name + "_scale").get<std::vector<double>>();
    EXPECT_EQ(scales.size(), 18U);
    for (size_t i = 0; i < scales.size(); ++i)
      EXPECT_NEAR(run.values(name + "_scale.p")[i], scales[i], 1e-2 * scales[i]) << name << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, LowCurve,
    testing::Values(LowCase{"bf16_nearest", {.weights = DType::kBF16, .rounding = Rounding::kNearest}},
                    LowCase{"bf16_kahan", {.weights = DType::kBF16, .rounding = Rounding::kKahan}},
                    LowCase{"bf16_moments", {.moments = DType::kBF16}},
                    LowCase{"fp8_moments", {.moments = DType::kE4M3}},
                    LowCase{
                        "adamw_fp8_of_bf16",
                        {.weights = DType::kBF16, .rounding = Rounding::kNearest, .moments = DType::kE4M3}}),
    [](const auto& instance) { return std::string(instance.param.name); });

// 4,096 roundings of a value go up as often as they should: within four standard deviations.
TEST(StochasticRounding, HasTheValueAsItsMean) {
  constexpr int64_t kTimes = 4096;
  const BF16 low_bits = BF16(1.0f);
  for (const float sign : {1.0f, -1.0f}) {
    for (const int part : {0, 1, 512, 16384, 32768, 50000, 65535}) {
      const float value =
          sign * std::bit_cast<float>((uint32_t{low_bits.bits} << 16) + static_cast<uint32_t>(part));
      const std::vector<float> x(kTimes, value);
      std::vector<BF16> to(kTimes);
      for (const uint32_t step : {1u, 2u, 77u}) {
        cpu::round_stochastic(x.data(), to.data(), kTimes, {11, 5}, step, 3);
        int64_t ups = 0;
        for (const BF16 one : to) {
          ASSERT_TRUE(one.bits == BF16(sign).bits || one.bits == BF16(sign).bits + 1);
          ups += one.bits != BF16(sign).bits;
        }
        const double share = part / 65536.0;
        EXPECT_NEAR(static_cast<double>(ups), kTimes * share,
                    4 * std::sqrt(kTimes * share * (1 - share)) + 1e-9)
            << part << " in step " << step;
      }
    }
  }
}

TEST(StochasticRounding, DependsOnKeyStepAndPlaceOnly) {
  constexpr int64_t kCount = 3000;
  std::vector<float> x(kCount);
  for (int64_t i = 0; i < kCount; ++i) x[static_cast<size_t>(i)] = number(9, static_cast<uint64_t>(i));
  const auto rounded = [&](RandomKey key, uint32_t step, int64_t begin, int64_t end) {
    std::vector<BF16> to(static_cast<size_t>(end - begin));
    cpu::round_stochastic(x.data() + begin, to.data(), end - begin, key, step, 100 + begin);
    std::vector<uint16_t> bits;
    for (const BF16 one : to) bits.push_back(one.bits);
    return bits;
  };
  const auto whole = rounded({1, 2}, 3, 0, kCount);
  EXPECT_NE(rounded({2, 2}, 3, 0, kCount), whole);
  EXPECT_NE(rounded({1, 3}, 3, 0, kCount), whole);
  EXPECT_NE(rounded({1, 2}, 4, 0, kCount), whole);
  for (const int64_t cut : {1, 3, 511, 513, 2999}) {
    auto first = rounded({1, 2}, 3, 0, cut);
    const auto second = rounded({1, 2}, 3, cut, kCount);
    first.insert(first.end(), second.begin(), second.end());
    EXPECT_EQ(first, whole) << cut;
  }
}

TEST(StochasticRounding, LeavesWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float x[] = {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 0.0f, -0.0f};
  BF16 to[5];
  cpu::round_stochastic(x, to, 5, {1, 1}, 1, 0);
  EXPECT_EQ(static_cast<float>(to[0]), infinity);
  EXPECT_EQ(static_cast<float>(to[1]), -infinity);
  EXPECT_TRUE(std::isnan(static_cast<float>(to[2])));
  EXPECT_EQ(to[3].bits, 0);
  EXPECT_EQ(to[4].bits, 0x8000);
}

const Storage kAllStorages[] = {{.weights = DType::kBF16, .seed = 3},
                                {.weights = DType::kBF16, .rounding = Rounding::kKahan},
                                {.weights = DType::kBF16, .moments = DType::kBF16, .seed = 3},
                                {.weights = DType::kBF16, .moments = DType::kE4M3, .seed = 3}};

TEST(LowPrecision, HasTheSameBitsForAnyNumberOfThreads) {
  for (const Storage& storage : kAllStorages) {
    std::string wanted;
    for (const int threads : {1, 2, 3}) {
      set_compute_threads(threads);
      UpdateRun run({{"p", {300, 257}}}, rule_with(storage));
      for (int64_t i = 0; i < 300 * 257; ++i) {
        run.at<BF16>("p")[i] = BF16(number(1, static_cast<uint64_t>(i)));
        run.gradient("p")[i] = number(2, static_cast<uint64_t>(i));
      }
      for (int step = 0; step < 2; ++step) run.step(1e-3);
      if (wanted.empty()) wanted = run.bits();
      EXPECT_EQ(run.bits(), wanted) << threads << " threads";
    }
  }
}

// Rows of tensors with separate rates are separate nodes, and take the numbers of their places.
TEST(LowPrecision, RowsApartHaveTheBitsOfTheWhole) {
  const Storage storage{.weights = DType::kBF16, .seed = 8};
  UpdateRun whole({{"p", kLarge}}, rule_with(storage));
  UpdateRun apart({{"p", kLarge}}, [&](const std::string&, graph::ParameterRole) {
    UpdateRule rule{.weight_decay = 0.1, .storage = storage}, other = rule;
    other.lr_scale = std::nextafter(1.0, 2.0);  // the same in fp32
    return ParameterRule{{{7, rule}, {20, other}, {21, rule}}};
  });
  take_steps(whole, DType::kBF16, 3, 1e-2);
  take_steps(apart, DType::kBF16, 3, 1e-2);
  const BF16 *a = whole.at<BF16>("p"), *b = apart.at<BF16>("p");
  for (int64_t i = 0; i < kLarge.elements(); ++i) ASSERT_EQ(a[i].bits, b[i].bits) << i;
}

// Lion, ADOPT and 8-bit AdamW follow their own curve with masters.
TEST(LowPrecision, FollowsTheMaster) {
  for (const Optimizer& optimizer :
       {Optimizer(AdamW{}), Optimizer(Lion{}), Optimizer(Adopt{}), Optimizer(AdamW8Bit{})}) {
    SCOPED_TRACE(name_of(optimizer));
    UpdateRun master({{"p", kLarge}}, rule_with({}, optimizer));
    take_steps(master, DType::kF32, 30, 5e-3);
    const double wanted = put_low_gradients(master, DType::kF32, 30);
    for (const Rounding rounding : {Rounding::kStochastic, Rounding::kKahan}) {
      UpdateRun low({{"p", kLarge}}, rule_with({.weights = DType::kBF16, .rounding = rounding}, optimizer));
      take_steps(low, DType::kBF16, 30, 5e-3);
      EXPECT_NEAR(put_low_gradients(low, DType::kBF16, 30), wanted, 3e-3 * wanted) << name_of(rounding);
    }
  }
}

// A skipped step changes nothing.
TEST(LowPrecision, SkipsWithoutATrace) {
  for (const Storage& storage : kAllStorages) {
    UpdateRun run({{"p", kLarge}}, rule_with(storage));
    take_steps(run, DType::kBF16, 2, 1e-2);
    const std::string before = run.bits();
    run.gradient("p")[5] = std::numeric_limits<float>::quiet_NaN();
    run.step(1e-2);
    EXPECT_EQ(run.bits(), before);
  }
}

}  // namespace
}  // namespace strata::optim
