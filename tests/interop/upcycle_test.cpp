// A mixture of experts made from a dense model: a plain copy computes the same.
#include "interop/upcycle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "checkpoint/huggingface.h"
#include "cli/actions.h"
#include "fixtures/golden_model.h"
#include "fixtures/scratch_folder.h"

namespace strata::interop {
namespace {

using training::golden::Golden;

// The golden model upcycled, with transformers' results for the dense one as expected values.
Golden upcycled_golden(const ScratchFolder& scratch, const char* name, const UpcycleOptions& how) {
  cli::UpcycleCommand command;
  command.source = (Path(STRATA_GOLDEN_MODELS) / name).string();
  command.target = scratch / "experts";
  command.dtype = "fp32";
  command.how = how;
  command.per_token = how.per_token;
  std::filesystem::remove_all(command.target);
  cli::run_upcycle(command);
  std::filesystem::copy_file(Path(command.source) / "expected.safetensors",
                             command.target / "expected.safetensors");
  return Golden(command.target.string());
}

struct Case {
  const char* model;
  UpcycleOptions how;
};

TEST(Upcycle, APlainCopyReproducesTheDenseModelsLogits) {
  const ScratchFolder scratch;
  for (const Case& one : {Case{"llama-untied", {.experts = 4, .per_token = 2}},
                          Case{"llama-tied", {.experts = 3, .per_token = 3}},
                          Case{"llama-untied", {.experts = 6, .per_token = 2, .granularity = 2}},
                          Case{"mistral", {.experts = 4, .per_token = 4, .granularity = 2}},
                          Case{"qwen3", {.experts = 8, .per_token = 2}},
                          Case{"qwen3", {.experts = 34, .per_token = 17, .granularity = 17}}}) {
    const Golden golden = upcycled_golden(scratch, one.model, one.how);
    EXPECT_EQ(golden.model.experts.count, one.how.experts);
    EXPECT_EQ(golden.model.experts.route.k, one.how.per_token);
    EXPECT_LT(training::golden::logits_error(golden), 1e-4) << one.model;
    EXPECT_EQ(training::golden::greedy_text(golden), golden.integers("greedy/tokens")) << one.model;
  }
}

std::vector<float> tensor_of(const Golden& golden, const std::string& name) {
  const auto source = checkpoint::open_tensors(golden.folder);
  const auto& entry = source.tensors.at(name);
  std::vector<float> out(static_cast<size_t>(entry.tensor->shape.elements()));
  checkpoint::read_tensor(*entry.file, *entry.tensor,
                          {name, entry.tensor->shape, DType::kF32, checkpoint::in_memory(out.data())});
  return out;
}

TEST(Upcycle, NoiseAndFreshUnitsDifferBetweenExperts) {
  const ScratchFolder scratch;
  const std::string prefix = "model.layers.0.block_sparse_moe.experts.";
  const auto expert = [&](const Golden& golden, int e, const char* part) {
    return tensor_of(golden, prefix + std::to_string(e) + "." + part + ".weight");
  };
  const Golden plain = upcycled_golden(scratch, "llama-untied", {.experts = 2, .per_token = 2});
  const auto before = expert(plain, 0, "w1"), whole = expert(plain, 0, "w2");
  EXPECT_EQ(before, expert(plain, 1, "w1"));
  double squares = 0, deviation = 0;
  for (const float x : before) deviation += static_cast<double>(x) * static_cast<double>(x);
  const UpcycleOptions noisy{.experts = 2, .per_token = 2, .noise = 0.1};
  const Golden moved = upcycled_golden(scratch, "llama-untied", noisy);
  const auto first = expert(moved, 0, "w1"), second = expert(moved, 1, "w1");
  for (size_t i = 0; i < before.size(); ++i)
    squares += std::pow(static_cast<double>(first[i] - before[i]), 2);
  EXPECT_NEAR(std::sqrt(squares / deviation), 0.1, 0.01);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, expert(upcycled_golden(scratch, "llama-untied", noisy), 0, "w1"));
  UpcycleOptions seeded = noisy;
  seeded.seed = 2;
  EXPECT_NE(first, expert(upcycled_golden(scratch, "llama-untied", seeded), 0, "w1"));

  // Half of the 50 units: the same rows of gate and up, and the same columns of down.
  const Golden fresh = upcycled_golden(scratch, "llama-untied", {.experts = 2, .per_token = 2, .fresh = 0.5});
  const auto gate = expert(fresh, 0, "w1"), down = expert(fresh, 0, "w2");
  const size_t units = 50, width = before.size() / units;
  size_t changed = 0;
  for (size_t unit = 0; unit < units; ++unit) {
    const bool is_new = gate[unit * width] != before[unit * width];
    changed += is_new;
    for (size_t i = 0; i < width; ++i) {
      EXPECT_EQ(gate[unit * width + i] != before[unit * width + i], is_new);
      EXPECT_EQ(down[i * units + unit] != whole[i * units + unit], is_new);
    }
  }
  EXPECT_EQ(changed, units / 2);
}

TEST(Upcycle, RefusesOtherFamiliesAndNumbers) {
  const auto message = [](const char* model, const UpcycleOptions& how) -> std::string {
    try {
      upcycled(Golden(model).model, how);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message("gpt2", {}).find("gpt2"), std::string::npos);
  EXPECT_NE(message("llama-biases-yarn", {}).find("biases"), std::string::npos);
  EXPECT_NE(message("llama-untied", {.granularity = 3}).find("--granularity"), std::string::npos);
  EXPECT_NE(message("llama-untied", {.experts = 5, .granularity = 2}).find("--experts"), std::string::npos);
  EXPECT_NE(message("llama-untied", {.experts = 4, .per_token = 3, .granularity = 2}).find("--top-k"),
            std::string::npos);
  EXPECT_NE(message("llama-untied", {.experts = 2, .per_token = 3}).find("--top-k"), std::string::npos);
  EXPECT_NE(message("llama-untied", {.noise = -1}).find("--noise"), std::string::npos);
  EXPECT_NE(message("llama-untied", {.fresh = 1.5}).find("--fresh"), std::string::npos);
}

}  // namespace
}  // namespace strata::interop
