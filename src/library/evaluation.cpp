#include "library/evaluation.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "config/objective.h"
#include "config/resolve.h"
#include "config/token_checks.h"
#include "config/tokenizer_ends.h"
#include "data/tokens/reader.h"

namespace strata::library {

Evaluation::Evaluation(inference::ModelRuntime& runtime, const config::RunConfig& config,
                       const EvalSettings& settings)
    : runtime_(runtime), config_(config), settings_(settings), tokenizer_(runtime.tokenizer) {
  const models::ModelConfig& model = runtime_.model;
  const int64_t positions = model.max_sequence_length();
  length_ = settings.sequence_length > 0 ? settings.sequence_length : std::min<int64_t>(512, positions);
  if (length_ > positions)
    throw ConfigError("[eval] --sequence-length {} is beyond the model's {} positions", length_, positions);
  stride_ = settings.stride.value_or(length_);
  if (stride_ < 1 || stride_ > length_)
    throw ConfigError("[eval] --stride {} must be between 1 and {}", stride_, length_);
  config_.training.sequence_length = length_;
  if (std::vector<config::Issue> issues; config::check_objective(config_, model, issues), !issues.empty())
    throw_issues(issues);
  if (tokenizer_) {
    tokenizer_ =
        config::with_configured_ends(config_, *tokenizer_, (runtime_.folder / "tokenizer.json").string());
  }
  documents_ = config_.was_set("data.pack") && config_.data.pack == data::Pack::kDocuments;
  causal_ = model.architecture == models::Architecture::kDecoder;
  if (!causal_ && !tokenizer_) {
    throw ConfigError(
        "[{}] has no tokenizer.json, which names the tokens that replace hidden text; put it there",
        runtime_.folder.string());
  }
}

data::TokenFileOptions Evaluation::file_options() const {
  return config::token_file_options(config_, runtime_.model, tokenizer_ ? &*tokenizer_ : nullptr);
}

EvalCorpus Evaluation::checked(data::TokenCorpus corpus, int64_t bytes) const {
  if (const auto file = config::without_document_ends(corpus); documents_ && file) {
    throw ConfigError(
        "[data.pack] is \"documents\", and {} has neither a document table nor a known end-of-text id; leave "
        "it at \"stream\"",
        *file);
  }
  return {std::move(corpus), bytes};
}

EvalCorpus Evaluation::open_tokens(const std::string& pattern) const {
  return checked(data::open_token_corpus({pattern}, file_options()));
}

EvalCorpus Evaluation::open_text(const std::string& pattern) const {
  return tokenized(pattern, [&](const std::function<void(std::string_view)>& add) {
    data::read_documents(data::find_corpus_files({pattern}), config_.data.text_field, add);
  });
}

EvalCorpus Evaluation::from_text(std::string_view text) const {
  return tokenized("text", [&](const std::function<void(std::string_view)>& add) { add(text); });
}

EvalCorpus Evaluation::tokenized(
    const std::string& name,
    const std::function<void(const std::function<void(std::string_view)>&)>& read) const {
  if (!tokenizer_)
    throw ConfigError("[{}] has no tokenizer.json; it is needed for --text", runtime_.folder.string());
  const data::TextEncoder encoder = config::encoder_of_texts(config_, runtime_.model, *tokenizer_);
  config::report_ends(config_, *tokenizer_);
  // A tokenizer without these tokens, as of some published models, is accepted for evaluation.
  const bool ends = config_.tokenizer.add_eos && encoder.end_of_text;
  if (config_.tokenizer.add_bos && encoder.begin_of_text.empty())
    throw ConfigError("[tokenizer.add_bos] is true, and {} has no begin-of-text token; leave it at false",
                      (runtime_.folder / "tokenizer.json").string());
  std::vector<int32_t> ids;
  data::SpecialCounts special;
  int64_t bytes = 0;
  read([&](std::string_view text) {
    bytes += static_cast<int64_t>(text.size());
    if (config_.tokenizer.add_bos)
      ids.insert(ids.end(), encoder.begin_of_text.begin(), encoder.begin_of_text.end());
    data::encode_document(
        encoder, text, [&] { return name; }, ids, special);
    if (ends) ids.push_back(*encoder.end_of_text);
  });
  config::report_special(config_, data::named_counts(encoder, special), name);
  if (ids.size() < 2) throw DataError("[{}] has {} tokens, expected at least 2", name, ids.size());
  auto file = std::make_shared<const data::TokenFile>(name, std::move(ids), file_options());
  const int64_t tokens = file->tokens();
  return checked(data::TokenCorpus({{std::move(file), 0, tokens}}), bytes);
}

data::EvalWindows Evaluation::windows(const data::TokenCorpus& corpus, int64_t max_tokens) const {
  return {
      corpus,
      {.sequence_length = length_,
       .stride = stride_,
       .pack = documents_ ? data::Pack::kDocuments : data::Pack::kStream,
       .max_tokens = max_tokens,
       .objective = config::objective_options(config_, runtime_.model, tokenizer_ ? &*tokenizer_ : nullptr)}};
}

void Evaluation::load(const data::EvalWindows& windows, int64_t most) {
  const int64_t sequences = std::clamp<int64_t>(2048 / length_, 1, std::max<int64_t>(1, most));
  if (loaded_sequences_ >= sequences) return;
  runtime_.executor.reset();  // before another one takes its memory
  loaded_sequences_ = 0;
  inference::RuntimeOptions wanted{.compute = config::compute_options(config_)};
  wanted.requests.push_back({.kind = program::Kind::kEvaluate,
                             .sequences = sequences,
                             .sequence_length = windows.shape().tokens,
                             .encoder_length = windows.shape().encoder_length,
                             .document_mask = documents_ || !causal_});
  inference::load_runtime(runtime_, wanted);
  loaded_sequences_ = sequences;
}

evaluation::EvalResult Evaluation::measure(const data::EvalWindows& windows,
                                           const std::function<bool(double done)>& go_on) {
  load(windows, windows.windows());
  return evaluation::evaluate(*runtime_.executor, 0, windows, go_on);
}

void require_targets(const evaluation::EvalResult& result, const std::string& name) {
  if (result.tokens > 0) return;
  throw DataError(
      "[{}] has no token that can be predicted from others of its document; give longer texts, or leave "
      "data.pack at \"stream\"",
      name);
}

}  // namespace strata::library
