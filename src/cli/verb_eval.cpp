// strata eval
#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/signals.h"
#include "cli/actions.h"
#include "cli/eval_task.h"
#include "cli/output.h"
#include "cli/share_done.h"
#include "cli/verbs.h"
#include "config/objective.h"
#include "config/resolve.h"
#include "config/token_checks.h"
#include "data/tokens/reader.h"
#include "data/tokens/text_encoder.h"
#include "data/tokens/token_corpus.h"
#include "evaluation/evaluate.h"
#include "inference/model_runtime.h"

namespace strata::cli {
namespace {

using Json = nlohmann::ordered_json;

// The tokens of all texts, as a run has them that is given the same files, and how many bytes of text they
// are.
data::TokenCorpus tokenize_texts(const inference::ModelRuntime& runtime, const std::string& pattern,
                                 const config::RunConfig& config, const data::TokenFileOptions& options,
                                 int64_t& bytes) {
  if (!runtime.tokenizer)
    throw ConfigError("[{}] has no tokenizer.json; it is needed for --text", runtime.folder.string());
  const data::TextEncoder encoder = data::text_encoder(*runtime.tokenizer);
  // A tokenizer without these tokens, as of some published models, evaluates all the same.
  const bool ends = config.tokenizer.add_eos && encoder.end_of_text;
  if (config.tokenizer.add_bos && encoder.begin_of_text.empty())
    throw ConfigError("[tokenizer.add_bos] is true, and {} has no begin-of-text token; leave it at false",
                      (runtime.folder / "tokenizer.json").string());
  std::vector<int32_t> ids;
  data::read_documents(data::find_corpus_files({pattern}), config.data.text_field,
                       [&](std::string_view text) {
                         bytes += static_cast<int64_t>(text.size());
                         if (config.tokenizer.add_bos)
                           ids.insert(ids.end(), encoder.begin_of_text.begin(), encoder.begin_of_text.end());
                         encoder.encode(text, ids);
                         if (ends) ids.push_back(*encoder.end_of_text);
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
  inference::ModelRuntime runtime = inference::open_model(options.model);
  const int64_t length = options.sequence_length > 0
                             ? options.sequence_length
                             : std::min<int64_t>(512, runtime.model.max_sequence_length());
  if (length > runtime.model.max_sequence_length()) {
    throw ConfigError("[eval] --sequence-length {} is beyond the model's {} positions", length,
                      runtime.model.max_sequence_length());
  }
  const int64_t stride = options.stride.value_or(length);
  if (stride < 1 || stride > length)
    throw ConfigError("[eval] --stride {} must be between 1 and {}", stride, length);
  config::RunConfig config = config::config_of_sets(options.sets);
  config.training.sequence_length = length;
  if (std::vector<config::Fault> faults;
      config::check_objective(config, runtime.model, faults), !faults.empty())
    throw_faults(faults);
  const bool documents = config.was_set("data.pack") && config.data.pack == config::Pack::kDocuments;

  const bool causal = runtime.model.architecture == models::Architecture::kDecoder;
  if (!causal && !runtime.tokenizer) {
    throw ConfigError(
        "[{}] has no tokenizer.json, which names the tokens that stand for hidden text; put it there",
        runtime.folder.string());
  }
  data::TokenCorpus corpus;
  int64_t bytes = 0;
  data::TokenFileOptions file_options{.vocab_size = runtime.model.vocab_size};
  if (runtime.tokenizer) {
    file_options.end_of_text = runtime.tokenizer->end_of_text_id();
    file_options.tokenizer_hash = to_hex(runtime.tokenizer->hash());
  }
  if (!options.tokens.empty()) {
    corpus = data::open_token_corpus({options.tokens}, file_options);
  } else {
    corpus = tokenize_texts(runtime, options.text, config, file_options, bytes);
  }
  if (const auto file = config::without_document_ends(corpus); documents && file) {
    throw ConfigError(
        "[data.pack] is \"documents\", and {} has neither a document table nor a known end-of-text id; leave "
        "it "
        "at \"stream\"",
        *file);
  }
  const data::EvalWindows windows(
      corpus, {.sequence_length = length,
               .stride = stride,
               .pack = documents ? data::Pack::kDocuments : data::Pack::kStream,
               .objective = config::objective_options(config, runtime.model,
                                                      runtime.tokenizer ? &*runtime.tokenizer : nullptr)});
  inference::RuntimeOptions wanted{.compute = config::compute_options(config)};
  const int64_t sequences = std::clamp<int64_t>(2048 / length, 1, std::max<int64_t>(1, windows.windows()));
  wanted.requests.push_back({.kind = program::Kind::kEvaluate,
                             .sequences = sequences,
                             .sequence_length = windows.shape().tokens,
                             .encoder_length = windows.shape().encoder_length,
                             .document_mask = documents || !causal});
  catch_stop_signals();
  inference::load_runtime(runtime, wanted);
  const evaluation::EvalResult result = [&] {
    ShareDone show;
    return evaluation::evaluate(*runtime.executor, 0, windows, [&](double done) {
      show(done);
      return !stop_requested();
    });
  }();
  if (stop_requested()) return stop_exit_code();
  const double loss = result.loss();
  std::optional<double> bits;
  if (bytes > 0 && causal) bits = result.loss_sum / std::log(2.0) / static_cast<double>(bytes);
  if (options.json) {
    Json json{{"loss", loss}, {"perplexity", std::exp(loss)}, {"tokens", result.tokens}};
    if (bits) json["bits_per_byte"] = *bits;
    print_out("{}\n", json.dump());
  } else {
    print_out("loss {:.6f}  perplexity {:.4f}  tokens {}", loss, std::exp(loss), result.tokens);
    if (bits) print_out("  bits per byte {:.4f}", *bits);
    print_out("\n");
  }
  return 0;
}

void add_eval(Verb root) {
  auto options = std::make_shared<EvalOptions>();
  Verb verb = root.verb("eval", "Mean loss of a model on tokens or text, or its score on a task",
                        "strata eval --model runs/first --text held.txt --sequence-length 512");
  verb.option("--model", options->model, "Hugging Face directory, run, checkpoint, RUN@latest or RUN@best")
      .required()
      .type_name("DIR");
  Option tokens = verb.option("--tokens", options->tokens, "Token file").type_name("FILE");
  Option text = verb.option("--text", options->text, "Text file; gives bits_per_byte too").type_name("FILE");
  tokens.excludes(text);
  verb.option("--sequence-length", options->sequence_length,
              "Targets of a window; of a task: most tokens the model sees (default: all its positions)")
      .positive()
      .type_name("N");
  verb.option("--stride", options->stride, "Distance of two windows' starts; default: the sequence length")
      .positive()
      .type_name("N");
  Option task =
      verb.option(
              "--task", options->task,
              "A task instead, as lm-evaluation-harness asks it: hellaswag, arc_easy, arc_challenge, piqa "
              "(acc, acc_norm), lambada_openai (acc, perplexity)")
          .type_name("NAME")
          .suggest({"hellaswag", "arc_easy", "arc_challenge", "piqa", "lambada_openai"});
  Option jsonl =
      verb.option("--jsonl", options->jsonl, "The task's questions, as they are published").type_name("FILE");
  task.needs(jsonl).excludes(tokens).excludes(text);
  verb.option("--limit", options->limit, "Only the first N questions").positive().type_name("N").needs(task);
  verb.option("--samples", options->samples, "Write each question's log-likelihoods here")
      .type_name("FILE.jsonl")
      .needs(task);
  verb.flag("--force", options->force, kForceHelp);
  verb.sets(options->sets).suggest(configuration_keys());
  verb.json(options->json);
  verb.action([options] {
    if (options->task.empty() && options->tokens.empty() && options->text.empty()) {
      throw ConfigError(
          "[strata eval] found nothing to evaluate on, expected --tokens FILE, --text FILE or --task NAME");
    }
    if (options->task.empty() && options->sequence_length == 0) {
      throw ConfigError(
          "[strata eval] --sequence-length is missing; it is the number of targets of a window");
    }
    if (!options->samples.empty())
      check_output_file("strata eval --samples", options->samples, options->force);
    return run_evaluation(*options);
  });
}

}  // namespace strata::cli
