// Programs of a processor that multiplies bf16, which run here on models of its instructions: weights in the
// encodings of its products are written by the update that changes them.
#include <gtest/gtest.h>

#include <set>

#include "fixtures/pairs_target.h"
#include "fixtures/tiny_program.h"

namespace strata::program {
namespace {

CompileOptions with_pairs(const std::string& preset) {
  CompileOptions options = tiny_options(preset);
  options.activations = DType::kBF16;
  options.target = fixtures::target_with_pairs(compute_threads());
  return options;
}

// Names of what nodes of the list write of weights in encodings.
std::set<std::string> encoded_by(const Program& program, const SegmentAt& at, bool accumulates = false) {
  std::set<std::string> names;
  for (const Instruction& instruction : program.segment(at, accumulates)) {
    for (const graph::ValueId id : program.node_of(instruction).outputs) {
      if (id != graph::kNone && program.graph.value(id).role == graph::Role::kEncoded)
        names.insert(program.graph.value(id).name);
    }
  }
  return names;
}

std::vector<std::pair<std::string, std::vector<char>>> encodings(const TinyRun& run) {
  std::vector<std::pair<std::string, std::vector<char>>> out;
  for (const Persistent& entry : run.executor.set().persistent) {
    if (entry.role == graph::Role::kEncoded)
      out.emplace_back(entry.name, run.executor.read_all<char>(entry.name));
  }
  return out;
}

// After each of two steps, whose workspace is poisoned.
void expect_what_loading_makes(const std::shared_ptr<const ProgramSet>& set) {
  TinyRun run(set);
  const auto first = encodings(run);
  for (int step = 0; step < 2; ++step) {
    run.poison_workspace();
    run.step();
    const auto updated = encodings(run);
    EXPECT_NE(updated, first);
    run.executor.run(0, {Segment::kEncode});
    EXPECT_EQ(updated, encodings(run));
  }
}

class Encodings : public testing::TestWithParam<const char*> {};

TEST_P(Encodings, AreWrittenByTheUpdate) {
  const auto set = compile({tiny_request(2)}, with_pairs(GetParam()));
  const Program& program = set->programs[0];
  const std::set<std::string> loaded = encoded_by(program, {Segment::kEncode});
  ASSERT_FALSE(loaded.empty());
  EXPECT_EQ(encoded_by(program, {Segment::kUpdate}), loaded);
  EXPECT_TRUE(program.segment({Segment::kEncode}, true).empty()) << "nothing is left behind the update";
  EXPECT_EQ(str(program.script.back()), "encode");
  EXPECT_TRUE(program.script.back().accumulates);
}

TEST_P(Encodings, AreWhatLoadingMakesOfTheUpdatedWeights) {
  expect_what_loading_makes(compile({tiny_request(2)}, with_pairs(GetParam())));
}

TEST_P(Encodings, TrainAsTheProcessorHereDoesInBf16) {
  CompileOptions here = tiny_options(GetParam());
  here.activations = DType::kBF16;
  TinyRun pairs(compile({tiny_request(2)}, with_pairs(GetParam())));
  TinyRun plain(compile({tiny_request(2)}, here));
  for (int step = 0; step < 3; ++step) {
    pairs.step(1e-3f);
    plain.step(1e-3f);
    const double one = pairs.executor.read_all<double>("loss_sum")[0],
                 other = plain.executor.read_all<double>("loss_sum")[0];
    ASSERT_TRUE(std::isfinite(other));
    EXPECT_NEAR(one, other, 1e-3 * std::abs(other)) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, Encodings, testing::Values("llama3-5m", "gpt2-124m"),
                         [](const auto& one) { return std::string(one.param).substr(0, 4); });

// Of a weight whose rows have several rules, no update has all.
TEST(EncodingsOfOtherUpdates, OfSeveralRulesAreMadeBehindThem) {
  CompileOptions options = with_pairs("llama3-5m");
  options.rule_of = [](const std::string& parameter, graph::ParameterRole) {
    const bool has_several = parameter.find("qkv") != parameter.npos;
    return has_several ? optim::ParameterRule{{{16, {.lr_scale = 0.5}}, {0, {}}}, {}} : optim::one_rule({});
  };
  const auto set = compile({tiny_request(1)}, options);
  const Program& program = set->programs[0];
  const auto with_update = encoded_by(program, {Segment::kUpdate}),
             behind = encoded_by(program, {Segment::kEncode}, true),
             all = encoded_by(program, {Segment::kEncode});
  EXPECT_FALSE(behind.empty());
  EXPECT_FALSE(with_update.empty());
  for (const std::string& name : all) {
    EXPECT_NE(with_update.contains(name), behind.contains(name)) << name;
    EXPECT_EQ(behind.contains(name), name.find("qkv") != name.npos) << name;
  }
  expect_what_loading_makes(set);
}

// Optimizers whose kernels write none.
TEST(EncodingsOfOtherUpdates, AreMadeBehindThem) {
  CompileOptions options = with_pairs("llama3-5m");
  options.rule_of = [](const std::string&, graph::ParameterRole) {
    return optim::one_rule({.weight_decay = 0.1, .optimizer = optim::Lion()});
  };
  const auto set = compile({tiny_request(1)}, options);
  const Program& program = set->programs[0];
  EXPECT_TRUE(encoded_by(program, {Segment::kUpdate}).empty());
  EXPECT_EQ(encoded_by(program, {Segment::kEncode}, true), encoded_by(program, {Segment::kEncode}));
  expect_what_loading_makes(set);
}

}  // namespace
}  // namespace strata::program
