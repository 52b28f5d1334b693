// A steady step: its results, and state that they must not depend on.
#include <gtest/gtest.h>

#include "base/hash.h"
#include "fixtures/tiny_program.h"
#include "program/memory_report.h"

namespace strata::program {
namespace {

void expect_same(const TinyRun& a, const TinyRun& b) {
  const auto left = a.state();
  const auto right = b.state();
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].first, right[i].first);
    EXPECT_TRUE(left[i].second == right[i].second) << left[i].first << " differs";
  }
}

class SteadyStep : public testing::TestWithParam<std::tuple<const char*, DType, Recompute>> {
 protected:
  CompileOptions options() const {
    CompileOptions out = tiny_options(std::get<0>(GetParam()));
    out.activations = std::get<1>(GetParam());
    out.recompute = std::get<2>(GetParam());
    return out;
  }
};

TEST_P(SteadyStep, DoesNotReadUninitializedMemory) {
  const auto set = compile({tiny_request(2)}, options());
  TinyRun plain(set);
  TinyRun poisoned(set);
  for (int i = 0; i < 2; ++i) {
    plain.step();
    poisoned.poison_workspace();
    poisoned.step();
  }
  EXPECT_GT(plain.executor.read<double>("loss_sum"), 0);
  expect_same(plain, poisoned);
}

TEST_P(SteadyStep, MatchesASplitBackwardBitForBit) {
  CompileOptions split = options();
  split.backward = Backward::kSplit;
  TinyRun together(compile({tiny_request(2)}, options()));
  TinyRun apart(compile({tiny_request(2)}, split));
  const Program& program = apart.executor.program(0);
  EXPECT_TRUE(program.segment(Segment::kBackward).empty());
  for (const Instruction& instruction : program.segment(Segment::kInputGrad))
    EXPECT_NE(program.node_of(instruction).phase, graph::Phase::kWeightGrad);
  for (const Instruction& instruction : program.segment(Segment::kWeightGrad))
    EXPECT_TRUE(program.node_of(instruction).phase == graph::Phase::kWeightGrad ||
                program.node_of(instruction).phase == graph::Phase::kRecompute);
  EXPECT_FALSE(program.segment(Segment::kInputGrad).empty());
  EXPECT_FALSE(program.segment(Segment::kWeightGrad).empty());
  for (int i = 0; i < 2; ++i) {
    together.step();
    apart.step();
  }
  expect_same(together, apart);
}

INSTANTIATE_TEST_SUITE_P(
    All, SteadyStep,
    testing::Combine(testing::Values("llama3-5m", "gpt2-124m"), testing::Values(DType::kF32, DType::kBF16),
                     testing::Values(Recompute::kNone, Recompute::kSelective, Recompute::kFull)));

uint64_t program_hash(const Program& program) {
  Hasher hasher;
  auto add = [&](const void* data, size_t bytes) {
    hasher.update(std::string_view(static_cast<const char*>(data), bytes));
  };
  for (const auto& variants : program.segments[0]) {
    for (const auto& segment : variants) {
      for (const Instruction& one : segment) {
        add(&one.run, sizeof one.run);
        add(&one.plan, sizeof one.plan);
        add(&one.first_operand, sizeof one.first_operand);
        add(&one.operand_count, sizeof one.operand_count);
        add(&one.node, sizeof one.node);
      }
    }
  }
  for (const Operand& operand : program.operands) {
    add(&operand.offset, sizeof operand.offset);
    add(&operand.base, sizeof operand.base);
  }
  return hasher.digest();
}

TEST(Program, DoesNotChangeWithTheLearningRate) {
  TinyRun run(compile({tiny_request(2)}, tiny_options("llama3-5m")));
  const uint64_t before = program_hash(run.executor.program(0));
  for (const float lr : {1e-2f, 0.0f, 3e-3f}) {
    const float old = run.executor.read<float>("embedding.weight");
    run.step(lr);
    const float now = run.executor.read<float>("embedding.weight");
    EXPECT_EQ(old == now, lr == 0) << "the rate is a per-step parameter";
    EXPECT_EQ(program_hash(run.executor.program(0)), before);
  }
}

TEST(Program, LearnsItsBatch) {
  TinyRun run(compile({tiny_request()}, tiny_options("llama3-5m")));
  run.step();
  const double first = run.executor.read<double>("loss_sum");
  for (int i = 0; i < 20; ++i) run.step();
  EXPECT_LT(run.executor.read<double>("loss_sum"), 0.7 * first);
}

}  // namespace
}  // namespace strata::program
