// Programs for a processor with bf16 dot products, run here on a model of its instructions: the update that
// changes weights also writes them in their packed layouts.
#include <gtest/gtest.h>

#include <set>

#include "fixtures/pairs_target.h"
#include "fixtures/tiny_program.h"

namespace strata::program {
namespace {

CompileOptions with_dot_products(const std::string& preset) {
  CompileOptions options = tiny_options(preset);
  options.activations = DType::kBF16;
  options.target = fixtures::target_with_pairs(compute_threads());
  return options;
}

// Names of the packed weights that a segment writes.
std::set<std::string> packed_by(const Program& program, const SegmentAt& at, bool accumulates = false) {
  std::set<std::string> names;
  for (const Instruction& instruction : program.segment(at, accumulates)) {
    for (const graph::ValueId id : program.node_of(instruction).outputs) {
      if (id != graph::kNone && program.graph.value(id).role == graph::Role::kEncoded)
        names.insert(program.graph.value(id).name);
    }
  }
  return names;
}

std::vector<std::pair<std::string, std::vector<char>>> packed_weights(const TinyRun& run) {
  std::vector<std::pair<std::string, std::vector<char>>> out;
  for (const Persistent& entry : run.executor.set().persistent) {
    if (entry.role == graph::Role::kEncoded)
      out.emplace_back(entry.name, run.executor.read_all<char>(entry.name));
  }
  return out;
}

// After each of two steps with a poisoned workspace, packed weights equal those that loading would make.
void expect_layouts_as_loaded(const std::shared_ptr<const ProgramSet>& set) {
  TinyRun run(set);
  const auto first = packed_weights(run);
  for (int step = 0; step < 2; ++step) {
    run.poison_workspace();
    run.step();
    const auto updated = packed_weights(run);
    EXPECT_NE(updated, first);
    run.executor.run(0, {Segment::kEncode});
    EXPECT_EQ(updated, packed_weights(run));
  }
}

class PackedWeights : public testing::TestWithParam<const char*> {};

TEST_P(PackedWeights, AreWrittenByTheUpdate) {
  const auto set = compile({tiny_request(2)}, with_dot_products(GetParam()));
  const Program& program = set->programs[0];
  const std::set<std::string> loaded = packed_by(program, {Segment::kEncode});
  ASSERT_FALSE(loaded.empty());
  EXPECT_EQ(packed_by(program, {Segment::kUpdate}), loaded);
  EXPECT_TRUE(program.segment({Segment::kEncode}, true).empty()) << "the update leaves nothing to pack";
  EXPECT_EQ(str(program.script.back()), "encode");
  EXPECT_TRUE(program.script.back().accumulates);
}

TEST_P(PackedWeights, MatchThoseLoadedFromTheUpdatedWeights) {
  expect_layouts_as_loaded(compile({tiny_request(2)}, with_dot_products(GetParam())));
}

TEST_P(PackedWeights, TrainLikePlainWeightsInBf16) {
  CompileOptions here = tiny_options(GetParam());
  here.activations = DType::kBF16;
  TinyRun pairs(compile({tiny_request(2)}, with_dot_products(GetParam())));
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

INSTANTIATE_TEST_SUITE_P(Presets, PackedWeights, testing::Values("llama3-5m", "gpt2-124m"),
                         [](const auto& one) { return std::string(one.param).substr(0, 4); });

// If rows of a weight have several rules, no single update covers the whole weight.
TEST(PackedAfterTheUpdate, WeightsWithSeveralRules) {
  CompileOptions options = with_dot_products("llama3-5m");
  options.rule_of = [](const std::string& parameter, graph::ParameterRole) {
    const bool has_several = parameter.find("qkv") != parameter.npos;
    return has_several ? optim::ParameterRule{{{16, {.lr_scale = 0.5}}, {0, {}}}, {}} : optim::one_rule({});
  };
  const auto set = compile({tiny_request(1)}, options);
  const Program& program = set->programs[0];
  const auto with_update = packed_by(program, {Segment::kUpdate}),
             afterwards = packed_by(program, {Segment::kEncode}, true),
             all = packed_by(program, {Segment::kEncode});
  EXPECT_FALSE(afterwards.empty());
  EXPECT_FALSE(with_update.empty());
  for (const std::string& name : all) {
    EXPECT_NE(with_update.contains(name), afterwards.contains(name)) << name;
    EXPECT_EQ(afterwards.contains(name), name.find("qkv") != name.npos) << name;
  }
  expect_layouts_as_loaded(set);
}

// An optimizer whose kernel writes no packed weights.
TEST(PackedAfterTheUpdate, WeightsOfOtherOptimizers) {
  CompileOptions options = with_dot_products("llama3-5m");
  options.rule_of = [](const std::string&, graph::ParameterRole) {
    return optim::one_rule({.weight_decay = 0.1, .optimizer = optim::Lion()});
  };
  const auto set = compile({tiny_request(1)}, options);
  const Program& program = set->programs[0];
  EXPECT_TRUE(packed_by(program, {Segment::kUpdate}).empty());
  EXPECT_EQ(packed_by(program, {Segment::kEncode}, true), packed_by(program, {Segment::kEncode}));
  expect_layouts_as_loaded(set);
}

}  // namespace
}  // namespace strata::program
