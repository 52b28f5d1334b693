// Programs on the GPU device, whose driver is the twin: all compile; evaluation and generated texts of decoders are the
// processor's.
#include <gtest/gtest.h>

#include "device/gpu/bindings.h"
#include "device/open/open.h"
#include "fixtures/tiny_program.h"
#include "inference/generate.h"

namespace strata::gpu_tests {
namespace {

using namespace program;

constexpr int64_t kChunk = 8, kLength = 24;

const std::shared_ptr<device::Device>& the_gpu() {
  static const std::shared_ptr<device::Device> kGpu = device::open(device::Kind::kCuda);
  return kGpu;
}

// --- All presets

device::Target an_a100() {
  device::Target target{{}, device::gpu_bindings()};
  target.spec.name = "NVIDIA A100";
  target.spec.kind = "gpu";
  target.spec.architecture = 80;
  target.spec.multiprocessors = 108;
  target.spec.cores = target.spec.threads = 1;
  target.spec.memory_bytes = int64_t{80} << 30;
  return target;
}

TEST(GpuPrograms, OfOneDeviceCompile) {
  int dense = 0, of_experts = 0;
  for (const models::Preset& preset : models::presets()) {
    CompileOptions options;
    options.model = models::preset(preset.name);
    if (options.model.layers > 32) continue;
    const bool reads = options.model.architecture == models::Architecture::kEncoderDecoder;
    const int64_t encoder_length = reads ? 256 : 0;
    options.rule_of = steady_rule;
    options.target = an_a100();
    options.cache_capacity = 256;
    std::vector<Request> requests{
        {.sequences = 1, .sequence_length = 256, .encoder_length = encoder_length, .document_mask = true},
        {.kind = Kind::kEvaluate,
         .sequences = 1,
         .sequence_length = 256,
         .encoder_length = encoder_length,
         .document_mask = true,
         .per_token_loss = true}};
    if (options.model.architecture != models::Architecture::kEncoder)
      for (const Request& request : inference::generation_requests(64, 2, encoder_length))
        requests.push_back(request);
    options.cache_slots = 2;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(std::string(preset.name) + " " + std::string(name_of(dtype)));
      options.activations = dtype;
      options.recompute = dtype == DType::kF32 ? Recompute::kFull : Recompute::kSelective;
      // Neither recurrences nor chosen keys compute on GPUs: count such a preset when it compiles.
      if (!options.model.layer_kinds.empty() || options.model.indexer) {
        EXPECT_THROW(compile_any(requests, options), ConfigError);
        continue;
      }
      ++(options.model.experts.count > 0 ? of_experts : dense);
      EXPECT_NO_THROW(compile_any(requests, options));
    }
  }
  EXPECT_GE(dense, 40);
  EXPECT_GE(of_experts, 10);
}

TEST(GpuPrograms, OpsWithoutAKernelAreRefusedByName) {
  CompileOptions options = tiny_options("llama3-5m");
  options.target = an_a100();
  options.mesh = graph::Mesh::of(1, 1, 2, 1);
  try {
    compile({tiny_request()}, options);
    FAIL() << "it compiles";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("cuda has no kernel for "), std::string::npos) << error.what();
  }
}

// --- A small model

struct Case {
  std::string preset;
  DType dtype;
};

class GpuModel : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {}

  // Programs: training, evaluation, prefill, decoding of one and of two sequences.
  static std::unique_ptr<Executor> model_on(const std::shared_ptr<device::Device>& device) {
    CompileOptions options = tiny_options(GetParam().preset);
    options.rule_of = steady_rule;
    options.activations = GetParam().dtype;
    options.target = device->target();
    options.cache_capacity = 4 * kChunk;
    options.cache_slots = 2;
    if (models::Experts& experts = options.model.experts; experts.count > 0) {
      experts.count = 4;
      experts.route.k = 2;
      experts.intermediate_size = 16;
    }
    std::vector<Request> requests{tiny_request(), tiny_request()};
    requests[1].kind = Kind::kEvaluate;
    requests[1].document_mask = requests[1].per_token_loss = true;
    for (const Request& request : inference::generation_requests(kChunk, 2)) requests.push_back(request);
    auto executor = std::make_unique<Executor>(compile(requests, options), device);
    fill_tiny(*executor);
    for (size_t i = 1; i < requests.size(); ++i) executor->run(i, {Segment::kEncode});
    return executor;
  }
  static std::unique_ptr<Executor> on_cpu() { return model_on(device::make_cpu_device(1)); }
  static double tolerance() { return GetParam().dtype == DType::kBF16 ? 3e-2 : 2e-5; }
};

struct Evaluated {
  double sum = 0;
  int64_t count = 0;
  std::vector<float> losses;
  std::vector<int32_t> greedy;
};
Evaluated evaluated(Executor& executor) {
  const int64_t rows = 2 * kLength;
  const auto upload = [&](Column column, const std::function<int64_t(int64_t)>& value) {
    std::vector<int32_t> values;
    for (int64_t i = 0; i < rows; ++i) values.push_back(static_cast<int32_t>(value(i)));
    executor.upload_column(1, column, 0, values);
  };
  const auto document = [](int64_t i) { return i % kLength < 10 ? 0 : 10; };
  upload(Column::kTokens, [](int64_t i) { return i * 53 % 211; });
  upload(Column::kTargets, [](int64_t i) { return i % 5 == 3 ? -1 : i * 31 % 7; });
  upload(Column::kPositions, [&](int64_t i) { return i % kLength - document(i); });
  upload(Column::kKvBegin, document);
  executor.run_script(1);
  return {executor.read<double>("loss_sum"), executor.read<int64_t>("token_count"),
          executor.read_all<float>("token_loss"), executor.read_all<int32_t>("token_greedy")};
}

TEST_P(GpuModel, EvaluatesAsTheProcessor) {
  const Evaluated expected = evaluated(*on_cpu()), found = evaluated(*model_on(the_gpu()));
  EXPECT_EQ(found.count, expected.count);
  EXPECT_NEAR(found.sum, expected.sum, tolerance() * expected.sum);
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (size_t i = 0; i < found.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], expected.losses[i], tolerance() * 5) << "row " << i;
  if (GetParam().dtype == DType::kF32) {
    EXPECT_EQ(found.greedy, expected.greedy);
  }
}

// The prompt is longer than a chunk and ends within one.
TEST_P(GpuModel, FollowsATextAsTheProcessor) {
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 17; ++i) text.push_back(i * 91 % 211);
  const auto logits_on = [&](const std::unique_ptr<Executor>& executor) {
    inference::Generator generator(*executor, 2, 3);
    std::vector<std::vector<float>> logits;
    generator.follow(text, 13, {}, [&](size_t, std::span<const float> row) {
      logits.emplace_back(row.begin(), row.end());
    });
    return logits;
  };
  const auto expected = logits_on(on_cpu()), found = logits_on(model_on(the_gpu()));
  ASSERT_EQ(found.size(), 5u);
  for (size_t row = 0; row < found.size(); ++row) {
    for (size_t i = 0; i < found[row].size(); ++i)
      ASSERT_NEAR(found[row][i], expected[row][i], tolerance() * 5) << "row " << row << ", token " << i;
  }
}

TEST_P(GpuModel, WritesTheProcessorsTexts) {
  if (GetParam().dtype != DType::kF32) GTEST_SKIP() << "bf16: the likeliest token may be another one";
  const inference::SamplingOptions greedy{.max_tokens = 5, .temperature = 0};
  const std::vector<inference::SequenceRequest> prompts{{{3, 77, 5, 190, 2, 9, 41, 8, 150}, greedy},
                                                        {{11, 12}, greedy}};
  const auto texts_on = [&](const std::unique_ptr<Executor>& executor) {
    inference::Generator generator(*executor, 2, 3);
    std::vector<std::vector<int32_t>> texts(prompts.size());
    generator.generate(prompts, {}, [&](size_t i, const std::vector<int32_t>& made) { texts[i] = made; });
    return texts;
  };
  EXPECT_EQ(texts_on(model_on(the_gpu())), texts_on(on_cpu()));
}

INSTANTIATE_TEST_SUITE_P(Decoders, GpuModel,
                         testing::Values(Case{"llama3-5m", DType::kF32}, Case{"gpt2-124m", DType::kF32},
                                         Case{"qwen3-0.6b", DType::kF32}, Case{"qwen3-0.6b", DType::kBF16},
                                         Case{"moe-30m-a10m", DType::kF32}, Case{"deepseek3-6m", DType::kF32},
                                         Case{"deepseek3-6m", DType::kBF16}),
                         [](const auto& one) {
                           return one.param.preset.substr(0, one.param.preset.find('-')) + "_" +
                                  std::string(name_of(one.param.dtype));
                         });

}  // namespace
}  // namespace strata::gpu_tests
