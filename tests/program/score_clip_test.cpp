// QK-clip in programs: heads whose scores exceed the limit get smaller queries and keys, whatever the micro-batches and ranks
// of a step are.
#include "optim/score_clip/score_clip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "mesh_model.h"
#include "models/parametrization.h"
#include "pipeline_model.h"

namespace strata::program {
namespace {

using graph::Mesh;

optim::ParameterRule muon_rule(const std::string&, graph::ParameterRole role) {
  optim::UpdateRule rule{.weight_decay = 0.1, .optimizer = kSteadyAdamW};
  if (models::is_hidden_matrix(role)) rule.optimizer = optim::Muon{};
  return optim::one_rule(rule);
}

struct ClipLayout {
  const char* name;
  Mesh mesh = Mesh::of_one();
  int zero = 0;
  Recompute recompute = Recompute::kNone;
  const char* preset = "llama3-5m";
  bool sequence_parallel = true;
  layers::ContextKind context = layers::ContextKind::kAllGather;
};
std::ostream& operator<<(std::ostream& out, const ClipLayout& layout) {
  return out << layout.name;
}

CompileOptions options_with(const models::ModelConfig& model, double limit, const ClipLayout& layout) {
  CompileOptions options = tiny_options(layout.preset);
  options.model = model;
  options.rule_of = muon_rule;
  options.score_limit = limit;
  options.mesh = layout.mesh;
  options.zero = layout.zero;
  options.recompute = layout.recompute;
  options.sequence_parallel = layout.sequence_parallel;
  options.context_kind = layout.context;
  return options;
}

std::vector<std::shared_ptr<const ProgramSet>> sets_of(const CompileOptions& options) {
  std::vector<std::shared_ptr<const ProgramSet>> sets;
  const auto stages = static_cast<int32_t>(options.mesh.size(graph::Axis::kPipeline));
  for (int32_t place = 0; place < stages; ++place) {
    const CompileOptions mine =
        stages == 1 ? options : at_place(options, pipeline_of({"1f1b", stages, 2, 1}, options.model), place);
    sets.push_back(compile({request_for(mine.model, mine.mesh.batch_ranks())}, mine));
  }
  return sets;
}

// This rank's part of a parameter.
void write_part(Executor& executor, const graph::Coordinates& at, const std::string& name,
                const std::vector<float>& whole) {
  const graph::Graph& graph = executor.program(0).graph;
  const graph::ValueId id = graph.find_value(name);
  ASSERT_NE(id, graph::kNone) << name;
  const graph::Value& value = graph.value(id);
  const Shape& global = value.sharding.global_shape.rank() > 0 ? value.sharding.global_shape : value.shape;
  ASSERT_EQ(global.elements(), std::ssize(whole)) << name;
  const auto spans = graph::held_spans(value, executor.set().options.mesh, at);
  const bool is_matrix = global.rank() > 1;
  const int64_t columns = is_matrix ? global[1] : 1, width = is_matrix ? value.shape[1] : 1;
  const std::vector<graph::HeldSpan> one{{{0, 1}, 0}};
  std::vector<float> part(static_cast<size_t>(value.shape.elements()), 0.0f);
  for (const graph::HeldSpan& rows : spans[0]) {
    for (const graph::HeldSpan& some : is_matrix ? spans[1] : one) {
      for (int64_t row = 0; row < rows.whole.size(); ++row) {
        const auto from = whole.begin() + (rows.whole.begin + row) * columns + some.whole.begin;
        std::copy_n(from, some.whole.size(), part.begin() + (rows.at + row) * width + some.at);
      }
    }
  }
  executor.write_floats(name, part);
}

std::vector<double> summary_of(const Executor& executor) {
  const graph::ValueId id = executor.program(0).graph.metric(graph::MetricKind::kScoreClip);
  std::vector<double> summary(static_cast<size_t>(executor.program(0).graph.value(id).shape.elements()));
  executor.download(0, id, summary.data(), static_cast<int64_t>(summary.size() * sizeof(double)));
  return summary;
}

// --- The published rule, in NumPy: tools/golden/make_score_clip_golden.py

models::ModelConfig golden_model(const nlohmann::json& one) {
  const std::string name = one.at("name");
  const bool is_latent = name.starts_with("latent"), is_multi_head = name == "multi_head";
  models::ModelConfig model = small_model(is_latent       ? "deepseek2-6m"
                                          : is_multi_head ? "gpt2-124m"
                                                          : "llama3-5m");
  model.vocab_size = 31;
  model.hidden_size = 16;
  model.layers = 1;
  model.heads = 4;
  model.kv_heads = one.at("kv_heads");
  model.intermediate_size = 24;
  model.max_positions = kLength;
  model.norm_eps = 1e-5;
  model.rope = {.theta = 10000};
  model.head_dim = 4;
  if (is_latent) {
    model.latent->query_rank = one.at("query_rank");
    model.head_dim = model.latent->head_dim();
  }
  return model;
}

using ByName = std::map<std::string, std::vector<float>>;

// A step that changes no weight but by its clip.
MeshRanks clip_once(const nlohmann::json& one, double limit, const ClipLayout& layout,
                    std::vector<double>* summary) {
  return MeshRanks(sets_of(options_with(golden_model(one), limit, layout)), 3,
                   [&, summary](Executor& executor, const graph::Coordinates& at) {
                     fill_batch(executor, at);
                     // Of a parameter that ranks hold in parts, its rows.
                     std::set<std::string> written;
                     for (const graph::Parameter& parameter : executor.program(0).graph.parameters()) {
                       const std::string& name = executor.program(0).graph.value(parameter.value).name;
                       const std::string& whole = parameter.part.of.empty() ? name : parameter.part.of;
                       if (!one.at("weights").contains(whole)) continue;
                       const auto values = one.at("weights").at(whole).get<std::vector<float>>();
                       const graph::Value& value = executor.program(0).graph.value(parameter.value);
                       const Shape& shape =
                           value.sharding.global_shape.rank() > 0 ? value.sharding.global_shape : value.shape;
                       const int64_t columns = shape.rank() > 1 ? shape[1] : 1;
                       const auto first = values.begin() + parameter.part.first_row * columns;
                       write_part(executor, at, name, {first, first + shape.elements()});
                       written.insert(whole);
                     }
                     EXPECT_EQ(written.size(), one.at("weights").size());
                     executor.run(0, {Segment::kEncode});
                     write_hyper(executor, {.max_grad_norm = 1, .lr = 0});
                     executor.run_script(0);
                     if (at == graph::Coordinates{}) *summary = summary_of(executor);
                   });
}

class ScoreClipRule : public testing::TestWithParam<ClipLayout> {};

TEST_P(ScoreClipRule, ClipsAsNumPy) {
  const auto golden = parse_json<nlohmann::json>(read_file(STRATA_TEST_DATA "/optim/score_clip.json"));
  const double limit = golden.at("limit");
  for (const auto& one : golden.at("cases")) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    std::vector<double> summary;
    const MeshRanks ranks = clip_once(one, limit, GetParam(), &summary);
    for (const auto& [name, values] : one.at("clipped").items()) {
      const Tensor found = ranks.whole(name);
      const auto wanted = values.get<std::vector<double>>();
      ASSERT_EQ(found.values.size(), wanted.size()) << name;
      for (size_t i = 0; i < wanted.size(); ++i)
        ASSERT_NEAR(found.values[i], wanted[i], 2e-6 * std::abs(wanted[i])) << name << ", element " << i;
    }
    const auto scores = one.at("scores").get<std::vector<double>>();
    ASSERT_EQ(summary.size(), static_cast<size_t>(optim::kScoreColumns));
    EXPECT_EQ(summary[optim::kScoreHeads], static_cast<double>(scores.size()));
    EXPECT_NEAR(summary[optim::kGreatestScore], *std::max_element(scores.begin(), scores.end()),
                1e-5 * summary[optim::kGreatestScore]);
    EXPECT_EQ(summary[optim::kClippedHeads],
              static_cast<double>(std::count_if(scores.begin(), scores.end(),
                                                [limit](double score) { return score > limit; })));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ScoreClipRule,
                         testing::Values(ClipLayout{"one"},
                                         ClipLayout{"shard2_tensor2", Mesh::of(1, 2, 1, 2), 1},
                                         ClipLayout{"zero3_shard2_tensor2", Mesh::of(1, 2, 1, 2), 3},
                                         ClipLayout{"replicate2_shard2", Mesh::of(2, 2, 1, 1), 2},
                                         ClipLayout{"context2_tensor2", Mesh::of(1, 1, 2, 2)},
                                         ClipLayout{.name = "ring2_tensor2",
                                                    .mesh = Mesh::of(1, 1, 2, 2),
                                                    .context = layers::ContextKind::kRing},
                                         ClipLayout{.name = "recomputed", .recompute = Recompute::kFull}),
                         [](const auto& one) { return std::string(one.param.name); });

// --- Steps that train

MeshRanks train_clipped(const CompileOptions& options, int steps, std::vector<double>* summary) {
  return MeshRanks(sets_of(options), 3, [=](Executor& executor, const graph::Coordinates& at) {
    fill_batch(executor, at);
    for (int step = 0; step < steps; ++step) {
      write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
      executor.run_script(0);
    }
    if (at == graph::Coordinates{}) *summary = summary_of(executor);
  });
}

// The sum over the stages of a pipeline.
double total_of(const std::vector<double>& summary, int64_t column) {
  double sum = 0;
  for (size_t row = 0; row < summary.size(); row += optim::kScoreColumns)
    sum += summary[row + static_cast<size_t>(column)];
  return sum;
}

class ScoreClipOnAMesh : public testing::TestWithParam<ClipLayout> {};

TEST_P(ScoreClipOnAMesh, ClipsAsOneRank) {
  const ClipLayout& layout = GetParam();
  const models::ModelConfig model = small_model(layout.preset);
  // Small initial weights have small scores: some heads are above this limit, some below.
  constexpr double kLimit = 2e-3;
  ClipLayout alone{.name = "one", .preset = layout.preset};
  std::vector<double> of_one, of_ranks;
  const MeshRanks one = train_clipped(options_with(model, kLimit, alone), 2, &of_one);
  const MeshRanks ranks = train_clipped(options_with(model, kLimit, layout), 2, &of_ranks);
  EXPECT_GT(total_of(of_one, optim::kClippedHeads), 0);
  for (const int64_t column : {optim::kScoreHeads, optim::kClippedHeads})
    EXPECT_EQ(total_of(of_ranks, column), total_of(of_one, column));
  for (const Persistent& entry : one.set().persistent) {
    if (entry.role != graph::Role::kParameter) continue;
    expect_near(ranks.whole(entry.name), one.whole(entry.name), 1e-4, entry.name);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ScoreClipOnAMesh,
    testing::Values(
        ClipLayout{"pipeline2", Mesh::of(1, 1, 1, 1, 2)},
        ClipLayout{"pipeline2_tensor2", Mesh::of(1, 1, 1, 2, 2)},
        ClipLayout{"tensor8_of_four_key_heads", Mesh::of(1, 1, 1, 8)},
        ClipLayout{"tensor2_whole_rows", Mesh::of(1, 1, 1, 2), 0, Recompute::kNone, "llama3-5m", false},
        ClipLayout{"zero3_shard3", Mesh::of(1, 3, 1, 1), 3},
        ClipLayout{"ulysses2_tensor2", Mesh::of(1, 1, 2, 2), 0, Recompute::kNone, "llama3-5m", true,
                   layers::ContextKind::kUlysses},
        ClipLayout{"latents_ring2", Mesh::of(1, 1, 2, 1), 0, Recompute::kNone, "deepseek2-6m", true,
                   layers::ContextKind::kRing},
        ClipLayout{"chosen_keys_context2_tensor2", Mesh::of(1, 1, 2, 2), 0, Recompute::kFull, "dsa-30m"},
        ClipLayout{"capped_scores_tensor2", Mesh::of(1, 1, 1, 2), 0, Recompute::kNone, "gemma2-2b"},
        ClipLayout{"hybrid_shard2", Mesh::of(1, 2, 1, 1), 1, Recompute::kSelective, "nemotron-h-30m"},
        ClipLayout{"parallel_mixers_tensor2", Mesh::of(1, 1, 1, 2), 0, Recompute::kNone, "falcon-h1-0.5b"}),
    [](const auto& one) { return std::string(one.param.name); });

// --- One rank

CompileOptions tiny_with(double limit) {
  CompileOptions options = tiny_options("llama3-5m");
  options.rule_of = muon_rule;
  options.score_limit = limit;
  return options;
}

// What a limit that no score reaches leaves is what no limit leaves, bit for bit.
TEST(ScoreClip, ChangesNothingBelowTheLimit) {
  TinyRun without(compile({tiny_request(2)}, tiny_with(0))), with(compile({tiny_request(2)}, tiny_with(1e6)));
  for (int step = 0; step < 3; ++step) {
    without.step();
    with.step();
  }
  std::map<std::string, std::string> found;
  for (const auto& [name, bytes] : with.state()) found[name] = bytes;
  for (const auto& [name, bytes] : without.state()) EXPECT_TRUE(found.at(name) == bytes) << name;
  EXPECT_EQ(summary_of(with.executor)[optim::kClippedHeads], 0);
  EXPECT_GT(summary_of(with.executor)[optim::kGreatestScore], 0);
}

// Nothing is found, computed or stored without a limit.
TEST(ScoreClip, IsAbsentWithoutALimit) {
  const auto set = compile({tiny_request(2)}, tiny_with(0));
  const Program& program = set->programs[0];
  EXPECT_EQ(program.graph.metric(graph::MetricKind::kScoreClip), graph::kNone);
  for (const graph::Node& node : program.graph.nodes()) {
    EXPECT_NE(node.op, &optim::ScaleRows::def);
    EXPECT_NE(node.op, &optim::ScoreFactors::def);
    if (node.op == &ops::Attention::def) {
      EXPECT_EQ(node.outputs[2], graph::kNone);
    }
  }
}

// Kernels that read packed weights read the clipped ones: the next step's scores are those of the limit.
TEST(ScoreClip, HoldsScoresAtTheLimit) {
  constexpr double kLimit = 0.25;
  TinyRun run(compile({tiny_request(2)}, tiny_with(kLimit)));
  run.step(0);
  const double before = summary_of(run.executor)[optim::kGreatestScore];
  EXPECT_GT(before, 2 * kLimit);
  EXPECT_GT(summary_of(run.executor)[optim::kClippedHeads], 0);
  for (int step = 0; step < 2; ++step) run.step(0);
  // Inputs of the first layer stay; those of later ones change with the attention before them.
  const double after = summary_of(run.executor)[optim::kGreatestScore];
  EXPECT_LT(after, 1.2 * kLimit);
}

TEST(ScoreClip, ASkippedStepClipsNothing) {
  TinyRun run(compile({tiny_request(2)}, tiny_with(1e-3)));
  const auto qkv = [&] { return run.executor.read_all<char>("layers.1.attention.qkv.weight"); };
  const auto before = qkv();
  auto values = run.executor.read_all<float>("final_norm.weight");
  const auto kept = values;
  std::fill(values.begin(), values.end(), std::nanf(""));
  run.executor.write("final_norm.weight", values);
  run.step();
  EXPECT_TRUE(qkv() == before);
  EXPECT_GT(summary_of(run.executor)[optim::kGreatestScore], 1e-3);
  EXPECT_EQ(summary_of(run.executor)[optim::kClippedHeads], 0);
  run.executor.write("final_norm.weight", kept);
  run.step();
  EXPECT_FALSE(qkv() == before);
}

}  // namespace
}  // namespace strata::program
