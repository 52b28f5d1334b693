// strata eval
#include "base/error.h"
#include "cli/verbs.h"
#include "train/commands.h"

namespace strata::cli {

void add_eval(Verb root) {
  auto options = std::make_shared<train::EvalOptions>();
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
          .type_name("NAME");
  Option jsonl =
      verb.option("--jsonl", options->jsonl, "The task's questions, as they are published").type_name("FILE");
  task.needs(jsonl).excludes(tokens).excludes(text);
  verb.option("--limit", options->limit, "Only the first N questions").positive().type_name("N").needs(task);
  verb.option("--samples", options->samples, "Write each question's log-likelihoods here")
      .type_name("FILE.jsonl")
      .needs(task);
  verb.sets(options->sets);
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
    return train::run_evaluation(*options);
  });
}

}  // namespace strata::cli
