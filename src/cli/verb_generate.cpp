// strata generate
#include "base/error.h"
#include "cli/options.h"
#include "train/commands.h"

namespace strata::cli {

void add_generate(CLI::App& root, Action& action) {
  auto options = std::make_shared<train::GenerateOptions>();
  CLI::App* verb =
      add_verb(root, "generate", "Let a model write text",
               "strata generate --model runs/first --prompt \"Once upon a time\" --temperature 0.8");
  verb->add_option("--model", options->model,
                   "Hugging Face directory, run, checkpoint, RUN@latest or RUN@best")
      ->required()
      ->type_name("DIR");
  auto* prompt = verb->add_option("--prompt", options->prompt, "The text to go on from")->type_name("TEXT");
  verb->add_option("--prompts", options->prompts, "Many instead: a {\"prompt\": …} a line")
      ->type_name("FILE.jsonl")
      ->excludes(prompt);
  verb->add_option("--max-tokens", options->max_tokens, "Most new tokens")
      ->check(CLI::PositiveNumber)
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--temperature", options->temperature, "0: always the most probable token")
      ->check(CLI::NonNegativeNumber)
      ->type_name("T")
      ->capture_default_str();
  verb->add_option("--top-k", options->top_k, "Only the K most probable tokens; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->type_name("K")
      ->capture_default_str();
  verb->add_option("--top-p", options->top_p, "Only the most probable ones that make up P together")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("P")
      ->capture_default_str();
  verb->add_option("--min-p", options->min_p, "Only those of at least P times the most probable one")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("P")
      ->capture_default_str();
  verb->add_option("--repetition-penalty", options->repetition_penalty, "Above 1: less of what stood before")
      ->check(CLI::PositiveNumber)
      ->type_name("R")
      ->capture_default_str();
  one_each(verb->add_option("--stop", options->stop, "End before this text; may be repeated"))
      ->type_name("TEXT");
  verb->add_option("--seed", options->seed, "Of the random numbers")->type_name("S")->capture_default_str();
  add_sets(*verb, options->sets);
  add_json(*verb, options->json);
  verb->callback([&action, options] {
    action = [options] {
      if (!options->prompt && options->prompts.empty()) {
        throw ConfigError(
            "[strata generate] found no prompt, expected --prompt TEXT or --prompts FILE.jsonl");
      }
      return train::run_generation(*options);
    };
  });
}

}  // namespace strata::cli
