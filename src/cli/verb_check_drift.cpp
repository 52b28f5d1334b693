// strata check drift
#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/signals.h"
#include "cli/actions.h"
#include "cli/one_process.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "config/resolve.h"
#include "data/samples/rows.h"
#include "inference/drift.h"
#include "library/evaluation.h"

namespace strata::cli {
namespace {

using Json = nlohmann::ordered_json;

// More than rounding can cause (docs/models.md), as a mean divergence. Rounding may select other experts.
double limit_of(DType precision, bool has_experts) {
  if (precision == DType::kF32) return 1e-6;
  return has_experts ? 1e-1 : 1e-2;
}

const char* name_for_people(DType precision) {
  return precision == DType::kF32 ? "fp32" : "bf16";
}

struct Measured {
  DType precision = DType::kF32;
  double limit = 0;
  inference::Drift drift;
  bool is_within() const { return drift.mean_kl <= limit; }
};

// Texts of this many tokens, split into prompt and continuation at different points.
std::vector<inference::DriftText> texts_of(const library::Evaluation& setup, const DriftCheckOptions& options,
                                           int64_t length, int64_t encoder_length) {
  data::TokenCorpus corpus;
  if (!options.text.empty()) {
    corpus = setup.open_text(options.text).corpus;
    if (corpus.tokens() < length + encoder_length) {
      throw DataError("[{}] has {} tokens, expected at least {}; lower --length", options.text,
                      corpus.tokens(), length + encoder_length);
    }
  }
  const models::ModelConfig& model = setup.runtime().model;
  std::vector<inference::DriftText> texts;
  for (int64_t i = 0; i < options.texts; ++i) {
    std::vector<int32_t> ids(static_cast<size_t>(length + encoder_length));
    data::RowDraws draws(1, i);
    if (options.text.empty()) {
      for (int32_t& id : ids) id = static_cast<int32_t>(draws.below(model.vocab_size));
    } else {
      corpus.read(i * (corpus.tokens() - std::ssize(ids)) / options.texts, std::ssize(ids), ids.data());
    }
    inference::DriftText& text = texts.emplace_back();
    text.prompt = std::max<int64_t>(1, (2 * i + 1) * length / (2 * options.texts));
    text.tokens.assign(ids.begin(), ids.begin() + length);
    text.encoder.assign(ids.begin() + length, ids.end());
    if (encoder_length > 0) text.tokens.front() = static_cast<int32_t>(model.start_id.value_or(0));
  }
  return texts;
}

std::string text_of(const std::vector<Measured>& all, const std::string& folder, const std::string& source) {
  std::string text = fmt::format(
      "{}: training kernels against generation kernels, {} tokens of {}\n\n"
      "precision  mean KL   largest KL  largest logit  largest log p  other choices\n",
      folder, all.front().drift.tokens, source);
  for (const Measured& one : all) {
    const inference::Drift& drift = one.drift;
    text += fmt::format("{:<9}  {:.2e}  {:.2e}    {:.2e}       {:.2e}       {}{}\n",
                        name_for_people(one.precision), drift.mean_kl, drift.largest_kl, drift.largest_logit,
                        drift.largest_log_probability, drift.other_choices,
                        one.is_within() ? "" : fmt::format("  beyond {:.0e}", one.limit));
  }
  return text;
}

Json json_of(const std::vector<Measured>& all, const std::string& source, int64_t length) {
  Json rows = Json::array();
  bool drifts = false;
  for (const Measured& one : all) {
    const inference::Drift& drift = one.drift;
    rows.push_back({{"precision", name_for_people(one.precision)},
                    {"tokens", drift.tokens},
                    {"mean_kl", drift.mean_kl},
                    {"largest_kl", drift.largest_kl},
                    {"largest_logit", drift.largest_logit},
                    {"largest_log_probability", drift.largest_log_probability},
                    {"other_choices", drift.other_choices},
                    {"limit", one.limit},
                    {"within", one.is_within()}});
    drifts = drifts || !one.is_within();
  }
  return {{"drifts", drifts}, {"source", source}, {"length", length}, {"precisions", rows}};
}

}  // namespace

int run_drift_check(const DriftCheckOptions& options) {
  require_one_process("strata check drift");
  inference::ModelRuntime runtime = inference::open_model(options.model);
  const config::RunConfig config = config::config_of_sets(options.sets);
  const library::Evaluation setup(runtime, config, {});
  // Texts are generated without a limit on experts' capacity: dropping does not depend on kernels.
  runtime.model.experts.capacity = {};
  const models::ModelConfig& model = runtime.model;
  if (model.architecture == models::Architecture::kEncoder) {
    throw ConfigError("[check drift] {} is an encoder ({}), which generates no text", options.model,
                      model.family->name);
  }
  const int64_t length = std::min(options.length, model.max_sequence_length());
  const bool reads = model.architecture == models::Architecture::kEncoderDecoder;
  const int64_t encoder_length = reads ? length : 0;
  const auto texts = texts_of(setup, options, length, encoder_length);
  catch_stop_signals();
  inference::RuntimeOptions wanted{.compute = config::compute_options(config),
                                   .requests = inference::drift_requests(length, encoder_length),
                                   .cache_tokens = length};
  std::vector<DType> precisions{DType::kF32, DType::kBF16};
  if (wanted.compute.dtype) precisions = {*wanted.compute.dtype};
  std::vector<Measured> all;
  for (const DType precision : precisions) {
    wanted.compute.dtype = precision;
    inference::load_runtime(runtime, wanted);
    program::Executor& executor = *runtime.executor;
    all.push_back({precision, limit_of(precision, model.experts.count > 0),
                   inference::measure_drift(executor, executor, texts)});
    runtime.executor.reset();
    if (stop_requested()) return stop_exit_code();
  }
  const std::string source = options.text.empty() ? "random tokens" : options.text;
  if (options.json) {
    print_out("{}\n", dump_json(json_of(all, source, length)));
  } else {
    print_out("{}", text_of(all, runtime.folder.string(), source));
  }
  return std::all_of(all.begin(), all.end(), [](const Measured& one) { return one.is_within(); }) ? 0 : 3;
}

void add_check_drift(Verb check) {
  auto options = std::make_shared<DriftCheckOptions>();
  Verb verb =
      check.verb("drift",
                 "Compare training kernels with generation kernels: logits and "
                 "divergence, in fp32 and bf16; exit with 3 if rounding does not explain the difference",
                 "strata check drift --model runs/first --text held.txt");
  verb.option("--model", options->model, "Hugging Face directory, run, checkpoint, RUN@latest or RUN@best")
      .required()
      .type_name("DIR");
  verb.option("--text", options->text, "A text to read; default: random tokens").type_name("FILE");
  verb.option("--length", options->length, "Tokens of a text, at most the model's positions")
      .range(2, 2147483647)
      .show_default()
      .type_name("N");
  verb.option("--texts", options->texts, "Number of texts, each with a different length of prompt")
      .positive()
      .show_default()
      .type_name("N");
  verb.sets(options->sets).suggest(configuration_keys());
  verb.json(options->json);
  verb.action([options] { return run_drift_check(*options); });
}

}  // namespace strata::cli
