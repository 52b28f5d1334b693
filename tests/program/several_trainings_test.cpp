// Several training programs of one set, of different micro-batches and lengths, continue each other's steps.
#include <gtest/gtest.h>

#include "fixtures/tiny_program.h"
#include "program/memory_report.h"

namespace strata::program {
namespace {

constexpr int64_t kWholeLength = 24;

// Each holds the same tokens in a micro-batch.
Request request_with(int64_t micro_batches, int64_t pieces) {
  return {.kind = Kind::kTrain,
          .sequences = 2 * pieces,
          .sequence_length = kWholeLength / pieces,
          .micro_batches = micro_batches};
}

void upload_batch(Executor& executor, size_t index) {
  const Request& request = executor.program(index).request;
  const int64_t vocabulary = executor.set().options.model.vocab_size;
  for (int64_t micro = 0; micro < request.micro_batches; ++micro) {
    std::vector<int32_t> tokens, targets, positions, begins, samples;
    for (int64_t i = 0; i < request.sequences * request.sequence_length; ++i) {
      tokens.push_back(static_cast<int32_t>((i * 37 + micro * 11) % vocabulary));
      targets.push_back(static_cast<int32_t>((i * 37 + micro * 11 + 1) % vocabulary));
      positions.push_back(static_cast<int32_t>(i % request.sequence_length));
      begins.push_back(0);
    }
    for (int64_t row = 0; row < request.sequences; ++row) samples.push_back(static_cast<int32_t>(row));
    executor.upload_column(index, Column::kTokens, micro, tokens);
    executor.upload_column(index, Column::kTargets, micro, targets);
    executor.upload_column(index, Column::kPositions, micro, positions);
    executor.upload_column(index, Column::kKvBegin, micro, begins);
    executor.upload_column(index, Column::kSamples, micro, samples);
  }
}

using Values = std::vector<std::pair<std::string, std::vector<char>>>;

bool is_compared(graph::Role role) {
  return role == graph::Role::kParameter || role == graph::Role::kGradient || role == graph::Role::kState ||
         role == graph::Role::kMetric;
}

Values values_of(const Executor& executor) {
  Values values;
  for (const Persistent& entry : executor.set().persistent)
    if (is_compared(entry.role) && !entry.name.starts_with("statistics."))
      values.emplace_back(entry.name, executor.read_all<char>(entry.name));
  return values;
}

CompileOptions options_for(const std::string& preset) {
  CompileOptions options = tiny_options(preset == "experts" ? "llama3-5m" : preset);
  options.rule_of = steady_rule;
  if (preset != "experts") return options;
  models::Experts& experts = options.model.experts;
  experts = {.count = 4, .intermediate_size = 24, .first = 1, .dense = {}};
  experts.route.k = 2;
  experts.balance_coefficient = 0.1;
  experts.jitter = 0.01;
  return options;
}

class SeveralTrainings : public testing::TestWithParam<std::tuple<const char*, DType>> {};

TEST_P(SeveralTrainings, ContinueEachOther) {
  const auto& [preset, dtype] = GetParam();
  CompileOptions options = options_for(preset);
  options.activations = dtype;
  const std::vector<Request> requests{
      request_with(3, 1),
      {.kind = Kind::kEvaluate, .sequences = 2, .sequence_length = kWholeLength},
      request_with(1, 1),
      request_with(1, 2),
      request_with(3, 3)};
  const auto together = compile(requests, options);
  TinyRun all(together);
  // The same steps, each by a set that has only its program.
  Values values = values_of(all.executor);
  for (const size_t index : {size_t{3}, size_t{2}, size_t{4}, size_t{0}}) {
    const auto one = compile({requests[index]}, options);
    EXPECT_LE(one->arena_bytes, together->arena_bytes);
    TinyRun alone(one);
    for (const auto& [name, bytes] : values) {
      if (alone.executor.set().find(name) != nullptr) alone.executor.write(name, bytes);
    }
    alone.executor.run(0, {Segment::kEncode});
    const optim::UpdateHyper hyper{.max_grad_norm = 1, .lr = 1e-2f};
    write_hyper(alone.executor, hyper);
    upload_batch(alone.executor, 0);
    alone.executor.run_script(0);
    write_hyper(all.executor, hyper);
    upload_batch(all.executor, index);
    all.poison_workspace();
    all.executor.run_script(index);
    values = values_of(all.executor);
    const Values wanted = values_of(alone.executor);
    ASSERT_EQ(values.size(), wanted.size());
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(values[i] == wanted[i]) << values[i].first << " after program " << index;
  }
  EXPECT_EQ(updates_made(all.executor), 4);
}

INSTANTIATE_TEST_SUITE_P(All, SeveralTrainings,
                         testing::Values(std::tuple{"llama3-5m", DType::kF32},
                                         std::tuple{"gpt2-124m", DType::kBF16},
                                         std::tuple{"experts", DType::kBF16}));

// Weights, gradients and states are there once; the batches of the largest program hold the others'.
TEST(SeveralTrainingPrograms, ShareTheirMemory) {
  const CompileOptions options = options_for("llama3-5m");
  const auto one = compile({request_with(4, 1)}, options);
  const auto several = compile({request_with(4, 1), request_with(2, 1), request_with(4, 2)}, options);
  EXPECT_EQ(several->persistent.size(), one->persistent.size());
  EXPECT_EQ(several->persistent_bytes, one->persistent_bytes);
  EXPECT_EQ(several->arena_bytes, one->arena_bytes);
}

}  // namespace
}  // namespace strata::program
