// strata checkpoint export|import
#include "cli/options.h"
#include "train/commands.h"

namespace strata::cli {

void add_checkpoint_conversions(CLI::App& checkpoint, Action& action) {
  auto options = std::make_shared<train::ConvertOptions>();
  auto target = std::make_shared<std::string>();
  const auto add = [&](const char* name, const char* help, const char* example, const char* target_help,
                       auto run) {
    CLI::App* verb = add_verb(checkpoint, name, help, example);
    verb->add_option("SOURCE", options->source,
                     "Checkpoint, run, RUN@latest, RUN@best or Hugging Face directory")
        ->required();
    verb->add_option("TARGET", *target, target_help)->required();
    add_json(*verb, options->json);
    verb->callback([&action, options, target, run] {
      options->target = *target;
      action = [options, run] { return run(*options); };
    });
    return verb;
  };
  add("export", "A Hugging Face directory to hand on", "strata checkpoint export runs/first@best model/",
      "The directory to write", train::run_export)
      ->add_option("--dtype", options->dtype, "Of the weights")
      ->check(CLI::IsMember({"bf16", "fp16", "fp32"}))
      ->capture_default_str();
  add("import", "Step 0 of a new run, from a model directory", "strata checkpoint import model/ runs/second",
      "The new run's folder", train::run_import);
}

}  // namespace strata::cli
