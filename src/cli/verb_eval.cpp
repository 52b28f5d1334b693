// strata eval
#include "base/error.h"
#include "cli/options.h"
#include "train/commands.h"

namespace strata::cli {

void add_eval(CLI::App& root, Action& action) {
  auto options = std::make_shared<train::EvalOptions>();
  CLI::App* verb = add_verb(root, "eval", "Mean loss of a model on tokens or text",
                            "strata eval --model runs/first --text held.txt --sequence-length 512");
  verb->add_option("--model", options->model,
                   "Hugging Face directory, run, checkpoint, RUN@latest or RUN@best")
      ->required()
      ->type_name("DIR");
  auto* tokens = verb->add_option("--tokens", options->tokens, "Token file")->type_name("FILE");
  auto* text =
      verb->add_option("--text", options->text, "Text file; gives bits_per_byte too")->type_name("FILE");
  tokens->excludes(text);
  verb->add_option("--sequence-length", options->sequence_length, "Targets of a window")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  verb->add_option("--stride", options->stride,
                   "Distance of two windows' starts; default: the sequence length")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  auto* task =
      verb->add_option("--task", options->task, "Multiple choice instead: acc, acc_norm")->type_name("NAME");
  auto* jsonl = verb->add_option("--jsonl", options->jsonl, "The task's questions")->type_name("FILE");
  task->needs(jsonl)->excludes(tokens)->excludes(text);
  add_sets(*verb, options->sets);
  add_json(*verb, options->json);
  verb->callback([&action, options] {
    action = [options] {
      if (options->task.empty() && options->tokens.empty() && options->text.empty()) {
        throw ConfigError(
            "[strata eval] found nothing to evaluate on, expected --tokens FILE, --text FILE or --task NAME");
      }
      if (options->task.empty() && options->sequence_length == 0) {
        throw ConfigError(
            "[strata eval] --sequence-length is missing; it is the number of targets of a window");
      }
      return train::run_evaluation(*options);
    };
  });
}

}  // namespace strata::cli
