// On ranks: a causal model is causal in every layout, and leaks are named as on one rank.
#include <gtest/gtest.h>

#include <mutex>
#include <span>

#include "evaluation/causality.h"
#include "leaky_model.h"
#include "program/mesh_model.h"
#include "program/pipeline_model.h"

namespace strata::evaluation {
namespace {

using graph::Mesh;
using layers::ContextKind;
using leaky::Plant;
using program::Kind;

struct Layout {
  const char* name;
  Mesh mesh;
  const char* attention = "attention";  // the op that reads later keys in this layout
  bool sequence_parallel = true;
  int zero = 0;
  ContextKind context = ContextKind::kAllGather;
  int64_t overlap_chunks = 1;
  const char* schedule = "";  // of the pipeline
  int32_t virtual_stages = 1;
  layers::ExpertLayout experts = {};  // with more than one rank: a model whose experts are sharded
  DType activations = DType::kF32;
};

void PrintTo(const Layout& layout, std::ostream* out) {
  *out << layout.name;
}

const Layout kLayouts[] = {
    {"tensor2", Mesh::of(1, 1, 1, 2)},
    {"tensor2_whole_rows", Mesh::of(1, 1, 1, 2), "attention", false},
    {"tensor2_in_chunks", Mesh::of(1, 1, 1, 2), "attention", true, 0, ContextKind::kAllGather, 2},
    {"replicate2", Mesh::of(2, 1, 1, 1)},
    {"zero2_shard2", Mesh::of(1, 2, 1, 1), "attention", true, 2},
    {"zero3_shard2", Mesh::of(1, 2, 1, 1), "attention", true, 3},
    {"context2", Mesh::of(1, 1, 2, 1), "context_attention"},
    {"context2_tensor2", Mesh::of(1, 1, 2, 2), "context_attention"},
    {"ring2", Mesh::of(1, 1, 2, 1), "context_attention", true, 0, ContextKind::kRing},
    {"ulysses2", Mesh::of(1, 1, 2, 1), "attention", true, 0, ContextKind::kUlysses},
    {"zero3_shard2_context2", Mesh::of(1, 2, 2, 1), "context_attention", true, 3},
    {"pipeline2", Mesh::of(1, 1, 1, 1, 2), "attention", true, 0, ContextKind::kAllGather, 1, "1f1b"},
    {"pipeline2_split", Mesh::of(1, 1, 1, 1, 2), "attention", true, 0, ContextKind::kAllGather, 1, "zb_h1"},
    {"pipeline2_interleaved", Mesh::of(1, 1, 1, 1, 2), "attention", true, 0, ContextKind::kAllGather, 1,
     "interleaved", 2},
    {"pipeline2_tensor2", Mesh::of(1, 1, 1, 2, 2), "attention", true, 0, ContextKind::kAllGather, 1, "1f1b"}};

// Expert parallelism: along each axis and several, in one pass and in several, across nodes, with experts
// sharded by their width, in pipeline stages.
Layout sharing(const char* name, Mesh mesh, layers::ExpertLayout experts, int zero = 0,
               DType activations = DType::kF32) {
  Layout layout{name, std::move(mesh)};
  layout.experts = experts;
  layout.zero = zero;
  layout.activations = activations;
  if (layout.mesh.size(graph::Axis::kContext) > 1) layout.attention = "context_attention";
  if (layout.mesh.size(graph::Axis::kPipeline) > 1) layout.schedule = "1f1b";
  return layout;
}
const std::vector<Layout>& expert_layouts() {
  static const std::vector<Layout> kAll{
      sharing("shard2", Mesh::of(1, 2, 1, 1), {2}),
      sharing("shard2_in_passes", Mesh::of(1, 2, 1, 1), {2, 1, 0.5}),
      sharing("shard2_in_passes_bf16", Mesh::of(1, 2, 1, 1), {2, 1, 0.5}, 0, DType::kBF16),
      sharing("tensor2", Mesh::of(1, 1, 1, 2), {2}),
      sharing("context2_in_passes", Mesh::of(1, 1, 2, 1), {2, 1, 0.4}),
      sharing("zero3_shard2_tensor2", Mesh::of(1, 2, 1, 2), {4}, 3),
      sharing("zero1_shard2_context2_in_passes", Mesh::of(1, 2, 2, 1), {4, 1, 0.5}, 1),
      sharing("nodes_of_2_in_shard4_in_passes", Mesh::of(1, 4, 1, 1), {4, 1, 0.5, 2}),
      sharing("nodes_of_2_in_shard2_tensor2_bf16", Mesh::of(1, 2, 1, 2), {4, 1, {}, 2}, 0, DType::kBF16),
      sharing("shard2_expert_tensor2", Mesh::of(1, 2, 1, 2), {2, 2}),
      sharing("pipeline2_shard2_in_passes", Mesh::of(1, 2, 1, 1, 2), {2, 1, 0.5})};
  return kAll;
}

constexpr int32_t kMicroBatches = 4;

// The results for the training and the evaluation program, identical on all ranks.
struct Found {
  Causality train, evaluate;
};

constexpr const char* kExperts = "moe-30m-a10m";

Found check(const Layout& layout, const std::string& preset, Plant plant, bool document_mask = true,
            const layers::MoeSpec::Capacity& capacity = {}) {
  program::CompileOptions options = leaky::options_of(plant);
  const models::Family* const family = options.model.family;
  options.model = program::small_model(preset);
  program::set_layers(options.model, 4);
  if (plant != Plant::kNothing || preset == "llama3-5m" || preset == kExperts) options.model.family = family;
  if (preset == kExperts) {
    options.model.layers = 2;
    options.model.experts.count = 8;
    options.model.experts.capacity = capacity;
  }
  options.experts = layout.experts;
  options.activations = layout.activations;
  options.mesh = layout.mesh;
  options.sequence_parallel = layout.sequence_parallel;
  options.zero = layout.zero;
  options.context_kind = layout.context;
  options.overlap_chunks = layout.overlap_chunks;
  // Chunks of a rank's rows need more than two sequences.
  program::Request train = program::request_for(options.model, layout.overlap_chunks > 1 ? 1 : 6);
  train.micro_batches = kMicroBatches;
  train.document_mask = document_mask;
  program::Request evaluate = train;
  evaluate.kind = Kind::kEvaluate;
  evaluate.micro_batches = 1;
  std::vector<std::shared_ptr<const program::ProgramSet>> sets;
  const auto places = static_cast<int32_t>(layout.mesh.size(graph::Axis::kPipeline));
  for (int32_t place = 0; place < places; ++place) {
    program::CompileOptions mine = options;
    if (places > 1) {
      mine = program::at_place(
          options,
          program::pipeline_of({layout.schedule, places, kMicroBatches, layout.virtual_stages},
                               options.model),
          place);
    }
    sets.push_back(program::compile({train, evaluate}, mine));
  }
  Found found;
  std::mutex mutex;
  bool is_first = true;
  const program::MeshRanks ranks(std::move(sets), 3,
                                 [&](program::Executor& executor, const graph::Coordinates&) {
                                   executor.run(1, {program::Segment::kEncode});
                                   const Found mine{check_causality(executor, 0, {.positions = 16}),
                                                    check_causality(executor, 1, {.positions = 8})};
                                   const std::lock_guard lock(mutex);
                                   if (std::exchange(is_first, false)) found = mine;
                                   EXPECT_EQ(found.train.leaks.size(), mine.train.leaks.size());
                                   EXPECT_EQ(found.evaluate.leaks.size(), mine.evaluate.leaks.size());
                                   EXPECT_GT(mine.train.values, 10);
                                 });
  return found;
}

std::string text_of(const Causality& found) {
  std::string text;
  for (const Leak& leak : found.leaks)
    text += leak.op + " of layer " + std::to_string(leak.layer) + " leaks into " + leak.value + " (" +
            std::to_string(leak.largest) + ") ";
  return text;
}

class OnRanks : public testing::TestWithParam<Layout> {};
class OnRanksWithWholeSequences : public OnRanks {};  // the leak of one layer needs them

TEST_P(OnRanks, CausalModelsAreCausal) {
  for (const char* preset : {"llama3-5m", "gemma2-2b", "t5-small"}) {
    const bool rings_distances =
        GetParam().context == ContextKind::kRing && std::string(preset) == "t5-small";
    if (rings_distances) continue;  // not compiled (docs/parallelism.md)
    const Found found = check(GetParam(), preset, Plant::kNothing);
    EXPECT_TRUE(found.train.causal()) << preset << ": " << text_of(found.train);
    EXPECT_TRUE(found.evaluate.causal()) << preset << ": " << text_of(found.evaluate);
  }
}

TEST_P(OnRanks, HybridsAreCausal) {
  for (const char* preset : {"gdn-30m", "mamba2-30m"}) {
    const bool shares_a_group =
        GetParam().context == ContextKind::kUlysses && std::string(preset) == "mamba2-30m";
    if (shares_a_group) continue;  // not compiled
    const Found found = check(GetParam(), preset, Plant::kNothing);
    EXPECT_TRUE(found.train.causal()) << preset << ": " << text_of(found.train);
    EXPECT_TRUE(found.evaluate.causal()) << preset << ": " << text_of(found.evaluate);
  }
}

TEST_P(OnRanks, ModelsWithAnIndexerAreCausal) {
  const bool scatters_keys =
      GetParam().context == ContextKind::kRing || GetParam().context == ContextKind::kUlysses;
  if (scatters_keys) GTEST_SKIP() << "not compiled";
  for (const char* preset : {"dsa-30m", "glm-5"}) {
    const Found found = check(GetParam(), preset, Plant::kNothing);
    EXPECT_TRUE(found.train.causal()) << preset << ": " << text_of(found.train);
    EXPECT_TRUE(found.evaluate.causal()) << preset << ": " << text_of(found.evaluate);
  }
}

TEST(OnRanksWithPieces, StatesOfTheWrongPieceAreNamed) {
  for (const Layout& layout : kLayouts) {
    const bool has_pieces =
        layout.mesh.size(graph::Axis::kContext) > 1 && layout.context != ContextKind::kUlysses;
    if (!has_pieces) continue;
    for (const auto& [plant, op] : {std::pair{Plant::kConvolutionOfNextPiece, "causal_convolution"},
                                    {Plant::kStateOfOwnPiece, "recurrence"}}) {
      const Found found = check(layout, "gdn-30m", plant);
      for (const Causality* one : {&found.train, &found.evaluate}) {
        ASSERT_FALSE(one->causal()) << layout.name;
        EXPECT_EQ(one->leaks[0].op, op) << layout.name << ": " << text_of(*one);
        EXPECT_EQ(one->leaks[0].layer, 0);
      }
    }
  }
}

TEST_P(OnRanks, BothWaysIsFoundInTheFirstLayer) {
  const Found found = check(GetParam(), "llama3-5m", Plant::kBothWays);
  for (const Causality* one : {&found.train, &found.evaluate}) {
    ASSERT_FALSE(one->causal());
    EXPECT_EQ(one->leaks.size(), 1U) << text_of(*one);
    EXPECT_EQ(one->leaks[0].op, GetParam().attention);
    EXPECT_EQ(one->leaks[0].layer, 0);
    EXPECT_GT(one->leaks[0].largest, 0);
  }
}

TEST_P(OnRanks, FindsDocumentsThatAreNotMasked) {
  const Found found = check(GetParam(), "llama3-5m", Plant::kNothing, false);
  for (const Causality* one : {&found.train, &found.evaluate}) {
    ASSERT_FALSE(one->causal());
    EXPECT_EQ(one->leaks[0].op, GetParam().attention) << text_of(*one);
    EXPECT_EQ(one->leaks[0].layer, 0);
    EXPECT_GE(one->leaks[0].row, one->leaks[0].changed_to) << "a row of a later document";
  }
}

// A leak in one layer is attributed to that layer, whichever rank or stage has it.
TEST_P(OnRanksWithWholeSequences, LeakOfOneLayerIsNamed) {
  const Found found = check(GetParam(), "llama3-5m", Plant::kOtherDocument);
  for (const Causality* one : {&found.train, &found.evaluate}) {
    ASSERT_EQ(one->leaks.size(), 1U) << text_of(*one);
    EXPECT_EQ(one->leaks[0].op, "attention");
    EXPECT_EQ(one->leaks[0].layer, 1);
  }
}

class OnRanksThatShareExperts : public testing::TestWithParam<Layout> {};
class OnRanksThatShareExpertsWithWholeSequences : public OnRanksThatShareExperts {};

TEST_P(OnRanksThatShareExperts, CausalModelsAreCausal) {
  const Found found = check(GetParam(), kExperts, Plant::kNothing);
  EXPECT_TRUE(found.train.causal()) << text_of(found.train);
  EXPECT_TRUE(found.evaluate.causal()) << text_of(found.evaluate);
}

TEST_P(OnRanksThatShareExperts, BothWaysIsFoundInTheFirstLayer) {
  const Found found = check(GetParam(), kExperts, Plant::kBothWays);
  for (const Causality* one : {&found.train, &found.evaluate}) {
    ASSERT_EQ(one->leaks.size(), 1U) << text_of(*one);
    EXPECT_EQ(one->leaks[0].op, GetParam().attention);
    EXPECT_EQ(one->leaks[0].layer, 0);
  }
}

// Also in a layer after experts.
TEST_P(OnRanksThatShareExpertsWithWholeSequences, LeakOfTheSecondLayerIsNamed) {
  const Found found = check(GetParam(), kExperts, Plant::kOtherDocument);
  for (const Causality* one : {&found.train, &found.evaluate}) {
    ASSERT_EQ(one->leaks.size(), 1U) << text_of(*one);
    EXPECT_EQ(one->leaks[0].op, "attention");
    EXPECT_EQ(one->leaks[0].layer, 1);
  }
}

TEST_P(OnRanksThatShareExpertsWithWholeSequences, DroppingByProbabilityIsFound) {
  const Found found =
      check(GetParam(), kExperts, Plant::kNothing, true,
            {.factor = 0.6, .over_sequence = true, .keep = ops::CapacityAttrs::Keep::kGreatest});
  for (const Causality* one : {&found.train, &found.evaluate}) {
    ASSERT_FALSE(one->causal());
    EXPECT_EQ(one->leaks[0].op, "limit_experts") << text_of(*one);
    EXPECT_EQ(one->leaks[0].layer, 0);
  }
}

std::string name_of(const testing::TestParamInfo<Layout>& one) {
  return one.param.name;
}
std::vector<Layout> with_whole_sequences(std::span<const Layout> all) {
  std::vector<Layout> some;
  for (const Layout& one : all) {
    if (one.mesh.size(graph::Axis::kContext) == 1) some.push_back(one);
  }
  return some;
}
INSTANTIATE_TEST_SUITE_P(All, OnRanksThatShareExperts, testing::ValuesIn(expert_layouts()), name_of);
INSTANTIATE_TEST_SUITE_P(All, OnRanksThatShareExpertsWithWholeSequences,
                         testing::ValuesIn(with_whole_sequences(expert_layouts())), name_of);
INSTANTIATE_TEST_SUITE_P(All, OnRanks, testing::ValuesIn(kLayouts), name_of);
INSTANTIATE_TEST_SUITE_P(All, OnRanksWithWholeSequences, testing::ValuesIn(with_whole_sequences(kLayouts)),
                         name_of);

}  // namespace
}  // namespace strata::evaluation
