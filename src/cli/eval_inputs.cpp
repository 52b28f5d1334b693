#include "cli/eval_inputs.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "config/objective.h"
#include "config/resolve.h"
#include "config/token_checks.h"
#include "config/tokenizer_ends.h"
#include "data/tokens/reader.h"

namespace strata::cli {
namespace {

data::TokenFileOptions file_options(const EvalSetup& setup) {
  const inference::ModelRuntime& runtime = setup.runtime;
  return config::token_file_options(setup.config, runtime.model,
                                    runtime.tokenizer ? &*runtime.tokenizer : nullptr);
}

data::TokenCorpus checked(const EvalSetup& setup, data::TokenCorpus corpus) {
  if (const auto file = config::without_document_ends(corpus); setup.documents && file) {
    throw ConfigError(
        "[data.pack] is \"documents\", but {} has neither a document table nor a known end-of-text id; leave "
        "it at \"stream\"",
        *file);
  }
  return corpus;
}

}  // namespace

EvalSetup eval_setup(const EvalOptions& options) {
  EvalSetup setup{.runtime = inference::open_model(options.model), .config = {}};
  const inference::ModelRuntime& runtime = setup.runtime;
  const int64_t positions = runtime.model.max_sequence_length();
  setup.length = options.sequence_length > 0 ? options.sequence_length : std::min<int64_t>(512, positions);
  if (setup.length > positions) {
    throw ConfigError("[eval] --sequence-length {} is beyond the model's {} positions", setup.length,
                      positions);
  }
  setup.stride = options.stride.value_or(setup.length);
  if (setup.stride < 1 || setup.stride > setup.length)
    throw ConfigError("[eval] --stride {} must be between 1 and {}", setup.stride, setup.length);
  setup.config = config::config_of_sets(options.sets);
  setup.config.training.sequence_length = setup.length;
  if (std::vector<config::Issue> issues;
      config::check_objective(setup.config, runtime.model, issues), !issues.empty())
    throw_issues(issues);
  if (setup.runtime.tokenizer) {
    setup.runtime.tokenizer = config::with_configured_ends(setup.config, *setup.runtime.tokenizer,
                                                           (runtime.folder / "tokenizer.json").string());
  }
  setup.documents = setup.config.was_set("data.pack") && setup.config.data.pack == data::Pack::kDocuments;
  setup.causal = runtime.model.architecture == models::Architecture::kDecoder;
  if (!setup.causal && !runtime.tokenizer) {
    throw ConfigError(
        "[{}] has no tokenizer.json, which defines the tokens that replace hidden text; put it there",
        runtime.folder.string());
  }
  return setup;
}

EvalCorpus open_eval_tokens(const EvalSetup& setup, const std::string& pattern) {
  return {checked(setup, data::open_token_corpus({pattern}, file_options(setup)))};
}

EvalCorpus open_eval_text(const EvalSetup& setup, const std::string& pattern) {
  const inference::ModelRuntime& runtime = setup.runtime;
  const config::RunConfig& config = setup.config;
  if (!runtime.tokenizer)
    throw ConfigError("[{}] has no tokenizer.json; it is needed for --text", runtime.folder.string());
  const data::TextEncoder encoder = config::encoder_of_texts(config, runtime.model, *runtime.tokenizer);
  config::report_ends(config, *runtime.tokenizer);
  // A tokenizer without these tokens, as of some published models, is accepted for evaluation.
  const bool ends = config.tokenizer.add_eos && encoder.end_of_text;
  if (config.tokenizer.add_bos && encoder.begin_of_text.empty())
    throw ConfigError("[tokenizer.add_bos] is true, but {} has no begin-of-text token; leave it at false",
                      (runtime.folder / "tokenizer.json").string());
  std::vector<int32_t> ids;
  data::SpecialCounts special;
  int64_t bytes = 0;
  data::read_documents(data::find_corpus_files({pattern}), config.data.text_field,
                       [&](std::string_view text) {
                         bytes += static_cast<int64_t>(text.size());
                         if (config.tokenizer.add_bos)
                           ids.insert(ids.end(), encoder.begin_of_text.begin(), encoder.begin_of_text.end());
                         data::encode_document(
                             encoder, text, [&] { return pattern; }, ids, special);
                         if (ends) ids.push_back(*encoder.end_of_text);
                       });
  config::report_special(config, data::named_counts(encoder, special), pattern);
  if (ids.size() < 2) throw DataError("[{}] has {} tokens, expected at least 2", pattern, ids.size());
  auto file = std::make_shared<const data::TokenFile>(pattern, std::move(ids), file_options(setup));
  const int64_t tokens = file->tokens();
  return {checked(setup, data::TokenCorpus({{std::move(file), 0, tokens}})), bytes};
}

data::EvalWindows eval_windows(const EvalSetup& setup, const data::TokenCorpus& corpus, int64_t max_tokens) {
  const inference::ModelRuntime& runtime = setup.runtime;
  return {corpus,
          {.sequence_length = setup.length,
           .stride = setup.stride,
           .pack = setup.documents ? data::Pack::kDocuments : data::Pack::kStream,
           .max_tokens = max_tokens,
           .objective = config::objective_options(setup.config, runtime.model,
                                                  runtime.tokenizer ? &*runtime.tokenizer : nullptr)}};
}

void load_for_evaluation(EvalSetup& setup, const data::EvalWindows& windows, int64_t most) {
  inference::RuntimeOptions wanted{.compute = config::compute_options(setup.config)};
  wanted.requests.push_back(
      {.kind = program::Kind::kEvaluate,
       .sequences = std::clamp<int64_t>(2048 / setup.length, 1, std::max<int64_t>(1, most)),
       .sequence_length = windows.shape().tokens,
       .encoder_length = windows.shape().encoder_length,
       .document_mask = setup.documents || !setup.causal});
  inference::load_runtime(setup.runtime, wanted);
}

void require_targets(const evaluation::EvalResult& result, const std::string& name) {
  if (result.tokens > 0) return;
  throw DataError(
      "[{}] has no token that can be predicted from others of its document; give longer texts, or leave "
      "data.pack at \"stream\"",
      name);
}

}  // namespace strata::cli
