// strata checkpoint export|import
#include "cli/verbs.h"
#include "train/commands.h"

namespace strata::cli {

void add_checkpoint_conversions(Verb checkpoint) {
  auto options = std::make_shared<train::ConvertOptions>();
  auto target = std::make_shared<std::string>();
  const auto add = [&](const char* name, const char* help, const char* example, const char* target_help,
                       auto run) {
    Verb verb = checkpoint.verb(name, help, example);
    verb.option("SOURCE", options->source, "Checkpoint, run, RUN@latest, RUN@best or Hugging Face directory")
        .required();
    verb.option("TARGET", *target, target_help).required();
    verb.json(options->json);
    verb.action([options, target, run] {
      options->target = *target;
      return run(*options);
    });
    return verb;
  };
  Verb out = add("export", "A Hugging Face directory or a GGUF file to hand on",
                 "strata checkpoint export runs/first@best model/ --dtype bf16",
                 "The directory or .gguf file to write", train::run_export);
  out.option("--format", options->format, "hf (default) or gguf, the file of llama.cpp")
      .one_of({"hf", "gguf"});
  out.option("--dtype", options->dtype, "Of the weights").one_of({"bf16", "fp16", "fp32"}).show_default();
  out.option("--max-shard-size", options->max_shard_size, "Of a weight file: 500 MB, 5 GB").show_default();
  out.flag("--skip-values", options->skip_values,
           "Do not read all weights once before writing, to refuse a NaN or an infinity");
  Verb in = add("import", "Step 0 of a new run, from a model directory or a Megatron-LM checkpoint",
                "strata checkpoint import model/ runs/second", "The new run's folder", train::run_import);
  in.option("--format", options->format, "hf or megatron; left out: found from the folder")
      .one_of({"hf", "megatron"});
}

}  // namespace strata::cli
