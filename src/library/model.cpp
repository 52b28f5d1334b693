#include "strata/model.h"

#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "config/resolve.h"
#include "library/evaluation.h"
#include "library/model_impl.h"

namespace strata {

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

Model Model::open(const std::string& path, const ModelOptions& options) {
  const LogSink lines(options.log);
  keep_to_cpu_quota();
  auto impl = std::make_unique<Impl>();
  impl->log = options.log;
  impl->runtime = inference::open_model(path);
  impl->config = config::config_of_sets(options.sets);
  impl->folder = impl->runtime.folder.string();
  return Model(std::move(impl));
}

const std::string& Model::folder() const {
  return impl_->folder;
}
int64_t Model::parameters() const {
  return models::parameter_count(impl_->runtime.model);
}
int64_t Model::vocab_size() const {
  return impl_->runtime.model.vocab_size;
}
int64_t Model::max_length() const {
  return impl_->runtime.model.max_sequence_length();
}

const data::Tokenizer& Model::Impl::tokenizer() const {
  if (!runtime.tokenizer)
    throw ConfigError("[{}] has no tokenizer.json; put the model's tokenizer there", folder);
  return *runtime.tokenizer;
}

std::vector<int32_t> Model::encode(std::string_view text) const {
  return impl_->tokenizer().encode(text);
}

std::string Model::decode(std::span<const int32_t> ids) const {
  return impl_->tokenizer().decode_text(ids);
}

library::TextGenerator& Model::Impl::text_generator() {
  evaluating = std::nullopt;  // one set of weights at a time
  if (!generating) generating.emplace(runtime, config::compute_options(config));
  return *generating;
}

std::vector<float> Model::logits(std::span<const int32_t> tokens, int64_t first) {
  const LogSink lines(impl_->log);
  return impl_->text_generator().logits(tokens, first);
}

Generation Model::generate(const std::string& prompt, const GenerateOptions& options) {
  return generate(std::span(&prompt, 1), options).front();
}

std::vector<Generation> Model::generate(std::span<const std::string> prompts, const GenerateOptions& options,
                                        const GenerateCallbacks& callbacks) {
  const LogSink lines(impl_->log);
  std::vector<library::NamedPrompt> named;
  for (size_t i = 0; i < prompts.size(); ++i)
    named.push_back({prompts[i], prompts.size() == 1 ? "prompt" : fmt::format("prompt {}", i)});
  return impl_->text_generator().generate(named, options, callbacks);
}

library::Evaluation& Model::Impl::evaluation_of(const EvalOptions& options) {
  if (generating) {  // one set of weights at a time
    generating = std::nullopt;
    runtime.executor.reset();
  }
  const library::EvalSettings settings{
      .sequence_length = options.sequence_length,
      .stride = options.stride > 0 ? std::optional(options.stride) : std::nullopt};
  if (!evaluating || !evaluating->has(settings)) {
    evaluating = std::nullopt;
    evaluating.emplace(runtime, config, settings);
  }
  return *evaluating;
}

EvalReport Model::Impl::evaluate(library::Evaluation& evaluation, const library::EvalCorpus& corpus,
                                 const std::string& name, const EvalOptions& options) {
  EvalReport report;
  const auto go_on = [&](double done) {
    report.stopped = report.stopped || (options.go_on && !options.go_on(done));
    return !report.stopped;
  };
  const evaluation::EvalResult result = evaluation.measure(evaluation.windows(corpus.corpus), go_on);
  if (!report.stopped) library::require_targets(result, name);
  report.loss = result.loss();
  report.perplexity = std::exp(report.loss);
  report.tokens = result.tokens;
  if (corpus.bytes > 0 && evaluation.causal() && !report.stopped)
    report.bits_per_byte = result.loss_sum / std::log(2.0) / static_cast<double>(corpus.bytes);
  return report;
}

EvalReport Model::evaluate_text(const std::string& path, const EvalOptions& options) {
  const LogSink lines(impl_->log);
  library::Evaluation& evaluation = impl_->evaluation_of(options);
  return impl_->evaluate(evaluation, evaluation.open_text(path), path, options);
}

EvalReport Model::evaluate_tokens(const std::string& path, const EvalOptions& options) {
  const LogSink lines(impl_->log);
  library::Evaluation& evaluation = impl_->evaluation_of(options);
  return impl_->evaluate(evaluation, evaluation.open_tokens(path), path, options);
}

EvalReport Model::evaluate(const std::string& text, const EvalOptions& options) {
  const LogSink lines(impl_->log);
  library::Evaluation& evaluation = impl_->evaluation_of(options);
  return impl_->evaluate(evaluation, evaluation.from_text(text), "text", options);
}

}  // namespace strata
