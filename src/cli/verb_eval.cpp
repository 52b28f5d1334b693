// strata eval
#include <fmt/core.h>

#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/actions.h"
#include "cli/eval_task.h"
#include "cli/output.h"
#include "cli/share_done.h"
#include "cli/verbs.h"
#include "strata/model.h"

namespace strata::cli {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

int run_evaluation(const EvalOptions& options) {
  if (!options.task.empty()) return run_task_evaluation(options);
  if (options.experts) return run_experts_evaluation(options);
  if (options.tokens.size() + options.text.size() != 1)
    throw ConfigError("[eval] give either --tokens FILE or --text FILE, once; several are for --experts");
  strata::Model model = strata::Model::open(options.model, {.sets = options.sets, .log = log_to_terminal});
  catch_stop_signals();
  const strata::EvalReport report = [&] {
    ShareDone show;
    const strata::EvalOptions wanted{.sequence_length = options.sequence_length,
                                     .stride = options.stride.value_or(0),
                                     .go_on = [&](double done) {
                                       show(done);
                                       return !stop_requested();
                                     }};
    return options.text.empty() ? model.evaluate_tokens(options.tokens[0], wanted)
                                : model.evaluate_text(options.text[0], wanted);
  }();
  if (report.stopped) return stop_exit_code();
  if (options.json) {
    Json json{{"loss", report.loss}, {"perplexity", report.perplexity}, {"tokens", report.tokens}};
    if (report.bits_per_byte) json["bits_per_byte"] = *report.bits_per_byte;
    print_out("{}\n", dump_json(json));
  } else {
    print_out("loss {:.6f}  perplexity {:.4f}  tokens {}", report.loss, report.perplexity, report.tokens);
    if (report.bits_per_byte) print_out("  bits per byte {:.4f}", *report.bits_per_byte);
    print_out("\n");
  }
  return 0;
}

void add_eval(Verb root) {
  auto options = std::make_shared<EvalOptions>();
  Verb verb = root.verb("eval", "Measure a model's mean loss on tokens or text, or its score on a task",
                        "strata eval --model runs/first --text held.txt --sequence-length 512");
  verb.option("--model", options->model, "Hugging Face directory, run, checkpoint, RUN@latest or RUN@best")
      .required()
      .type_name("DIR");
  Option tokens = verb.option("--tokens", options->tokens, "Token file").type_name("FILE").one_each();
  Option text = verb.option("--text", options->text, "Text file; also reports bits_per_byte")
                    .type_name("FILE")
                    .one_each();
  verb.option("--sequence-length", options->sequence_length,
              "Targets per window; for a task: maximum tokens the model sees (default: all its positions)")
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
      verb.option("--jsonl", options->jsonl, "The task's questions, as published").type_name("FILE");
  task.needs(jsonl).excludes(tokens).excludes(text);
  verb.option("--limit", options->limit, "Only the first N questions").positive().type_name("N").needs(task);
  verb.option("--samples", options->samples, "Write each question's log-likelihoods here")
      .type_name("FILE.jsonl")
      .needs(task);
  Option experts =
      verb.flag(
              "--experts", options->experts,
              "Which experts tokens go to, by layer and by source of data: each --tokens and --text is one; "
              "without any, the sources that the run of --model was trained on")
          .excludes(task);
  verb.option("--max-tokens", options->max_tokens, "Maximum tokens per source; 0: all")
      .non_negative()
      .show_default()
      .type_name("N")
      .needs(experts);
  verb.flag("--force", options->force, kForceHelp);
  verb.sets(options->sets).suggest(configuration_keys());
  verb.json(options->json);
  verb.action([options] {
    if (options->task.empty() && !options->experts && options->tokens.empty() && options->text.empty()) {
      throw ConfigError(
          "[strata eval] found no input, expected --tokens FILE, --text FILE, --task NAME or "
          "--experts");
    }
    if (options->task.empty() && !options->experts && options->sequence_length == 0) {
      throw ConfigError(
          "[strata eval] found no --sequence-length, expected the number of targets per window");
    }
    if (!options->samples.empty())
      check_output_file("strata eval --samples", options->samples, options->force);
    return run_evaluation(*options);
  });
}

}  // namespace strata::cli
