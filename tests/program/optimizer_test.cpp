// Every optimizer in a program: planned memory, poisoned memory, skipped steps.
#include <gtest/gtest.h>

#include "fixtures/tiny_program.h"
#include "models/parametrization.h"
#include "program/memory_report.h"
#include "tensor/arena.h"

namespace strata::program {
namespace {

struct Case {
  const char* name;
  optim::Optimizer optimizer;
};

CompileOptions options_with(const optim::Optimizer& optimizer, const std::string& preset) {
  CompileOptions options = tiny_options(preset);
  options.rule_of = [optimizer](const std::string&, graph::ParameterRole role) {
    const bool matrix = models::is_matrix(role) && !models::is_table(role);
    const bool takes = matrix || !optimizer.is<optim::Muon>();
    return optim::one_rule({0.1, 1, takes ? optimizer : optim::AdamW{}});
  };
  return options;
}

class Optimizers : public testing::TestWithParam<std::tuple<Case, const char*>> {
 protected:
  std::shared_ptr<const ProgramSet> compiled(int64_t micro_batches = 2) const {
    const auto& [one, preset] = GetParam();
    return compile({tiny_request(micro_batches)}, options_with(one.optimizer, preset));
  }
};

void expect_same(const TinyRun& a, const TinyRun& b) {
  const auto left = a.state(), right = b.state();
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(left[i] == right[i]) << left[i].first << " differs";
}

TEST_P(Optimizers, DoNotReadUninitializedMemory) {
  const auto set = compiled();
  TinyRun plain(set), poisoned(set);
  for (int i = 0; i < 3; ++i) {
    plain.step();
    poisoned.poison_workspace();
    // Nor may a step read per-step parameters of the last one.
    poisoned.executor.write("scalars", std::vector<uint8_t>(optim::kScalarBytes, 0xff));
    poisoned.step();
  }
  EXPECT_EQ(updates_made(plain.executor), 3);
  expect_same(plain, poisoned);
}

TEST_P(Optimizers, LearnTheirBatch) {
  TinyRun run(compiled(1));
  run.step();
  const double first = run.executor.read<double>("loss_sum");
  for (int i = 0; i < 20; ++i) run.step();
  EXPECT_LT(run.executor.read<double>("loss_sum"), 0.9 * first);
}

TEST_P(Optimizers, SkipAStepWithoutTargets) {
  TinyRun run(compiled());
  run.step();
  const auto kept = [&] {
    std::vector<std::vector<char>> bytes;
    for (const Persistent& entry : run.executor.set().persistent) {
      if (entry.role == graph::Role::kParameter || entry.role == graph::Role::kState)
        bytes.push_back(run.executor.read_all<char>(entry.name));
    }
    return bytes;
  };
  const auto before = kept();
  const Request& request = run.executor.program(0).request;
  const std::vector<int32_t> none(static_cast<size_t>(request.sequences * request.sequence_length), -1);
  for (int64_t micro = 0; micro < request.micro_batches; ++micro)
    run.executor.upload_column(0, Column::kTargets, micro, none);
  run.step();
  EXPECT_EQ(run.executor.read<int64_t>("token_count"), 0);
  EXPECT_EQ(updates_made(run.executor), 1);
  EXPECT_TRUE(kept() == before);
}

// The states in the arena have the sizes that the formulas predict, each aligned.
TEST_P(Optimizers, UseThePlannedMemory) {
  const auto set = compiled();
  const Executor executor(set, device::make_cpu_device(compute_threads()));
  EXPECT_EQ(executor.arena_bytes(), set->arena_bytes);
  int64_t wanted = kBufferAlignment;  // the count of updates
  const auto add = [&](int64_t bytes) { wanted += align_up(bytes, kBufferAlignment); };
  const graph::Graph& graph = set->programs[0].graph;
  for (const graph::Parameter& parameter : graph.parameters()) {
    const graph::Value& value = graph.value(parameter.value);
    const int64_t n = value.shape.elements();
    const auto rules = set->options.rule_of(value.name, parameter.role);
    const optim::Optimizer& optimizer = rules.tensors[0].rule.optimizer;
    const std::string_view name = optim::name_of(optimizer);
    if (name == "muon" || name == "lion" || (name == "adafactor" && value.shape.rank() == 1)) {
      add(4 * n);
    } else if (name == "adafactor") {
      add(4 * value.shape[0]);
      add(4 * value.shape[1]);
    } else if (name == "adamw8bit" && n >= 4096) {
      for (const int64_t bytes : {n, 4 * ((n + 255) / 256)}) {
        add(bytes);
        add(bytes);
      }
    } else {
      add(4 * n);
      add(4 * n);
    }
  }
  int64_t found = 0;
  for (const Region& region : arena_regions(*set)) {
    if (region.name == name_of(graph::Role::kState)) found += region.bytes;
  }
  EXPECT_EQ(found, wanted);
}

INSTANTIATE_TEST_SUITE_P(
    All, Optimizers,
    testing::Combine(testing::Values(Case{"adamw", optim::AdamW{}}, Case{"muon", optim::Muon{}},
                                     Case{"lion", optim::Lion{}}, Case{"adafactor", optim::Adafactor{}},
                                     Case{"adamw8bit", optim::AdamW8Bit{}}, Case{"adopt", optim::Adopt{}}),
                     testing::Values("llama3-5m", "gpt2-124m")),
    [](const auto& one) {
      const std::string preset = std::get<1>(one.param);
      return std::string(std::get<0>(one.param).name) + "_" + preset.substr(0, preset.find('-'));
    });

}  // namespace
}  // namespace strata::program
