// Writes docs/models.md if STRATA_WRITE_MODELS_PAGE=1 is set. Otherwise it checks that the page lists the
// families, blocks and presets of the code, and that every model is within the page's limits.
#include <fmt/core.h>

#include <cstdlib>
#include <optional>

#include "base/file.h"
#include "fixtures/golden_model.h"

namespace strata::training {
namespace {

using namespace golden;

// Differences between a golden model and transformers, in fp32.
struct Parity {
  double logits = 0;     // largest difference of a logit
  double loss = 0;       // difference of the mean loss
  double gradients = 0;  // largest distance of a tensor's gradient, relative to its norm
  double curve = 0;      // largest difference of a loss in 30 AdamW steps
  // Distance of all gradients in bf16 from fp32, relative to that of transformers' bf16. None for models with
  // experts, where rounding may send a token to another expert and change some gradients entirely.
  std::optional<double> bf16;
  std::optional<bool> greedy;  // whether its text is the same; none if it generates no text
};

// Differences between generation kernels and training kernels on the same text.
struct Drifts {
  inference::Drift fp32, bf16;
};

double all_gradients_in_bf16(const Golden& golden) {
  auto executor =
      make_executor(golden, {train_request(golden, kBatch, 1)}, program::Recompute::kNone, DType::kBF16);
  fill_plain(golden, *executor);
  executor->run_micro_batches(0);
  double ours = 0, theirs = 0;
  for (const auto& [name, entry] : golden.source.tensors) {
    if (!name.starts_with("grad/")) continue;
    ours += std::pow(distance(gradient_of(golden, *executor, name.substr(5)), golden.floats(name)), 2);
    theirs += std::pow(golden.floats("bf16/grad_distance/" + name.substr(5))[0], 2);
  }
  return std::sqrt(ours / theirs);
}

Parity parity_of(const Golden& golden) {
  Parity parity;
  parity.logits = logits_error(golden);
  auto executor = make_executor(golden, {train_request(golden, kBatch, 1)});
  fill_plain(golden, *executor);
  executor->run_micro_batches(0);
  parity.loss = std::abs(mean_loss(*executor) - static_cast<double>(golden.floats("loss")[0]));
  for (const auto& [name, entry] : golden.source.tensors) {
    if (!name.starts_with("grad/")) continue;
    const auto wanted = golden.floats(name);
    parity.gradients =
        std::max(parity.gradients,
                 distance(gradient_of(golden, *executor, name.substr(5)), wanted) / scale_of(wanted));
  }
  const auto losses = golden.floats("adamw/loss");
  const Curve curve = adamw_curve(golden);
  for (size_t i = 0; i < losses.size(); ++i)
    parity.curve = std::max(parity.curve, std::abs(curve.losses[i] - static_cast<double>(losses[i])));
  if (golden.model.experts.count == 0) parity.bf16 = all_gradients_in_bf16(golden);
  if (golden.has("greedy/tokens")) parity.greedy = greedy_text(golden) == golden.integers("greedy/tokens");
  return parity;
}

// Does not depend on the machine.
std::string families_table() {
  std::string text =
      "| family | `model_type` | norms | positions | attention | FFN | embedding and head | presets |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const models::Family* family : models::families()) {
    const models::Blocks blocks = models::blocks_of(models::smallest_preset(*family));
    std::string presets;
    for (const models::Preset& preset : models::presets()) {
      if (preset.config.family == family) presets += (presets.empty() ? "" : ", ") + std::string(preset.name);
    }
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", family->name, family->model_type,
                        blocks.norms, blocks.positions, blocks.attention, blocks.ffn, blocks.tables, presets);
  }
  return text;
}

std::string page(const std::vector<std::pair<std::string, Parity>>& all) {
  std::string text =
      "# Model families\n"
      "\n"
      "Written by the tests: `STRATA_WRITE_MODELS_PAGE=1 build/release/bin/train_tests --gtest_filter='ModelsPage*'`. Every\n"
      "family reads and writes the `config.json` and the safetensors of the transformers class with that `model_type`. A field that\n"
      "changes the mathematics and is not supported is rejected by name. Every family with rotary positions reads all rope scalings\n"
      "(linear, dynamic, llama3, YaRN, LongRoPE). The blocks are those of the family's smallest preset;\n"
      "`strata presets NAME` prints them for each.\n"
      "\n" +
      families_table() +
      "\n"
      "## Against transformers\n"
      "\n"
      "Tiny random models with odd sizes (`tests/models/golden`, made by `tools/golden/make_model_golden.py` and `make_encoder_golden.py`) in\n"
      "fp32; the tests enforce the limits in the header. Gradients: the worst tensor, relative to its norm. bf16: distance of all\n"
      "gradients from fp32, relative to that of transformers' bf16 (not for models with experts, because rounding may select others).\n"
      "\n"
      "| model | logits < 1e-4 | loss < 2e-5 | gradients < 1e-4 | 30 AdamW steps < 2e-4 | bf16 < 1.25 | "
      "greedy text |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const auto& [name, parity] : all) {
    text += fmt::format("| {} | {:.1e} | {:.1e} | {:.1e} | {:.1e} | {} | {} |\n", name, parity.logits,
                        parity.loss, parity.gradients, parity.curve,
                        parity.bf16 ? fmt::format("{:.2f}", *parity.bf16) : "–",
                        !parity.greedy   ? "–"
                        : *parity.greedy ? "the same"
                                         : "differs");
  }
  return text;
}

std::string drift_table(const std::vector<std::pair<std::string, Drifts>>& all) {
  std::string text =
      "\n"
      "## Training kernels against generation kernels\n"
      "\n"
      "The same models: three texts of 32 tokens run through the training kernels, all tokens together, and through the generation kernels, token by\n"
      "token against the cache. KL divergence of the next-token distributions, in nats, and the largest difference of a logit; `strata check drift\n"
      "--model DIR` measures any model ([causality.md](causality.md)). In bf16, latent attention rounds at other points: generation multiplies\n"
      "queries by the weights of keys first, and never expands keys and values to heads. If experts are nearly tied, this sends a token to another one.\n"
      "\n"
      "| model | fp32: mean KL < 1e-9 | largest KL | logit < 1e-4 | bf16: mean KL < 1e-2, with experts < "
      "1e-1 | largest KL | "
      "logit |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const auto& [name, drifts] : all) {
    text += fmt::format("| {} | {:.0e} | {:.0e} | {:.1e} | {:.0e} | {:.0e} | {:.1e} |\n", name,
                        drifts.fp32.mean_kl, drifts.fp32.largest_kl, drifts.fp32.largest_logit,
                        drifts.bf16.mean_kl, drifts.bf16.largest_kl, drifts.bf16.largest_logit);
  }
  return text;
}

TEST(ModelsPage, ListsFamiliesAndTheirDifferences) {
  const Path path = STRATA_MODELS_PAGE;
  std::vector<std::pair<std::string, Parity>> all;
  for (const char* name : kModels) {
    const Parity parity = parity_of(Golden(name));
    EXPECT_LT(parity.logits, 1e-4) << name;
    EXPECT_LT(parity.loss, 2e-5) << name;
    EXPECT_LT(parity.gradients, 1e-4) << name;
    EXPECT_LT(parity.curve, 2e-4) << name;
    EXPECT_LT(parity.bf16.value_or(0), 1.25) << name;
    EXPECT_TRUE(parity.greedy.value_or(true)) << name;
    all.emplace_back(name, parity);
  }
  std::vector<std::pair<std::string, Drifts>> drifts;
  for (const char* name : kModels) {
    Golden golden(name);
    if (golden.model.architecture == models::Architecture::kEncoder) continue;  // it generates no text
    // Generation has no limit of expert capacity.
    golden.model.experts.capacity = {};
    const Drifts found{drift_of(golden, DType::kF32, DType::kF32),
                       drift_of(golden, DType::kBF16, DType::kBF16)};
    EXPECT_LT(found.fp32.mean_kl, 1e-9) << name;
    EXPECT_LT(found.fp32.largest_logit, 1e-4) << name;
    EXPECT_LT(found.fp32.largest_log_probability, 1e-4) << name;
    EXPECT_LT(found.bf16.mean_kl, golden.model.experts.count > 0 ? 1e-1 : 1e-2) << name;
    drifts.emplace_back(name, found);
  }
  if (std::getenv("STRATA_WRITE_MODELS_PAGE") != nullptr)
    write_file_atomically(posix_file_system(), path, page(all) + drift_table(drifts));
  const std::string text = read_file(path);
  EXPECT_NE(text.find(families_table()), std::string::npos)
      << "docs/models.md is out of date; run this test with STRATA_WRITE_MODELS_PAGE=1";
  const size_t second = text.find("## Training kernels against generation kernels");
  for (const auto& [name, found] : drifts)
    EXPECT_NE(text.find("| " + name + " |", std::min(second, text.size())), std::string::npos)
        << "docs/models.md does not compare the kernels of " << name;
  for (const auto& [name, parity] : all)
    EXPECT_NE(text.find("| " + name + " |"), std::string::npos) << "docs/models.md has no row for " << name;
}

}  // namespace
}  // namespace strata::training
