// `[model] from = DIR` with directories saved by transformers: the run trains like PyTorch from there
// (tools/golden/make_stream_golden.py).
#include "base/json.h"
#include "checkpoint/huggingface.h"
#include "cli/actions.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

class FromTransformers : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(FromTransformers, TrainsLikePyTorch) {
  const auto& [name, set] = GetParam();
  const Path model = Path(STRATA_GOLDEN_MODELS) / name;
  const auto golden = parse_json<nlohmann::json>(read_file(model / "stream.json"));
  const TinyRun tiny;
  const auto ids = golden.at("tokens").get<std::vector<uint16_t>>();
  put_file(tiny.path("stream.bin"), std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 2));
  const std::string toml = "[run]\nfolder = \"" + tiny.folder().string() + "\"\n[model]\nfrom = \"" +
                           model.string() + "\"\n[data]\ntrain = [\"" + tiny.path("stream.bin").string() +
                           "\"]\nshuffle = false\npack = \"stream\"\nepochs = 1\n" + R"([training]
sequence_length = 32
global_batch_size = 2
steps = 6
[optimizer]
lr = 1e-3
[schedule]
name = "constant"
warmup_steps = 0
[precision]
compute = "fp32"
[eval]
interval = "never"
[memory]
budget = "2GB"
)";
  const auto config = config::parse_run_config(toml, "RUN.toml", std::vector<std::string>{set});
  const TrainResult result = tiny.train_with(RunOptions{.config = config});
  EXPECT_EQ(result.end, RunEnd::kFinished);
  EXPECT_EQ(result.step, 6);
  const MetricsLog log = metrics_of(tiny.folder());
  const auto losses = golden.at("loss").get<std::vector<double>>();
  const auto norms = golden.at("grad_norm").get<std::vector<double>>();
  ASSERT_EQ(log.loss.size(), losses.size());
  for (size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(log.loss[step], losses[step], 1e-4 * losses[step]) << "step " << step + 1;
    EXPECT_NEAR(log.grad_norm[step], norms[step], 1e-3 * norms[step]) << "step " << step + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, FromTransformers,
                         testing::Combine(testing::Values("llama-tied", "llama-untied", "gpt2"),
                                          testing::Values("training.micro_batch_size=2",
                                                          "training.micro_batch_size=1",
                                                          "debug.reference_kernels=true")));

// pytorch_model shards of older models: the same weights, with a copy of the tied head and a rotary table.
TEST(FromTransformers, ReadsPickledShards) {
  ScratchFolder scratch;
  set_log_level(LogLevel::kError);
  testing::internal::CaptureStdout();
  cli::run_import({.source = (Path(STRATA_GOLDEN_MODELS) / "llama-tied").string(), .target = scratch / "a"});
  cli::run_import(
      {.source = std::string(STRATA_TEST_DATA) + "/checkpoint/torch/llama-tied", .target = scratch / "b"});
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(bits_of(scratch / "a", 0), bits_of(scratch / "b", 0));
}

// LlamaModel and GPT2Model save the same tensors without the prefix that the class with the head adds.
TEST(FromTransformers, ReadsBareModelsWithoutThePrefix) {
  for (const auto& [name, prefix] : {std::pair{"llama-tied", "model."}, std::pair{"gpt2", "transformer."}}) {
    const Path whole = Path(STRATA_GOLDEN_MODELS) / name;
    const checkpoint::TensorSource source = checkpoint::open_tensors(whole);
    std::vector<std::vector<std::byte>> memory;
    checkpoint::ModelFiles bare;
    bare.config_json = checkpoint::read_config_json(whole);
    bare.dtype = DType::kF32;
    for (const auto& [tensor, entry] : source.tensors) {
      ASSERT_TRUE(tensor.starts_with(prefix)) << tensor;
      memory.emplace_back(entry.tensor->bytes);
      entry.file->read(*entry.tensor, 0, memory.back().data(), memory.back().size());
      bare.weights.push_back({tensor.substr(std::string_view(prefix).size()), entry.tensor->shape,
                              DType::kF32, checkpoint::in_memory(memory.back().data())});
    }
    ScratchFolder scratch;
    checkpoint::write_hf_directory(posix_file_system(), scratch / "bare", bare);
    set_log_level(LogLevel::kError);
    testing::internal::CaptureStdout();
    cli::run_import({.source = whole.string(), .target = scratch / "a"});
    cli::run_import({.source = (scratch / "bare").string(), .target = scratch / "b"});
    testing::internal::GetCapturedStdout();
    EXPECT_EQ(bits_of(scratch / "a", 0), bits_of(scratch / "b", 0)) << name;
  }
}

}  // namespace
}  // namespace strata::training
