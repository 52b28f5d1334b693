// A whole small model compiled for each rank of a mesh gives the losses, gradients and updates of one rank.
#include <gtest/gtest.h>

#include "fixtures/mesh_ranks.h"
#include "fixtures/tiny_program.h"

namespace strata::program {
namespace {

struct Layout {
  const char* name;
  graph::Mesh mesh;
  bool sequence_parallel = true;
  int zero = 0;
};

const std::vector<Layout>& layouts() {
  using graph::Mesh;
  static const std::vector<Layout> kAll{{"tensor2", Mesh::of(1, 1, 1, 2)},
                                        {"tensor2_whole_rows", Mesh::of(1, 1, 1, 2), false},
                                        {"tensor4", Mesh::of(1, 1, 1, 4)},
                                        {"shard2", Mesh::of(1, 2, 1, 1)},
                                        {"replicate2", Mesh::of(2, 1, 1, 1)},
                                        {"shard2_tensor2", Mesh::of(1, 2, 1, 2)},
                                        {"shard2_tensor2_whole_rows", Mesh::of(1, 2, 1, 2), false},
                                        {"replicate2_shard2", Mesh::of(2, 2, 1, 1)},
                                        {"zero1_shard2", Mesh::of(1, 2, 1, 1), true, 1},
                                        {"zero2_shard2", Mesh::of(1, 2, 1, 1), true, 2},
                                        {"zero3_shard2", Mesh::of(1, 2, 1, 1), true, 3},
                                        {"zero1_shard3", Mesh::of(1, 3, 1, 1), true, 1},
                                        {"zero3_shard4", Mesh::of(1, 4, 1, 1), true, 3},
                                        {"zero2_replicate2_shard2", Mesh::of(2, 2, 1, 1), true, 2},
                                        {"zero3_replicate2_shard2", Mesh::of(2, 2, 1, 1), true, 3},
                                        {"zero3_shard2_tensor2", Mesh::of(1, 2, 1, 2), true, 3}};
  return kAll;
}

// Sizes that four ranks divide.
models::ModelConfig small_model(const std::string& preset) {
  models::ModelConfig model = models::preset(preset);
  model.vocab_size = 101;
  model.hidden_size = 32;
  model.layers = 2;
  if (model.encoder_layers > 0) model.encoder_layers = 2;
  model.kv_heads = model.kv_heads == model.heads ? 8 : 4;
  model.heads = 8;
  model.head_dim = 8;
  model.intermediate_size = 48;
  if (model.positions != models::Positions::kRelative) model.max_positions = 64;
  if (model.sliding_window.size > 0) model.sliding_window.size = 7;
  return model;
}

constexpr int64_t kLength = 16, kSequences = 12;

// How a program is made beside its mesh.
struct Making {
  const char* name;
  Recompute recompute = Recompute::kNone;
  Backward backward = Backward::kCombined;
  DType activations = DType::kF32;
  double tolerance = 2e-5;
};

class OnAMesh : public testing::TestWithParam<std::tuple<const char*, Layout, Making>> {
 protected:
  static CompileOptions options_for(const std::string& preset, const Making& making) {
    CompileOptions options = tiny_options(preset);
    options.model = small_model(preset);
    options.recompute = making.recompute;
    options.backward = making.backward;
    options.activations = making.activations;
    return options;
  }
  static Request request_for(const models::ModelConfig& model, int64_t ranks) {
    const bool encoder = model.architecture == models::Architecture::kEncoderDecoder;
    return {.kind = Kind::kTrain,
            .sequences = kSequences / ranks,
            .sequence_length = kLength,
            .encoder_length = encoder ? 2 * kLength : 0,
            .micro_batches = 2};
  }
  // Sequence s of a micro-batch is the same whichever rank has it.
  static void fill_batch(Executor& executor, const graph::Coordinates& at) {
    const graph::Mesh& mesh = executor.set().options.mesh;
    const int64_t vocab = executor.set().options.model.vocab_size;
    const int64_t part = at[0] * mesh.size("shard") + at[1];
    const Request& request = executor.program(0).request;
    for (int64_t micro = 0; micro < request.micro_batches; ++micro) {
      for (const std::string name : {"tokens", "targets", "positions", "kv_begin", "encoder_tokens",
                                     "encoder_kv_begin", "cross_kv_begin"}) {
        const int64_t length =
            name.starts_with("encoder_") ? request.encoder_length : request.sequence_length;
        std::vector<int32_t> values;
        for (int64_t s = part * request.sequences; s < (part + 1) * request.sequences; ++s) {
          for (int64_t i = 0; i < length; ++i) {
            const int64_t document = i < length / 3 ? 0 : length / 3;
            const int64_t read = i < length / 3 ? 0 : request.encoder_length / 3;
            const int64_t mixed = (s * 131 + i * 37 + micro * 11 + static_cast<int64_t>(name.size()) * 5);
            const bool masked = name == "targets" && mixed % 5 == s % 5;
            values.push_back(static_cast<int32_t>(name == "positions"          ? i - document
                                                  : name == "kv_begin"         ? document
                                                  : name == "encoder_kv_begin" ? document
                                                  : name == "cross_kv_begin"   ? read
                                                  : masked                     ? -1
                                                                               : mixed % vocab));
          }
        }
        executor.upload_batch(0, name, micro, values.data(), std::ssize(values) * 4);
      }
    }
  }
  static MeshRanks take_step(const CompileOptions& options) {
    return MeshRanks(compile({request_for(options.model, options.mesh.batch_ranks())}, options), 3,
                     [](Executor& executor, const graph::Coordinates& at) {
                       fill_batch(executor, at);
                       // A large eps: a first update of AdamW is else the gradient's sign, and rounding
                       // decides those of gradients near zero.
                       write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f, .eps = 1e-2f});
                       executor.run_script(0);
                     });
  }
};

double largest(const Tensor& tensor) {
  double most = 0;
  for (const double value : tensor.values) most = std::max(most, std::abs(value));
  return most;
}

void expect_near(const Tensor& found, const Tensor& wanted, double tolerance, const std::string& name) {
  ASSERT_EQ(found.shape, wanted.shape) << name;
  const double scale = largest(wanted) + 1e-6;
  for (size_t i = 0; i < wanted.values.size(); ++i)
    ASSERT_NEAR(found.values[i], wanted.values[i], tolerance * scale) << name << ", element " << i;
}

TEST_P(OnAMesh, ComputesWhatOneRankComputes) {
  const auto& [preset, layout, making] = GetParam();
  CompileOptions options = options_for(preset, making);
  const MeshRanks one = take_step(options);
  ASSERT_EQ(one.collectives(), 0U);

  options.mesh = layout.mesh;
  options.sequence_parallel = layout.sequence_parallel;
  options.zero = layout.zero;
  const MeshRanks ranks = take_step(options);
  EXPECT_GT(ranks.collectives(), 0U);

  const graph::Graph& graph = one.set().programs[0].graph;
  for (const graph::Parameter& parameter : graph.parameters()) {
    for (const graph::ValueId id : {parameter.gradient, parameter.value}) {
      const std::string& name = graph.value(id).name;
      expect_near(ranks.whole(name), one.whole(name), making.tolerance, name);
      if (HasFatalFailure()) return;
    }
  }
  for (const char* name : {"loss_sum", "token_count", "grad_norm", "param_norm"})
    expect_near(ranks.whole(name), one.whole(name), making.tolerance, name);
}

constexpr Making kPlain{"plain"}, kFull{"recomputed", Recompute::kFull},
    kSplit{"split", Recompute::kSelective, Backward::kSplit};
// Sums of bf16 terms are rounded once a rank.
constexpr Making kBf16{"bf16", Recompute::kNone, Backward::kCombined, DType::kBF16, 6e-2};

std::string name_of_case(const testing::TestParamInfo<OnAMesh::ParamType>& one) {
  std::string name = std::string(std::get<0>(one.param)) + "_" + std::get<1>(one.param).name + "_" +
                     std::get<2>(one.param).name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, OnAMesh,
                         testing::Combine(testing::Values("llama3-5m", "gpt2-124m", "qwen3-0.6b", "gemma2-2b",
                                                          "gemma3-270m", "pythia-14m", "phi3-mini",
                                                          "starcoder2-3b", "stablelm2-1.6b", "bert-tiny",
                                                          "t5-small", "t5-v1.1-small"),
                                          testing::ValuesIn(layouts()), testing::Values(kPlain)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Makings, OnAMesh,
                         testing::Combine(testing::Values("llama3-5m", "bert-tiny", "t5-small"),
                                          testing::ValuesIn(layouts()), testing::Values(kFull, kSplit)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Bf16, OnAMesh,
                         testing::Combine(testing::Values("llama3-5m", "bert-tiny"),
                                          testing::ValuesIn(layouts()), testing::Values(kBf16)),
                         name_of_case);

}  // namespace
}  // namespace strata::program
