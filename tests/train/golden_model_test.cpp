// Whole models against transformers: logits, loss, every gradient, document masks, AdamW curves, greedy text.
// The files come from tools/golden/make_model_golden.py.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "checkpoint/huggingface.h"
#include "program/executor.h"
#include "train/generate.h"
#include "train/weights.h"

namespace strata::train {
namespace {

using program::Executor;
using program::Kind;
using program::Recompute;
using program::Segment;

constexpr int64_t kBatch = 2;
constexpr int64_t kLength = 32;

struct Golden {
  explicit Golden(const std::string& name)
      : folder(Path(STRATA_GOLDEN_MODELS) / name),
        source(checkpoint::open_tensor_file(folder / "expected.safetensors")),
        model(models::read_config_json(checkpoint::read_config_json(folder), name)) {}

  std::vector<float> floats(const std::string& name) const { return read<float>(name, DType::kF32); }
  std::vector<int32_t> integers(const std::string& name) const { return read<int32_t>(name, DType::kI32); }
  bool has(const std::string& name) const { return source.tensors.contains(name); }

  Path folder;
  checkpoint::TensorSource source;
  models::ModelConfig model;

 private:
  template <typename T>
  std::vector<T> read(const std::string& name, DType dtype) const {
    const auto& entry = source.tensors.at(name);
    std::vector<T> out(static_cast<size_t>(entry.tensor->shape.elements()));
    checkpoint::read_tensor(*entry.file, *entry.tensor, {name, entry.tensor->shape, dtype, out.data()});
    return out;
  }
};

program::CompileOptions options_for(const Golden& golden, Recompute recompute = Recompute::kNone,
                                    DType activations = DType::kF32) {
  program::CompileOptions options;
  options.activations = activations;
  options.model = golden.model;
  options.rule_of = [](const std::string&, const Shape& shape) {
    return optim::ParameterRule{shape.rank() >= 2 ? 0.1 : 0.0, 1.0};
  };
  options.recompute = recompute;
  options.cache_room = 64;
  options.threads = compute_threads();
  return options;
}

std::unique_ptr<Executor> make_executor(const Golden& golden, std::vector<program::Request> requests,
                                        Recompute recompute = Recompute::kNone,
                                        DType activations = DType::kF32) {
  auto executor =
      std::make_unique<Executor>(program::compile(requests, options_for(golden, recompute, activations)));
  initialize_weights(*executor, 1);
  load_hugging_face(golden.folder, golden.model, *executor);
  executor->run(0, Segment::kEncode);
  return executor;
}

int32_t* input(Executor& executor, size_t index, const char* name, int64_t micro_batch = 0) {
  return reinterpret_cast<int32_t*>(executor.batch_input(index, name, micro_batch));
}

// Rows [first, first + sequences) of tokens[·][33] as plain windows.
void fill_stream(Executor& executor, size_t index, const int32_t* tokens, int64_t first, int64_t sequences,
                 int64_t micro_batch) {
  for (int64_t s = 0; s < sequences; ++s) {
    for (int64_t t = 0; t < kLength; ++t) {
      const int64_t at = s * kLength + t;
      const int32_t* row = tokens + (first + s) * (kLength + 1);
      input(executor, index, "tokens", micro_batch)[at] = row[t];
      input(executor, index, "targets", micro_batch)[at] = row[t + 1];
      input(executor, index, "positions", micro_batch)[at] = static_cast<int32_t>(t);
      input(executor, index, "kv_begin", micro_batch)[at] = 0;
    }
  }
}

program::Request train_request(int64_t sequences, int64_t micro_batches) {
  return {.kind = Kind::kTrain,
          .sequences = sequences,
          .sequence_length = kLength,
          .micro_batches = micro_batches};
}

double mean_loss(const Executor& executor) {
  return *executor.data_as<double>("loss_sum") /
         static_cast<double>(*executor.data_as<int64_t>("token_count"));
}

// The gradient of a file's tensor, as the mean over tokens.
std::vector<float> gradient_of(const Golden& golden, const Executor& executor, const std::string& file_name) {
  for (const models::TensorRow& row : golden.model.family->tensors(golden.model)) {
    if (row.file_name != file_name) continue;
    const auto& value = executor.set().at("grad." + row.parameter);
    const int64_t columns = value.shape.rank() == 2 ? value.shape[1] : 1;
    const float* gradient = executor.data_as<float>("grad." + row.parameter) + row.row * columns;
    const auto count = static_cast<float>(*executor.data_as<int64_t>("token_count"));
    std::vector<float> out(static_cast<size_t>(row.rows * columns));
    const int64_t group = row.interleave.none() ? row.rows : row.interleave.group_rows();
    for (int64_t first = 0; first < row.rows;) {
      const RowRun run =
          row.interleave.none() ? RowRun{0, 0, group} : run_at(row.interleave, row.rows, first);
      for (int64_t r = 0; r < run.rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          const int64_t to = row.transposed ? c * row.rows + r : (run.file_row + r) * columns + c;
          out[static_cast<size_t>(to)] = gradient[(run.memory_row + r) * columns + c] / count;
        }
      }
      first += run.rows;
    }
    return out;
  }
  ADD_FAILURE() << "no tensor " << file_name;
  return {};
}

double norm(const std::vector<float>& x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(sum);
}

void expect_gradients(const Golden& golden, const Executor& executor) {
  int compared = 0;
  for (const auto& [name, entry] : golden.source.tensors) {
    if (!name.starts_with("grad/")) continue;
    const auto wanted = golden.floats(name);
    const auto found = gradient_of(golden, executor, name.substr(5));
    EXPECT_LT(distance(found, wanted), 1e-4 * norm(wanted)) << name;
    ++compared;
  }
  EXPECT_GT(compared, 10);
}

class GoldenModel : public testing::TestWithParam<const char*> {};

TEST_P(GoldenModel, LossAndEveryGradient) {
  const Golden golden(GetParam());
  auto executor = make_executor(golden, {train_request(kBatch, 1)});
  fill_stream(*executor, 0, golden.integers("tokens").data(), 0, kBatch, 0);
  executor->run(0, Segment::kFirst);
  EXPECT_NEAR(mean_loss(*executor), golden.floats("loss")[0], 2e-5);
  expect_gradients(golden, *executor);
}

// bf16 activations and matmul operands, everything else fp32: as near to fp32 as transformers' own bf16
// comes.
TEST_P(GoldenModel, Bf16IsAsNearToFp32AsTransformersIs) {
  const Golden golden(GetParam());
  auto executor = make_executor(golden, {train_request(kBatch, 1)}, Recompute::kNone, DType::kBF16);
  fill_stream(*executor, 0, golden.integers("tokens").data(), 0, kBatch, 0);
  executor->run(0, Segment::kFirst);
  const double loss = golden.floats("loss")[0];
  EXPECT_NEAR(mean_loss(*executor), loss, 2e-3 * loss);
  EXPECT_NE(static_cast<float>(mean_loss(*executor)), golden.floats("loss")[0]);
  double ours = 0, theirs = 0;  // squares over all tensors
  for (const auto& [name, entry] : golden.source.tensors) {
    if (!name.starts_with("grad/")) continue;
    const double found = distance(gradient_of(golden, *executor, name.substr(5)), golden.floats(name));
    const double spread = golden.floats("bf16/grad_distance/" + name.substr(5))[0];
    // A small tensor's distance is one draw of the rounding's; all tensors together vary less.
    EXPECT_LT(found, 3 * spread) << name;
    ours += found * found;
    theirs += spread * spread;
  }
  EXPECT_LT(std::sqrt(ours), 1.25 * std::sqrt(theirs));
}

TEST_P(GoldenModel, RecomputeGivesTheSameBits) {
  const Golden golden(GetParam());
  std::vector<std::vector<float>> gradients;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    auto executor = make_executor(golden, {train_request(kBatch, 1)}, recompute);
    fill_stream(*executor, 0, golden.integers("tokens").data(), 0, kBatch, 0);
    executor->run(0, Segment::kFirst);
    std::vector<float> all;
    for (const auto& parameter : executor->program(0).graph.parameters()) {
      const auto& value = executor->program(0).graph.value(parameter.gradient);
      const float* data = executor->data_as<float>(value.name);
      all.insert(all.end(), data, data + value.shape.elements());
    }
    gradients.push_back(std::move(all));
  }
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_EQ(gradients[0], gradients[2]);
}

TEST_P(GoldenModel, MicroBatchesAddUpToTheBatch) {
  const Golden golden(GetParam());
  auto executor = make_executor(golden, {train_request(1, 2)});
  const auto tokens = golden.integers("tokens");
  for (int64_t i = 0; i < 2; ++i) fill_stream(*executor, 0, tokens.data(), i, 1, i);
  executor->run(0, Segment::kFirst, 0);
  executor->run(0, Segment::kLater, 1);
  EXPECT_NEAR(mean_loss(*executor), golden.floats("loss")[0], 2e-5);
  expect_gradients(golden, *executor);
}

TEST_P(GoldenModel, DocumentsDoNotSeeEachOther) {
  const Golden golden(GetParam());
  auto executor = make_executor(golden, {train_request(kBatch, 1)});
  const auto tokens = golden.integers("document/tokens");
  const auto positions = golden.integers("document/positions");
  const auto targets = golden.integers("document/targets");
  for (int64_t s = 0; s < kBatch; ++s) {
    for (int64_t t = 0; t < kLength; ++t) {
      const int64_t at = s * kLength + t;
      const auto place = static_cast<size_t>(at);
      input(*executor, 0, "tokens")[at] = tokens[static_cast<size_t>(s * (kLength + 1) + t)];
      input(*executor, 0, "targets")[at] = targets[place];
      input(*executor, 0, "positions")[at] = positions[place];
      input(*executor, 0, "kv_begin")[at] = static_cast<int32_t>(t) - positions[place];
    }
  }
  executor->run(0, Segment::kFirst);
  EXPECT_NEAR(mean_loss(*executor), golden.floats("document/loss")[0], 2e-5);
  for (const auto& [name, entry] : golden.source.tensors) {
    const std::string prefix = "document/grad_norm/";
    if (!name.starts_with(prefix)) continue;
    const double wanted = golden.floats(name)[0];
    EXPECT_NEAR(norm(gradient_of(golden, *executor, name.substr(prefix.size()))), wanted, 1e-4 * wanted)
        << name;
  }
}

TEST_P(GoldenModel, ThirtyAdamWStepsFollowPyTorch) {
  const Golden golden(GetParam());
  auto executor = make_executor(golden, {train_request(kBatch, 1)});
  const auto tokens = golden.integers("adamw/tokens");
  const auto losses = golden.floats("adamw/loss");
  const auto norms = golden.floats("adamw/grad_norm");
  optim::UpdateHyper hyper;
  hyper.lr = 1e-3f;
  hyper.max_grad_norm = 1.0;
  for (size_t step = 0; step < losses.size(); ++step) {
    fill_stream(*executor, 0, tokens.data() + step * kBatch * (kLength + 1), 0, kBatch, 0);
    executor->run(0, Segment::kFirst);
    EXPECT_NEAR(mean_loss(*executor), losses[step], 2e-4) << "step " << step;
    hyper.bias_correction1 = static_cast<float>(1 - std::pow(0.9, static_cast<double>(step + 1)));
    hyper.bias_correction2 = static_cast<float>(1 - std::pow(0.95, static_cast<double>(step + 1)));
    std::memcpy(executor->data("hyper"), &hyper, sizeof hyper);
    executor->run(0, Segment::kUpdate);
    executor->run(0, Segment::kEncode);
    EXPECT_NEAR(*executor->data_as<float>("grad_norm"), norms[step], 1e-3 * norms[step]) << "step " << step;
  }
}

TEST_P(GoldenModel, CachedLogitsEqualTheWholeSequences) {
  const Golden golden(GetParam());
  auto executor = make_executor(golden, generation_requests(8));
  const auto tokens = golden.integers("tokens");
  const auto logits = golden.floats("logits");
  const int64_t vocab = golden.model.vocab_size;
  for (int64_t s = 0; s < kBatch; ++s) {
    for (int64_t t = 0; t < kLength; ++t) {
      // Eight tokens at once at first, then one by one.
      if (t < 8 && t != 7) continue;
      const bool prefill = t == 7;
      const size_t index = prefill ? 0 : 1;
      for (int64_t i = 0; i < (prefill ? 8 : 1); ++i) {
        const int64_t from = prefill ? i : t;
        input(*executor, index, "tokens")[i] = tokens[static_cast<size_t>(s * (kLength + 1) + from)];
        input(*executor, index, "positions")[i] = static_cast<int32_t>(from);
      }
      *executor->data_as<int32_t>("cache_position") = prefill ? 0 : static_cast<int32_t>(t);
      *executor->data_as<int32_t>("last_row") = prefill ? 7 : 0;
      executor->run(index, Segment::kFirst);
      const float* found = executor->data_as<float>("logits");
      const float* wanted = logits.data() + (s * kLength + t) * vocab;
      for (int64_t v = 0; v < vocab; ++v)
        ASSERT_NEAR(found[v], wanted[v], 1e-4) << "row " << s << " token " << t;
    }
  }
}

TEST_P(GoldenModel, GreedyTextEqualsTransformers) {
  const Golden golden(GetParam());
  auto executor = make_executor(golden, generation_requests(4));
  Generator generator(*executor, 0, 1);
  const auto wanted = golden.integers("greedy/tokens");
  const auto found =
      generator.generate(golden.integers("greedy/prompt"),
                         {.max_tokens = static_cast<int64_t>(wanted.size()), .temperature = 0});
  EXPECT_EQ(found, wanted);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenModel,
                         testing::Values("llama-untied", "llama-tied", "gpt2", "llama-biases-yarn", "mistral",
                                         "qwen2", "qwen3", "olmo", "olmo2", "gemma2", "gemma3", "phi3",
                                         "gpt-neox", "gpt-neox-serial"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace strata::train
