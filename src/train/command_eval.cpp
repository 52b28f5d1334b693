// strata eval
#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/reader.h"
#include "data/token_corpus.h"
#include "train/command_eval.h"
#include "train/evaluate.h"
#include "train/model_runtime.h"
#include "train/objective.h"

namespace strata::train {
namespace {

using Json = nlohmann::ordered_json;

// The tokens of all texts, an end-of-text between two of them, and how many bytes of text they are.
data::TokenCorpus tokenize_texts(const ModelRuntime& runtime, const std::string& pattern,
                                 const std::string& text_field, const data::TokenFileOptions& options,
                                 int64_t& bytes) {
  if (!runtime.tokenizer)
    throw ConfigError("[{}] has no tokenizer.json; it is needed for --text", runtime.folder.string());
  std::vector<int32_t> ids;
  bool first = true;
  data::read_documents(data::find_corpus_files({pattern}), text_field, [&](std::string_view text) {
    if (!first && options.end_of_text) ids.push_back(*options.end_of_text);
    first = false;
    bytes += static_cast<int64_t>(text.size());
    runtime.tokenizer->encode(text, ids);
  });
  if (ids.size() < 2) throw DataError("[{}] gives {} tokens; at least 2 are needed", pattern, ids.size());
  auto file = std::make_shared<const data::TokenFile>(pattern, std::move(ids), options);
  const int64_t tokens = file->tokens();
  return data::TokenCorpus({{std::move(file), 0, tokens}});
}

}  // namespace

int run_evaluation(const EvalOptions& options) {
  if (!options.task.empty()) return run_task_evaluation(options);
  if (options.tokens.empty() == options.text.empty()) {
    throw ConfigError("[eval] give either --tokens FILE or --text FILE");
  }
  ModelRuntime runtime = open_model(options.model);
  const int64_t length = options.sequence_length > 0 ? options.sequence_length
                                                     : std::min<int64_t>(512, runtime.model.longest_text());
  if (length > runtime.model.longest_text()) {
    throw ConfigError("[eval] --sequence-length {} is beyond the model's {} positions", length,
                      runtime.model.longest_text());
  }
  const int64_t stride = options.stride.value_or(length);
  if (stride < 1 || stride > length)
    throw ConfigError("[eval] --stride {} must be between 1 and {}", stride, length);
  RunConfig config = config_of_sets(options.sets);
  config.training.sequence_length = length;
  if (std::vector<Fault> faults; check_objective(config, runtime.model, faults), !faults.empty())
    throw_faults(faults);
  const bool documents = config.was_set("data.pack") && config.data.pack == Pack::kDocuments;

  const bool causal = runtime.model.architecture == models::Architecture::kDecoder;
  if (!causal && !runtime.tokenizer) {
    throw ConfigError(
        "[{}] has no tokenizer.json, which names the tokens that stand for hidden text; put it there",
        runtime.folder.string());
  }
  data::TokenCorpus corpus;
  int64_t bytes = 0;
  data::TokenFileOptions file_options{.vocab_size = runtime.model.vocab_size};
  if (runtime.tokenizer) file_options.end_of_text = runtime.tokenizer->end_of_text_id();
  if (!options.tokens.empty()) {
    corpus = data::open_token_corpus({options.tokens}, file_options);
  } else {
    corpus = tokenize_texts(runtime, options.text, config.data.text_field, file_options, bytes);
  }
  const data::EvalWindows windows(
      corpus, {.sequence_length = length,
               .stride = stride,
               .pack = documents ? data::Pack::kDocuments : data::Pack::kStream,
               .objective = objective_options(config, runtime.model,
                                              runtime.tokenizer ? &*runtime.tokenizer : nullptr)});
  RuntimeOptions wanted{.model = options.model, .config = config, .requests = {}};
  const int64_t sequences = std::clamp<int64_t>(2048 / length, 1, std::max<int64_t>(1, windows.windows()));
  wanted.requests.push_back({.kind = program::Kind::kEvaluate,
                             .sequences = sequences,
                             .sequence_length = windows.shape().tokens,
                             .source_length = windows.shape().source,
                             .document_mask = documents || !causal});
  load_runtime(runtime, wanted);
  const EvalResult result = evaluate(*runtime.executor, 0, windows);
  const double loss = result.loss();
  std::optional<double> bits;
  if (bytes > 0 && causal) bits = result.loss_sum / std::log(2.0) / static_cast<double>(bytes);
  if (options.json) {
    Json json{{"loss", loss}, {"perplexity", std::exp(loss)}, {"tokens", result.tokens}};
    if (bits) json["bits_per_byte"] = *bits;
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("loss {:.6f}  perplexity {:.4f}  tokens {}", loss, std::exp(loss), result.tokens);
    if (bits) fmt::print("  bits per byte {:.4f}", *bits);
    fmt::print("\n");
  }
  return 0;
}

}  // namespace strata::train
