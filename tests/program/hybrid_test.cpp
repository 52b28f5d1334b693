// Hybrids and models with an indexer on one rank: documents that are packed, and the memory that layers take.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "fixtures/test_name.h"
#include "mesh_model.h"

namespace strata::program {
namespace {

constexpr const char* kHybrids[] = {"gdn-30m",
                                    "qwen3-next-80b-a3b",
                                    "olmo-hybrid-7b",
                                    "kda-30m",
                                    "mamba2-30m",
                                    "nemotron-3-nano-30b-a3b",
                                    "granite-4.0-h-tiny",
                                    "falcon-h1-0.5b",
                                    "lfm2-8b-a1b",
                                    "dsa-30m",
                                    "glm-5"};

CompileOptions options_of(const std::string& preset) {
  CompileOptions options = tiny_options(preset_of(preset));
  options.model = small_model(preset);
  options.model.experts.balance_coefficient = options.model.experts.z_coefficient = 0;
  options.rule_of = steady_rule;
  return options;
}

struct Document {
  int32_t number = 0;
  int64_t length = 0;
};
// A row of documents; its remaining positions have no targets.
using Row = std::vector<Document>;

void fill_rows(Executor& executor, const std::vector<Row>& rows) {
  const int64_t length = executor.program(0).request.sequence_length;
  const auto vocab = static_cast<int32_t>(executor.set().options.model.vocab_size);
  std::vector<int32_t> tokens, targets, positions, begins;
  for (const Row& row : rows) {
    int64_t place = 0;
    const auto add = [&](int32_t document, int64_t count, bool counts) {
      const auto token = [&](int64_t i) {
        return static_cast<int32_t>((document * 31 + i * i * 7 + i * 5 + 3) % vocab);
      };
      for (int64_t i = 0; i < count; ++i) {
        tokens.push_back(token(i));
        targets.push_back(counts ? token(i + 1) : -1);
        positions.push_back(static_cast<int32_t>(i));
        begins.push_back(static_cast<int32_t>(place));
      }
      place += count;
    };
    for (const Document& document : row) add(document.number, document.length, true);
    add(99, length - place, false);
  }
  executor.upload_column(0, Column::kTokens, 0, tokens);
  executor.upload_column(0, Column::kTargets, 0, targets);
  executor.upload_column(0, Column::kPositions, 0, positions);
  executor.upload_column(0, Column::kKvBegin, 0, begins);
}

MeshRanks gradients_of(const CompileOptions& options, const std::vector<Row>& rows) {
  return MeshRanks(
      compile({{.kind = Kind::kTrain, .sequences = std::ssize(rows), .sequence_length = 40}}, options), 3,
      [&](Executor& executor, const graph::Coordinates&) {
        write_terms(executor, std::array<int64_t, 3>{40, 40, 40});
        fill_rows(executor, rows);
        write_hyper(executor, {.lr = 0});
        executor.run_script(0);
      });
}

class Hybrid : public testing::TestWithParam<const char*> {};

// Documents shorter than a convolution, of one token, and as long as several chunks of a row.
TEST_P(Hybrid, PackedDocumentsAreThoseOfRowsOfTheirOwn) {
  const CompileOptions options = options_of(GetParam());
  const Row packed{{1, 9}, {2, 2}, {3, 1}, {4, 21}, {5, 7}};
  std::vector<Row> alone;
  for (const Document& document : packed) alone.push_back({document});
  const MeshRanks together = gradients_of(options, {packed}), apart = gradients_of(options, alone);
  const double wanted = apart.whole("loss_sum").values[0];
  EXPECT_NEAR(together.whole("loss_sum").values[0], wanted, 1e-5 * wanted);
  const graph::Graph& graph = apart.set().programs[0].graph;
  if (options.model.indexer) {
    const double of_indexers = apart.whole("indexer_loss_sum").values[0];
    EXPECT_GT(of_indexers, 0);
    EXPECT_NEAR(together.whole("indexer_loss_sum").values[0], of_indexers, 1e-5 * of_indexers);
  }
  for (const graph::Parameter& parameter : graph.parameters()) {
    if (parameter.gradient == graph::kNone) continue;
    const std::string& name = graph.value(parameter.gradient).name;
    const Tensor found = together.whole(name), of_rows = apart.whole(name);
    double squares = 0, difference = 0;
    for (size_t i = 0; i < found.values.size(); ++i) {
      squares += of_rows.values[i] * of_rows.values[i];
      difference += std::pow(found.values[i] - of_rows.values[i], 2);
    }
    EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(squares) + 1e-7) << name;
  }
}

using Indexer = layers::Settings::Indexer;

std::shared_ptr<const ProgramSet> compiled(const std::string& preset, int64_t length, Recompute recompute,
                                           Indexer indexer = Indexer::kSparse) {
  CompileOptions options = tiny_options(preset_of(preset));
  options.model = models::preset(preset);
  options.model.vocab_size = 512;
  options.rule_of = steady_rule;
  options.recompute = recompute;
  options.activations = DType::kBF16;
  options.indexer = indexer;
  return compile({{.kind = Kind::kTrain, .sequences = 1, .sequence_length = length}}, options);
}

// Bytes of the values of a layer that its backward reads: all, and those that are results of linear projections to heads.
struct Kept {
  int64_t all = 0, projections = 0;
};
Kept kept_of_mixer(const ProgramSet& set, int32_t layer) {
  const graph::Graph& graph = set.programs[0].graph;
  std::set<graph::ValueId> made;
  Kept kept;
  bool in_mixer = true;
  for (const graph::Node& node : graph.nodes()) {
    if (node.layer != layer || node.phase != graph::Phase::kForward || !in_mixer) continue;
    for (const graph::ValueId id : node.outputs) {
      if (id == graph::kNone) continue;
      made.insert(id);
      if (node.op->name == "linear") kept.projections += graph.value(id).bytes();
    }
    if (node.op->name == "gated_norm") in_mixer = false;
  }
  std::set<graph::ValueId> read;
  for (const graph::Node& node : graph.nodes()) {
    if (node.phase == graph::Phase::kForward) continue;
    for (const graph::ValueId id : node.inputs)
      if (made.contains(id)) read.insert(id);
  }
  for (const graph::ValueId id : read) kept.all += graph.value(id).bytes();
  return kept;
}

// With cheap values made again, a mixer keeps its projections and the outputs of its recurrence; no state.
TEST(HybridMemory, MixersKeepLittleMoreThanTheirProjections) {
  for (const char* preset : {"gdn-30m", "mamba2-30m", "qwen3.5-9b"}) {
    const Kept kept = kept_of_mixer(*compiled(preset, 4096, Recompute::kSelective), 0);
    EXPECT_GT(kept.projections, 0);
    EXPECT_LE(static_cast<double>(kept.all), 1.5 * static_cast<double>(kept.projections)) << preset;
  }
}

TEST(HybridMemory, GrowsWithTheLength) {
  for (const auto& [name, stage] : {std::pair{"mamba2-30m", Indexer::kSparse},
                                    {"kda-30m", Indexer::kSparse},
                                    {"dsa-30m", Indexer::kSparse},
                                    {"dsa-30m", Indexer::kDense}}) {
    const char* const preset = name;
    const auto is_short = compiled(preset, 4096, Recompute::kNone, stage),
               is_long = compiled(preset, 8192, Recompute::kNone, stage);
    const auto workspace = [](const ProgramSet& set) { return set.arena_bytes - set.persistent_bytes; };
    EXPECT_LE(static_cast<double>(workspace(*is_long)), 2.04 * static_cast<double>(workspace(*is_short)))
        << preset;
    for (const graph::Node& node : is_long->programs[0].graph.nodes()) {
      for (const graph::ValueId id : node.outputs) {
        if (id == graph::kNone) continue;
        EXPECT_LT(is_long->programs[0].graph.value(id).shape.elements(), int64_t{8192} * 8192)
            << node.op->name;
      }
    }
  }
}

std::string name_of_hybrid(const testing::TestParamInfo<const char*>& one) {
  return test_name(one.param);
}
INSTANTIATE_TEST_SUITE_P(All, Hybrid, testing::ValuesIn(kHybrids), name_of_hybrid);

}  // namespace
}  // namespace strata::program
