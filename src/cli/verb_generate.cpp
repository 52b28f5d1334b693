// strata generate
#include "base/error.h"
#include "cli/verbs.h"
#include "train/commands.h"

namespace strata::cli {

void add_generate(Verb root) {
  auto options = std::make_shared<train::GenerateOptions>();
  Verb verb = root.verb(
      "generate", "Let a model write text",
      "strata generate --model runs/first --prompt \"Once upon a time\" --temperature 0.8 --stop \"\\n\\n\"");
  verb.option("--model", options->model, "Hugging Face directory, run, checkpoint, RUN@latest or RUN@best")
      .required()
      .type_name("DIR");
  Option prompt = verb.option("--prompt", options->prompt, "The text to go on from").type_name("TEXT");
  verb.option("--prompts", options->prompts, "Many instead: a {\"prompt\": …} a line")
      .type_name("FILE.jsonl")
      .excludes(prompt);
  verb.option("--batch", options->batch,
              "Texts of --prompts written at once, 1 to 32; each is the same as alone")
      .positive()
      .type_name("N")
      .show_default();
  verb.option("--max-tokens", options->max_tokens, "Most new tokens")
      .positive()
      .type_name("N")
      .show_default();
  verb.option("--temperature", options->temperature, "0: always the most probable token")
      .non_negative()
      .type_name("T")
      .show_default();
  verb.option("--top-k", options->top_k, "Only the K most probable tokens; 0: all")
      .non_negative()
      .type_name("K")
      .show_default();
  verb.option("--top-p", options->top_p, "Only the most probable ones that make up P together")
      .range(0.0, 1.0)
      .type_name("P")
      .show_default();
  verb.option("--min-p", options->min_p, "Only those of at least P times the most probable one")
      .range(0.0, 1.0)
      .type_name("P")
      .show_default();
  verb.option("--repetition-penalty", options->repetition_penalty, "Above 1: less of what stood before")
      .positive()
      .type_name("R")
      .show_default();
  verb.option("--stop", options->stop, "End before this text; may be repeated").one_each().type_name("TEXT");
  verb.option("--seed", options->seed, "Of the random numbers").type_name("S").show_default();
  verb.sets(options->sets);
  verb.json(options->json);
  verb.action([options] {
    if (!options->prompt && options->prompts.empty()) {
      throw ConfigError("[strata generate] found no prompt, expected --prompt TEXT or --prompts FILE.jsonl");
    }
    return train::run_generation(*options);
  });
}

}  // namespace strata::cli
