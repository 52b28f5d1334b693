// Instructions of the update that start during the last micro-batch.
#include "program/early.h"

#include <gtest/gtest.h>

#include "fixtures/mesh_ranks.h"
#include "fixtures/tiny_program.h"

namespace strata::program {
namespace {

using graph::Queue;

Access compute(std::vector<ByteRange> reads, std::vector<ByteRange> writes) {
  return {Queue::kCompute, std::move(reads), std::move(writes)};
}
Access moves(std::vector<ByteRange> reads, std::vector<ByteRange> writes) {
  return {Queue::kCommunication, std::move(reads), std::move(writes)};
}

std::vector<int32_t> instructions_of(const std::vector<Early>& early) {
  std::vector<int32_t> out;
  for (const Early& one : early) out.push_back(one.instruction);
  return out;
}

TEST(EarlyTest, StartsAfterTheLastAccessToItsBytes) {
  const std::vector<Access> action = {compute({}, {{0, 8}}), compute({}, {{8, 16}}),
                                      compute({{0, 4}}, {{32, 40}}), compute({{8, 16}}, {{40, 48}})};
  // The second is ready first, the third only at the end.
  const std::vector<Access> update = {moves({{8, 16}}, {{8, 16}}), moves({{0, 8}}, {{0, 8}}),
                                      moves({{40, 48}}, {{64, 72}}), compute({{0, 16}}, {{80, 84}})};
  const std::vector<Early> early = find_early(action, update);
  ASSERT_EQ(instructions_of(early), (std::vector<int32_t>{1}));
  EXPECT_EQ(early[0].before, 3);
  EXPECT_EQ(early[0].after, -1);
}

// The memory that it writes must be free, too.
TEST(EarlyTest, NotWhileItsMemoryIsInUse) {
  const std::vector<Access> action = {compute({}, {{0, 8}}), compute({{100, 108}}, {}),
                                      compute({}, {{20, 24}}), compute({}, {{24, 28}})};
  const std::vector<Early> early = find_early(action, std::vector<Access>{moves({{0, 8}}, {{104, 112}})});
  ASSERT_EQ(early.size(), 1U);
  EXPECT_EQ(early[0].before, 2);
}

TEST(EarlyTest, ExcludesInstructionsThatNeedTheUpdate) {
  const std::vector<Access> action = {compute({}, {{0, 8}}), compute({}, {{50, 58}})};
  const std::vector<Access> update = {compute({{0, 8}}, {{8, 16}}), moves({{8, 16}}, {{8, 16}}),
                                      moves({{0, 8}}, {{16, 24}}), moves({{16, 24}}, {{16, 24}})};
  EXPECT_EQ(instructions_of(find_early(action, update)), (std::vector<int32_t>{2}));
}

TEST(EarlyTest, ExcludesInstructionsThatKeepTheirOrder) {
  const std::vector<Access> action = {compute({}, {{0, 8}}), compute({}, {{50, 58}})};
  std::vector<Access> update = {moves({{0, 8}}, {{0, 8}}), moves({{0, 8}}, {{16, 24}})};
  update[0].reads = update[0].writes = {{100, 108}};
  update[0].in_order = true;
  EXPECT_EQ(instructions_of(find_early(action, update)), (std::vector<int32_t>{1}));
}

// Backward has started sums along one axis; they finish some time later.
TEST(EarlyTest, StartsAtTheNextCommunicationAfterOne) {
  const std::vector<Access> action = {moves({{0, 8}}, {{100, 104}}), compute({}, {{8, 16}}),
                                      compute({{8, 16}}, {{16, 24}}), moves({{16, 24}}, {{104, 108}}),
                                      compute({}, {{24, 32}})};
  const std::vector<Access> update = {moves({{100, 104}}, {{100, 104}}), moves({{104, 108}}, {{104, 108}})};
  const std::vector<Early> early = find_early(action, update);
  ASSERT_EQ(instructions_of(early), (std::vector<int32_t>{0}));
  EXPECT_EQ(early[0].before, 3);
  EXPECT_EQ(early[0].after, 0);
}

// A step of three layers on ranks; `early`: as in a run.
MeshRanks take_step(graph::Mesh mesh, int zero, bool early) {
  CompileOptions options = tiny_options("llama3-5m");
  options.mesh = std::move(mesh);
  options.zero = zero;
  const Request request{.sequences = 2, .sequence_length = 8, .micro_batches = 2};
  return MeshRanks(compile({request}, options), 3, [&](Executor& executor, const graph::Coordinates& at) {
    const int64_t seed = at[graph::Axis::kReplicate] * 5 + at[graph::Axis::kShard] * 3;
    for (int64_t micro = 0; micro < 2; ++micro) {
      std::vector<int32_t> ids(16);
      for (size_t i = 0; i < ids.size(); ++i)
        ids[i] = static_cast<int32_t>((i * 7 + static_cast<size_t>(micro + seed)) % 50);
      executor.upload_column(0, Column::kTokens, micro, ids);
      executor.upload_column(0, Column::kTargets, micro, ids);
      executor.upload_column(0, Column::kKvBegin, micro, std::vector<int32_t>(16, 0));
    }
    write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
    for (const Action& action : executor.program(0).script) executor.run(0, action, early);
  });
}

TEST(EarlyTest, SumsOfEachLayerOverlapTheNextLayersBackward) {
  const MeshRanks ranks = take_step(graph::Mesh::of(2, 1, 1, 1), 0, true);
  const Program& program = ranks.set().programs[0];
  std::vector<int32_t> layers;
  int32_t before = 0;
  for (const Early& early : program.early) {
    EXPECT_GE(early.before, before);
    before = early.before;
    const auto& instruction = program.segment(Segment::kUpdate)[static_cast<size_t>(early.instruction)];
    const graph::Node& node = program.node_of(instruction);
    if (node.layer == graph::kNone) continue;
    layers.push_back(node.layer);
    // Backward has not finished the first layer yet.
    const auto& backward = program.segment(Segment::kBackward, true);
    EXPECT_LT(static_cast<size_t>(early.before), backward.size());
  }
  EXPECT_EQ(layers, (std::vector<int32_t>{2, 1, 0}));
}

TEST(EarlyTest, ChangesNoBit) {
  for (const auto& [mesh, zero] :
       {std::pair{graph::Mesh::of(2, 1, 1, 1), 0}, std::pair{graph::Mesh::of(2, 2, 1, 1), 2},
        std::pair{graph::Mesh::of(1, 3, 1, 1), 1}}) {
    const MeshRanks with = take_step(mesh, zero, true), without = take_step(mesh, zero, false);
    EXPECT_FALSE(with.set().programs[0].early.empty()) << zero;
    for (const Persistent& entry : with.set().persistent) {
      if (entry.role != graph::Role::kParameter && entry.role != graph::Role::kState) continue;
      EXPECT_EQ(with.whole(entry.name).values, without.whole(entry.name).values) << entry.name;
    }
  }
}

}  // namespace
}  // namespace strata::program
