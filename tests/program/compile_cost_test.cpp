// The cost of compiling, measured in graphs built by the family and kernels bound by the device.
#include <gtest/gtest.h>

#include <set>

#include "device/cpu/bindings.h"
#include "fixtures/tiny_program.h"

namespace strata::program {
namespace {

int graphs_built = 0;
int kernels_bound = 0;

// The family and the device of tiny_options, with counters around the functions that compile calls.
class CompileCost : public testing::Test {
 protected:
  CompileCost() {
    graphs_built = kernels_bound = 0;
    family_ = *models::preset("llama3-5m").family;
    family_.build = [](const models::ModelConfig& config, layers::Context& context) {
      ++graphs_built;
      return models::preset("llama3-5m").family->build(config, context);
    };
    for (device::Binding row : device::cpu_bindings()) {
      row.bind = [](const device::BindRequest& request) {
        ++kernels_bound;
        return device::find_binding(device::cpu_bindings(), *request.view.node.op).bind(request);
      };
      bindings_.push_back(row);
    }
  }

  CompileOptions options(int64_t layers) const {
    CompileOptions options = tiny_options("llama3-5m");
    options.model.family = &family_;
    options.model.layers = layers;
    options.target.bindings = bindings_;
    options.cache_capacity = 32;
    return options;
  }

  // All kinds of requests that a run makes.
  static std::vector<Request> requests() {
    return {tiny_request(2),
            {.kind = Kind::kEvaluate, .sequences = 2, .sequence_length = 24},
            {.kind = Kind::kPrefill, .sequence_length = 16},
            {.kind = Kind::kDecode}};
  }

  static int64_t arena_with(CompileOptions options, std::optional<Recompute> recompute) {
    options.recompute = recompute;
    return compile(requests(), options)->arena_bytes;
  }

  models::Family family_{};
  std::vector<device::Binding> bindings_;
};

size_t distinct_plans(const ProgramSet& set) {
  std::set<const void*> plans;
  for (const Program& program : set.programs) {
    for (const auto& plan : program.plans) plans.insert(plan.get());
  }
  return plans.size();
}

TEST_F(CompileCost, EqualLayersShareTheirPlans) {
  const auto few = compile(requests(), options(2));
  const int bound_for_few = kernels_bound;
  kernels_bound = 0;
  const auto many = compile(requests(), options(40));
  EXPECT_EQ(kernels_bound, bound_for_few);
  EXPECT_EQ(distinct_plans(*many), distinct_plans(*few));
  EXPECT_GT(many->programs[0].plans.size(), 10 * few->programs[0].plans.size());
}

// Nodes with different attributes do not share plans: every other layer of gemma2 has a window.
TEST_F(CompileCost, DifferentLayersDoNotShareTheirPlans) {
  CompileOptions wide = tiny_options("gemma2-2b");
  wide.model.sliding_window = {};
  CompileOptions alternate = wide;
  alternate.model.sliding_window = {.size = 8, .first = 0, .period = 2};
  EXPECT_GT(distinct_plans(*compile({tiny_request()}, alternate)),
            distinct_plans(*compile({tiny_request()}, wide)));
}

TEST_F(CompileCost, ChoosingRecomputeBuildsEachGraphOnce) {
  const CompileOptions open = options(24);
  const int64_t selective = arena_with(open, Recompute::kSelective);
  const int64_t full = arena_with(open, Recompute::kFull);
  ASSERT_LT(full, selective);
  graphs_built = kernels_bound = 0;
  arena_with(open, Recompute::kFull);
  const int bound_for_full = kernels_bound;

  CompileOptions tight = open;
  tight.memory_budget = (selective + full) / 2;
  graphs_built = kernels_bound = 0;
  const auto set = compile(requests(), tight);
  EXPECT_EQ(set->programs[0].recompute, Recompute::kFull);
  EXPECT_GT(set->programs[0].full_recompute_layers, 1);
  EXPECT_LT(set->programs[0].full_recompute_layers, 24);
  EXPECT_LE(set->arena_bytes, tight.memory_budget);
  EXPECT_EQ(graphs_built, static_cast<int>(requests().size()));
  // No and full recompute have different nodes; the trials between them add none.
  EXPECT_LE(kernels_bound, 2 * bound_for_full);
}

TEST_F(CompileCost, ChoosesTheFewestLayersThatFit) {
  CompileOptions tight = options(12);
  const int64_t selective = arena_with(tight, Recompute::kSelective);
  const int64_t full = arena_with(tight, Recompute::kFull);
  for (int64_t budget = selective - 1; budget >= full;) {
    tight.memory_budget = budget;
    const auto set = compile(requests(), tight);
    ASSERT_EQ(set->programs[0].recompute, Recompute::kFull);
    ASSERT_LE(set->arena_bytes, budget);
    // With one byte less, at least one more layer is recomputed.
    const int64_t layers = set->programs[0].full_recompute_layers;
    budget = set->arena_bytes - 1;
    if (budget < full) break;
    tight.memory_budget = budget;
    ASSERT_GT(compile(requests(), tight)->programs[0].full_recompute_layers, layers);
  }
}

TEST_F(CompileCost, AnErrorHasTheSmallestProgramThatDoesNotFit) {
  CompileOptions tight = options(6);
  const auto smallest = [&] {
    CompileOptions full = tight;
    full.recompute = Recompute::kFull;
    return compile(requests(), full);
  }();
  tight.memory_budget = smallest->arena_bytes - 1;
  graphs_built = 0;
  try {
    compile(requests(), tight);
    FAIL() << "nothing fits in less memory than the smallest program";
  } catch (const DoesNotFit& error) {
    EXPECT_EQ(error.set()->arena_bytes, smallest->arena_bytes);
    EXPECT_EQ(error.set()->programs[0].full_recompute_layers, 6);
    EXPECT_EQ(error.set()->programs[0].operands.size(), smallest->programs[0].operands.size());
    EXPECT_NE(std::string(error.what()).find("with full recompute"), std::string::npos);
  }
  EXPECT_EQ(graphs_built, static_cast<int>(requests().size()));
}

}  // namespace
}  // namespace strata::program
