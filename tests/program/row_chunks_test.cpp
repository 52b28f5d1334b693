// Collectives of hidden states in chunks that overlap matmuls: the same bits, at most one chunk more memory,
// and matmuls that run while the collectives are in flight.
#include <gtest/gtest.h>

#include "base/error.h"
#include "mesh_model.h"
#include "ops/linear/linear.h"
#include "pipeline_model.h"

namespace strata::program {
namespace {

struct Case {
  const char* name;
  const char* preset = "llama3-5m";
  graph::Mesh mesh = graph::Mesh::of(1, 1, 1, 2);
  std::vector<int64_t> chunks = {2, 4};
  int64_t sequences = 8;  // of 64 tokens, per micro-batch and rank
  int zero = 0;
  Recompute recompute = Recompute::kNone;
  Backward backward = Backward::kCombined;
  DType activations = DType::kF32;
};

Request request_of(const Case& one) {
  return {.kind = Kind::kTrain,
          .sequences = one.sequences,
          .sequence_length = 64,
          .encoder_length = std::string_view(one.preset) == "t5-small" ? 128 : 0,
          .micro_batches = 2};
}

CompileOptions options_of(const Case& one, int64_t chunks) {
  CompileOptions options = tiny_options(one.preset);
  options.model = small_model(one.preset);
  options.rule_of = steady_rule;
  options.mesh = one.mesh;
  options.zero = one.zero;
  options.recompute = one.recompute;
  options.backward = one.backward;
  options.activations = one.activations;
  options.overlap_chunks = chunks;
  return options;
}

MeshRanks take_step(std::vector<std::shared_ptr<const ProgramSet>> sets) {
  return MeshRanks(std::move(sets), 3, [](Executor& executor, const graph::Coordinates& at) {
    fill_batch(executor, at);
    write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
    executor.run_script(0);
  });
}

std::vector<std::shared_ptr<const ProgramSet>> compiled(const Case& one, int64_t chunks) {
  const CompileOptions options = options_of(one, chunks);
  std::vector<std::shared_ptr<const ProgramSet>> sets;
  for (int32_t place = 0; place < options.mesh.size(graph::Axis::kPipeline); ++place) {
    sets.push_back(compile({request_of(one)},
                           options.mesh.size(graph::Axis::kPipeline) == 1
                               ? options
                               : at_place(options, pipeline_of({"1f1b", 2, 2}, options.model), place)));
  }
  return sets;
}

void expect_same_bits(const MeshRanks& found, const MeshRanks& wanted) {
  const graph::Graph& graph = wanted.set().programs[0].graph;
  for (const graph::Parameter& parameter : graph.parameters()) {
    for (const graph::ValueId id : {parameter.gradient, parameter.value}) {
      const std::string& name = graph.value(id).name;
      EXPECT_EQ(found.whole(name).values, wanted.whole(name).values) << name;
    }
  }
  for (const char* name : {"loss_sum", "grad_norm"})
    EXPECT_EQ(found.whole(name).values, wanted.whole(name).values) << name;
}

// Matmuls of a segment that start while an earlier collective is in flight.
int64_t matmuls_alongside(const Program& program, Segment segment) {
  int64_t count = 0;
  const std::vector<Instruction>& list = program.segment({segment});
  int32_t started = -1, done = -1;  // the last collective
  for (size_t i = 0; i < list.size(); ++i) {
    const graph::OpDef* op = program.node_of(list[i]).op;
    if (op->queue == graph::Queue::kCommunication) {
      started = static_cast<int32_t>(i);
      continue;
    }
    for (const int32_t other : program.waits_of(list[i])) done = std::max(done, other);
    count += started > done && (op == &ops::Linear::def || op == &ops::LinearGradInput::def);
  }
  return count;
}

class RowChunks : public testing::TestWithParam<Case> {};

TEST_P(RowChunks, ChangeNoBit) {
  const Case& one = GetParam();
  const auto whole = compiled(one, 1);
  const MeshRanks wanted = take_step(whole);
  for (const int64_t chunks : one.chunks) {
    SCOPED_TRACE(chunks);
    const auto cut = compiled(one, chunks);
    // The last chunk of an input gradient is in flight during the weight gradient.
    const int64_t chunk = one.sequences * 64 * 32 * size_of(DType::kF32) / chunks;
    EXPECT_LE(cut[0]->arena_bytes, whole[0]->arena_bytes + chunk);
    const MeshRanks found = take_step(cut);
    // Per layer two gathers and two reduce-scatters in forward, and two reduce-scatters of gradients.
    EXPECT_GE(found.collectives(), wanted.collectives() + 6 * static_cast<size_t>(chunks - 1));
    expect_same_bits(found, wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, RowChunks,
    testing::Values(Case{"llama"}, Case{.name = "gpt2", .preset = "gpt2-124m"},
                    Case{.name = "t5", .preset = "t5-small"}, Case{.name = "bert", .preset = "bert-tiny"},
                    Case{.name = "thirds", .chunks = {3}, .sequences = 6},
                    Case{.name = "four_ranks", .mesh = graph::Mesh::of(1, 1, 1, 4), .chunks = {2}},
                    Case{.name = "context", .mesh = graph::Mesh::of(1, 1, 2, 2), .chunks = {2}},
                    Case{.name = "zero3", .mesh = graph::Mesh::of(1, 2, 1, 2), .zero = 3},
                    Case{.name = "pipeline", .mesh = graph::Mesh::of(1, 1, 1, 2, 2)},
                    Case{.name = "full_recompute", .recompute = Recompute::kFull},
                    Case{.name = "split", .recompute = Recompute::kSelective, .backward = Backward::kSplit},
                    Case{.name = "bf16", .activations = DType::kBF16}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(RowChunksTest, MatmulsOverlapTheirCollectives) {
  const Case one{"llama"};
  const auto whole = compiled(one, 1), cut = compiled(one, 2);
  EXPECT_EQ(matmuls_alongside(whole[0]->programs[0], Segment::kForward), 0);
  // Two layers with two gathered inputs and two sums each: one of two chunks overlaps two matmuls.
  EXPECT_EQ(matmuls_alongside(cut[0]->programs[0], Segment::kForward), 2 * 4 * 2);
  EXPECT_GE(matmuls_alongside(cut[0]->programs[0], Segment::kBackward),
            matmuls_alongside(whole[0]->programs[0], Segment::kBackward) + 2 * 2 * 2);
}

TEST(RowChunksTest, IndivisibleRowsAreRefusedWithTheNearestChoice) {
  const auto refusal = [](int64_t chunks) {
    try {
      compiled(Case{"llama"}, chunks);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal(3).find("[overlap chunks] a rank of tensor has 256 rows"), std::string::npos)
      << refusal(3);
  EXPECT_NE(refusal(3).find("set it to 4"), std::string::npos) << refusal(3);
  EXPECT_NE(refusal(64).find("set it to 4"), std::string::npos) << refusal(64);
}

}  // namespace
}  // namespace strata::program
