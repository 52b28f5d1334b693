// The contract of all optimizers: named states with shapes, separate rules for rows of a parameter, skipped
// steps.
#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "update_run.h"

namespace strata::optim {
namespace {

const std::vector<Optimizer> kAll{AdamW{}, Muon{}, Lion{}, Adafactor{}, AdamW8Bit{}, Adopt{}};

void fill(float* values, int64_t n, uint64_t stream) {
  for (int64_t i = 0; i < n; ++i) values[i] = number(stream, static_cast<uint64_t>(i));
}

std::map<std::string, int64_t> state_bytes(const UpdateRun& run) {
  std::map<std::string, int64_t> bytes;
  for (const State& state : run.update.states) bytes[state.name] += run.graph().value(state.value).bytes();
  return bytes;
}

TEST(States, HaveTheSizesOfTheFormulas) {
  constexpr int64_t kRows = 96, kColumns = 100, kElements = kRows * kColumns;
  const int64_t blocks = (kElements + 255) / 256;
  const std::vector<std::map<std::string, int64_t>> wanted{
      {{"m", 4 * kElements}, {"v", 4 * kElements}},
      {{"momentum", 4 * kElements}},
      {{"momentum", 4 * kElements}},
      {{"row", 4 * kRows}, {"column", 4 * kColumns}},
      {{"m", kElements}, {"m_scale", 4 * blocks}, {"v", kElements}, {"v_scale", 4 * blocks}},
      {{"m", 4 * kElements}, {"v", 4 * kElements}}};
  for (size_t i = 0; i < kAll.size(); ++i) {
    const UpdateRun run({{"p", {kRows, kColumns}}}, [&](const std::string&, graph::ParameterRole) {
      return one_rule({0.1, 1, kAll[i]});
    });
    EXPECT_EQ(state_bytes(run), wanted[i]) << name_of(kAll[i]);
  }
}

TEST(States, OfSmallTensorsAreNotBytes) {
  const RuleOf rule = [](const std::string&, graph::ParameterRole) {
    return one_rule({0.1, 1, AdamW8Bit{}});
  };
  EXPECT_EQ(state_bytes(UpdateRun({{"p", {4095}}}, rule)).at("m"), 4 * 4095);
  EXPECT_EQ(state_bytes(UpdateRun({{"p", {4096}}}, rule)).at("m"), 4096);
}

TEST(States, OfAVectorAdafactorKeepsWhole) {
  const UpdateRun run({{"p", {57}}}, [](const std::string&, graph::ParameterRole) {
    return one_rule({0, 1, Adafactor{}});
  });
  EXPECT_EQ(state_bytes(run), (std::map<std::string, int64_t>{{"variance", 4 * 57}}));
}

// [q | k | v] updated by three optimizers with separate rates is bitwise equal to three parameters.
TEST(Rows, AreUpdatedLikeSeparateParameters) {
  constexpr int64_t kColumns = 20;
  const std::vector<int64_t> segments{48, 24, 24};
  for (const auto& optimizers :
       std::vector<std::vector<Optimizer>>{{Muon{}, AdamW{}, Adafactor{}},
                                           {Lion{}, Lion{}, Muon{}},
                                           {Adafactor{}, Adafactor{}, AdamW{}},
                                           {AdamW8Bit{.min_elements = 500}, AdamW{}, Lion{}},
                                           {Adopt{}, Adopt{}, Lion{}},
                                           {Muon{}, Muon{}, Muon{}},
                                           {AdamW{}, AdamW{}, AdamW{}}}) {
    std::vector<UpdateRule> rules;
    for (size_t i = 0; i < 3; ++i)
      rules.push_back({0.1 * static_cast<double>(i), 1 - 0.25 * static_cast<double>(i), optimizers[i]});
    UpdateRun fused({{"qkv", {96, kColumns}, segments}}, [&](const std::string&, graph::ParameterRole) {
      ParameterRule rule;
      for (size_t i = 0; i < 3; ++i) rule.tensors.push_back({segments[i], rules[i]});
      return rule;
    });
    UpdateRun apart(
        {{"0", {48, kColumns}}, {"1", {24, kColumns}}, {"2", {24, kColumns}}},
        [&](const std::string& name, graph::ParameterRole) { return one_rule(rules[name[0] - '0']); });
    fill(fused.values("qkv"), 96 * kColumns, 1);
    const std::vector<int64_t> first{0, 48 * kColumns, 72 * kColumns};
    for (size_t i = 0; i < 3; ++i)
      std::copy_n(fused.values("qkv") + first[i], segments[i] * kColumns, apart.values(std::to_string(i)));
    for (uint64_t step = 2; step < 6; ++step) {
      fill(fused.gradient("qkv"), 96 * kColumns, step);
      for (size_t i = 0; i < 3; ++i)
        std::copy_n(fused.gradient("qkv") + first[i], segments[i] * kColumns,
                    apart.gradient(std::to_string(i)));
      fused.step(0.01);
      apart.step(0.01);
    }
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(std::memcmp(fused.values("qkv") + first[i], apart.values(std::to_string(i)),
                            static_cast<size_t>(segments[i] * kColumns) * 4),
                0)
          << "part " << i << " by " << name_of(optimizers[i]);
    }
  }
}

// Neighbours with one rule are one node, and neighbours with one optimizer share its states.
TEST(Rows, OfOneOptimizerShareStates) {
  const auto rule_with = [](double q_scale) {
    return [q_scale](const std::string&, graph::ParameterRole) {
      return ParameterRule{{{48, {0.1, q_scale}}, {24, {0.1, 1}}, {24, {0.1, 1}}}, {}};
    };
  };
  for (const auto& [scale, nodes] : {std::pair{1.0, 1}, std::pair{0.5, 2}}) {
    const UpdateRun run({{"qkv", {96, 20}, {48, 24, 24}}}, rule_with(scale));
    EXPECT_EQ(run.update.states.size(), 2u);
    EXPECT_EQ(run.graph().value(run.update.states[0].value).name, "m.qkv");
    int64_t found = 0;
    for (const graph::Node& node : run.graph().nodes()) found += node.op == &AdamWUpdate::def;
    EXPECT_EQ(found, nodes);
  }
}

// Newton-Schulz orthogonalizes each segment separately, even if one tensor of a file contains several.
TEST(Rows, MuonUpdatesEachSegmentSeparately) {
  const auto rule = [](const std::string&, graph::ParameterRole) { return one_rule({0, 1, Muon{}}); };
  UpdateRun fused({{"qkv", {32, 16}, {16, 8, 8}}}, rule);
  UpdateRun apart({{"0", {16, 16}}, {"1", {8, 16}}, {"2", {8, 16}}}, rule);
  fill(fused.values("qkv"), 512, 1);
  fill(fused.gradient("qkv"), 512, 2);
  const int64_t first[] = {0, 256, 384}, sizes[] = {256, 128, 128};
  for (size_t i = 0; i < 3; ++i) {
    std::copy_n(fused.values("qkv") + first[i], sizes[i], apart.values(std::to_string(i)));
    std::copy_n(fused.gradient("qkv") + first[i], sizes[i], apart.gradient(std::to_string(i)));
  }
  fused.step(0.1);
  apart.step(0.1);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(std::memcmp(fused.values("qkv") + first[i], apart.values(std::to_string(i)),
                          static_cast<size_t>(sizes[i]) * 4),
              0);
  EXPECT_EQ(fused.update.states.size(), 1u) << "one momentum for the whole parameter";
}

TEST(Rows, RulesMustCoverTheParameter) {
  const auto rule = [](const std::string&, graph::ParameterRole) {
    return ParameterRule{{{8, {}}, {4, {}}}, {}};
  };
  EXPECT_THROW(UpdateRun({{"p", {16, 4}}}, rule), InternalError);
}

class Skipping : public testing::TestWithParam<size_t> {};

// Without a valid target, or with a gradient that is not finite, nothing changes; the next step proceeds as
// if this one had not happened.
TEST_P(Skipping, ChangesNothing) {
  const auto rule = [](const std::string&, graph::ParameterRole) {
    return one_rule({0.1, 1, kAll[GetParam()]});
  };
  const std::vector<TestParameter> parameters{{"p", {48, 96}}};
  UpdateRun run(parameters, rule), straight(parameters, rule);
  for (UpdateRun* one : {&run, &straight}) {
    fill(one->values("p"), 48 * 96, 1);
    fill(one->gradient("p"), 48 * 96, 2);
    *one->at<int64_t>("token_count") = 7;
    one->step(0.1, 1);
  }
  EXPECT_EQ(*run.at<int64_t>("updates"), 1);
  const std::string before = run.bits();
  *run.at<int64_t>("token_count") = 0;
  run.step(0.1, 1);
  EXPECT_TRUE(run.bits() == before);
  *run.at<int64_t>("token_count") = 7;
  run.gradient("p")[5] = std::numeric_limits<float>::quiet_NaN();
  run.step(0.1, 1);
  EXPECT_TRUE(run.bits() == before);
  EXPECT_FALSE(std::isfinite(*run.at<float>("grad_norm"))) << "the host can see it";
  for (UpdateRun* one : {&run, &straight}) {
    fill(one->gradient("p"), 48 * 96, 3);
    one->step(0.1, 1);
  }
  EXPECT_EQ(*run.at<int64_t>("updates"), 2);
  EXPECT_TRUE(run.bits() == straight.bits());
  EXPECT_FALSE(run.bits() == before);
}

INSTANTIATE_TEST_SUITE_P(All, Skipping, testing::Range<size_t>(0, kAll.size()),
                         [](const auto& one) { return std::string(name_of(kAll[one.param])); });

}  // namespace
}  // namespace strata::optim
