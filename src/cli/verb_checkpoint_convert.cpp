// strata checkpoint export, import, upcycle and add-indexer
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/packed_write.h"
#include "checkpoint/weights.h"
#include "cli/actions.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "config/values.h"
#include "data/tokenizer/text_ends.h"
#include "device/open/open.h"
#include "inference/model_runtime.h"
#include "interop/gguf_model.h"
#include "interop/megatron.h"
#include "interop/model_card.h"
#include "models/parametrization.h"
#include "program/initialize.h"
#include "train/facts.h"
#include "train/run_store.h"

namespace strata::cli {
namespace {

using Json = nlohmann::ordered_json;

DType dtype_of(const std::string& name) {
  if (name == "bf16") return DType::kBF16;
  if (name == "fp16") return DType::kF16;
  if (name == "fp32") return DType::kF32;
  throw ConfigError("[--dtype] found \"{}\", expected bf16, fp16 or fp32", name);
}

// How an export stores weights: packed ones in blocks, all others as `floats`.
struct WeightFormat {
  enum class Packing : uint8_t { kNone, kFp8Blocks, kMxfp4 };
  DType floats = DType::kBF16;
  Packing packing = Packing::kNone;
};
using Packing = WeightFormat::Packing;

WeightFormat weight_format_of(const std::string& name) {
  if (name == "fp8_block") return {DType::kBF16, Packing::kFp8Blocks};
  if (name == "mxfp4") return {DType::kBF16, Packing::kMxfp4};
  return {dtype_of(name), Packing::kNone};
}

// The tensors that a weight becomes in the files; itself unless it is packed.
std::vector<checkpoint::TensorView> stored_as(Packing packing, const checkpoint::FileTensor& tensor,
                                              const std::map<std::string, graph::ParameterRole>& roles,
                                              checkpoint::TensorView weight) {
  using graph::ParameterRole;
  const ParameterRole role = roles.at(tensor.row.parameter);
  const bool is_hidden =
      models::takes_recipe(role) &&
      std::all_of(tensor.others.begin(), tensor.others.end(), [&](const models::TensorRow& other) {
        return models::takes_recipe(roles.at(other.parameter));
      });
  if (packing == Packing::kFp8Blocks && is_hidden && checkpoint::has_fp8_blocks(weight))
    return checkpoint::in_fp8_blocks(weight);
  if (packing == Packing::kMxfp4 && (role == ParameterRole::kExpertIn || role == ParameterRole::kExpertOut) &&
      checkpoint::has_mxfp4_blocks(weight))
    return checkpoint::in_mxfp4_blocks(weight);
  return {std::move(weight)};
}

// config.json with the field by which readers recognise packed weights.
std::string with_packing(const std::string& config_json, Packing packing) {
  if (packing == Packing::kNone) return config_json;
  auto json = parse_json<Json>(config_json);
  if (packing == Packing::kFp8Blocks) {
    json["quantization_config"] = {{"activation_scheme", "dynamic"},
                                   {"fmt", "e4m3"},
                                   {"quant_method", "fp8"},
                                   {"weight_block_size", {128, 128}}};
  } else {
    json["quantization_config"] = {
        {"modules_to_not_convert",
         {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}},
        {"quant_method", "mxfp4"}};
  }
  return dump_json(json, 2) + "\n";
}

uint64_t shard_bytes_of(const ConvertOptions& options) {
  const auto bytes = config::parse_bytes(options.max_shard_size);
  if (bytes && bytes->count > 0) return static_cast<uint64_t>(bytes->count);
  throw ConfigError("[--max-shard-size] found \"{}\", expected a size such as 500 MB or 5 GB",
                    options.max_shard_size);
}

void print_result(const ConvertOptions& options, const models::ModelConfig& model, const char* what) {
  if (options.json) {
    print_out("{}\n", dump_json(Json{{"path", options.target.string()},
                                     {"dtype", options.dtype},
                                     {"parameters", models::parameter_count(model)}}));
  } else {
    print_out("{} {}\n", what, options.target.string());
  }
}

struct ModelFolder {
  Path path;
  models::ModelConfig model;
};

ModelFolder open_folder(const std::string& source) {
  ModelFolder folder{checkpoint::resolve_model(source), {}};
  const std::string where = (folder.path / "config.json").string();
  folder.model = models::read_config_json(checkpoint::read_config_json(folder.path), where);
  folder.model.generation_eos_ids = data::generation_ends(folder.path);
  const auto problems = models::errors_of(folder.model);
  if (!problems.empty()) throw DataError("[{}] {}", where, problems.front());
  if (folder.model.predict_layers > 0 && !checkpoint::holds_prediction(folder.path, folder.model)) {
    log_warning("{} declares layers that predict further tokens, but the files contain none", where);
    folder.model.predict_layers = 0;
  }
  return folder;
}

// The last component of the path that is not just a checkpoint's name within its run.
std::string name_of_model(const Path& folder) {
  Path path = std::filesystem::absolute(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  if (name.starts_with("step-")) path = path.parent_path().parent_path();
  if (name == "final") path = path.parent_path();
  return path.filename().string();
}

// Memory for weights and for AdamW's states, which start at zero.
void compile_for_training(inference::ModelRuntime& runtime) {
  program::CompileOptions compile;
  compile.model = runtime.model;
  compile.rule_of = [](const std::string&, graph::ParameterRole) { return optim::one_rule({}); };
  compile.recompute = program::Recompute::kNone;
  compile.cache_capacity = 1;
  const auto device = device::open(device::Kind::kCpu, 0, 1);
  compile.target = device->target();
  const int64_t source = runtime.model.architecture == models::Architecture::kEncoderDecoder ? 1 : 0;
  runtime.executor = std::make_unique<program::Executor>(
      program::compile({{.kind = program::Kind::kTrain, .encoder_length = source}}, compile), device);
  program::initialize_weights(*runtime.executor, 0);
}

}  // namespace

int run_export(const ConvertOptions& options) {
  if (!options.format.empty() && options.format != "hf" && options.format != "gguf")
    throw ConfigError("[--format] found \"{}\", expected hf or gguf", options.format);
  const WeightFormat format = weight_format_of(options.dtype);
  if (options.format == "gguf" && format.packing != Packing::kNone)
    throw ConfigError("[--dtype] found {}, expected bf16, fp16 or fp32 for a GGUF file", options.dtype);
  refuse_existing("strata checkpoint export", options.target, options.force);
  const uint64_t shard_bytes = shard_bytes_of(options);
  ModelFolder folder = open_folder(options.source);
  if (const auto router = folder.model.experts.router; router != models::Experts::Router::kTopK) {
    throw ConfigError(
        "[{}] found a router that has no exact counterpart in {}: {} (moe.router); only strata reads the "
        "exported directory",
        options.source, options.format == "gguf" ? "llama.cpp" : "transformers", models::name_of(router));
  }
  if (options.format == "gguf" && folder.model.predict_layers > 0) {
    log_warning("layers that predict further tokens are omitted: GGUF export does not support them");
    folder.model.predict_layers = 0;
  }
  const checkpoint::WeightSource weights = checkpoint::open_weights(folder.path, folder.model);
  if (!options.skip_values) checkpoint::check_finite(weights, folder.model);
  if (options.format == "gguf") {
    if (std::filesystem::is_directory(options.target))
      throw ConfigError("[{}] is a folder; expected the name of a .gguf file", options.target.string());
    interop::write_gguf_model(posix_file_system(), options.target, name_of_model(folder.path), folder.model,
                              weights, folder.path, format.floats);
    print_result(options, folder.model, "exported to");
    return 0;
  }

  checkpoint::ModelFiles files{
      .config_json = with_packing(models::write_config_json(folder.model, format.floats), format.packing),
      .files = interop::companion_files_of(folder.path, folder.model),
      .weights = {},
      .dtype = format.floats,
      .max_shard_bytes = shard_bytes};
  if (const auto facts = training::facts_of_checkpoint(folder.path)) {
    std::erase_if(files.files, [](const auto& file) { return file.name == "README.md"; });
    files.files.push_back({"README.md", interop::model_card(folder.model, *facts)});
  }
  const auto roles = models::parameter_roles(folder.model);
  size_t packed = 0;
  for (const checkpoint::FileTensor& tensor : checkpoint::file_tensors(folder.model)) {
    const auto& entry = weights.entry(tensor.row.file_name);
    auto stored = stored_as(format.packing, tensor, roles,
                            {.name = tensor.row.file_name,
                             .shape = tensor.shape,
                             .memory_dtype = *entry.tensor->dtype,
                             .storage = checkpoint::in_file(*entry.file, *entry.tensor)});
    packed += stored.size() > 1 ? 1 : 0;
    std::move(stored.begin(), stored.end(), std::back_inserter(files.weights));
  }
  if (format.packing != Packing::kNone && packed == 0) {
    throw ConfigError(
        "[--dtype] found {}, but {} has {}: choose bf16", options.dtype, options.source,
        format.packing == Packing::kMxfp4
            ? "no experts in tensors [experts, inputs, outputs] with a multiple of 32 inputs, as gpt-oss has them"
            : "no attention or feed-forward matrix of two dimensions");
  }
  checkpoint::write_hf_directory(posix_file_system(), options.target, files);
  print_result(options, folder.model, "exported to");
  return 0;
}

namespace {

// How a verb writes a directory, checked before it reads anything.
struct Output {
  DType dtype;
  uint64_t shard_bytes;

  Output(const char* verb, const ConvertOptions& options) : dtype(dtype_of(options.dtype)) {
    refuse_existing(verb, options.target, options.force);
    shard_bytes = shard_bytes_of(options);
  }
};

// The directory of another model with weights made from those of `folder`.
void write_converted(const ConvertOptions& options, const Output& output, const ModelFolder& folder,
                     const models::ModelConfig& model, std::vector<checkpoint::TensorView> weights,
                     const char* what) {
  checkpoint::ModelFiles files{.config_json = models::write_config_json(model, output.dtype),
                               .files = interop::companion_files_of(folder.path, folder.model),
                               .weights = std::move(weights),
                               .dtype = output.dtype,
                               .max_shard_bytes = output.shard_bytes};
  // It describes the model before.
  std::erase_if(files.files, [](const auto& file) { return file.name == "README.md"; });
  checkpoint::write_hf_directory(posix_file_system(), options.target, files);
  print_result(options, model, what);
}

}  // namespace

int run_upcycle(const UpcycleCommand& command) {
  const Output output("strata checkpoint upcycle", command);
  const ModelFolder folder = open_folder(command.source);
  interop::UpcycleOptions how = command.how;
  how.per_token = command.per_token > 0 ? command.per_token : 2 * how.granularity;
  const models::ModelConfig model = interop::upcycled(folder.model, how);
  const checkpoint::WeightSource weights = checkpoint::open_weights(folder.path, folder.model);
  checkpoint::check_finite(weights, folder.model);
  write_converted(command, output, folder, model,
                  interop::upcycled_tensors(folder.model, weights, model, how), "upcycled to");
  return 0;
}

int run_add_indexer(const AddIndexerCommand& command) {
  const Output output("strata checkpoint add-indexer", command);
  const ModelFolder folder = open_folder(command.source);
  const models::ModelConfig model = interop::with_indexer(folder.model, command.how);
  const checkpoint::WeightSource weights = checkpoint::open_weights(folder.path, folder.model);
  checkpoint::check_finite(weights, folder.model);
  write_converted(command, output, folder, model,
                  interop::tensors_with_indexer(folder.model, weights, model, command.how), "written to");
  return 0;
}

int run_import(const ConvertOptions& options) {
  if (!options.format.empty() && options.format != "hf" && options.format != "megatron")
    throw ConfigError("[--format] found \"{}\", expected hf or megatron", options.format);
  const bool from_megatron =
      options.format == "megatron" || (options.format.empty() && interop::is_megatron(options.source));
  std::optional<interop::MegatronCheckpoint> megatron;
  inference::ModelRuntime runtime;
  if (from_megatron) {
    megatron = interop::open_megatron(options.source);
    interop::check_megatron(*megatron);
    runtime.model = megatron->model;
  } else {
    runtime = inference::open_model(options.source);
    checkpoint::open_weights(
        runtime.folder,
        runtime.model);  // a model that does not fit allocates nothing and leaves no folder
  }
  compile_for_training(runtime);
  if (megatron) {
    interop::load_megatron(*megatron, *runtime.executor);
  } else {
    checkpoint::load_hugging_face(runtime.folder, runtime.model, *runtime.executor);
  }
  training::RunStore store(posix_file_system(), options.target);
  if (store.holds_run()) {
    throw ConfigError("[{}] contains a run already; import into a new folder", options.target.string());
  }
  store.save(
      {runtime.model, *runtime.executor, runtime.tokenizer ? &*runtime.tokenizer : nullptr, {}, {}, {}});
  ConvertOptions shown = options;
  shown.dtype = "fp32";  // the type of weights in every checkpoint of a run
  print_result(shown, runtime.model, "imported as step 0 of");
  return 0;
}

namespace {

// How the new directory is written, and the action.
template <typename Command>
void add_output(Verb& verb, const std::shared_ptr<Command>& command,
                const std::shared_ptr<std::string>& target, int (*run)(const Command&)) {
  verb.option("--dtype", command->dtype, "Type of the weights")
      .one_of({"bf16", "fp16", "fp32"})
      .show_default();
  verb.option("--max-shard-size", command->max_shard_size, "Size limit of a weight file: 500 MB, 5 GB")
      .show_default();
  verb.flag("--force", command->force, kForceHelp);
  verb.json(command->json);
  verb.action([command, target, run] {
    command->target = *target;
    return run(*command);
  });
}

void add_upcycle(Verb checkpoint) {
  auto command = std::make_shared<UpcycleCommand>();
  auto target = std::make_shared<std::string>();
  Verb verb = checkpoint.verb("upcycle", "Make a mixture of experts from a dense model, for further training",
                              "strata checkpoint upcycle llama/ mixtral/ --experts 8 --top-k 2");
  verb.option("DENSE", command->source, "Checkpoint, run, RUN@latest, RUN@best or Hugging Face directory")
      .required();
  verb.option("OUT", *target, "The directory to write").required();
  verb.option("--experts", command->how.experts, "Experts per layer, including the parts of all copies")
      .positive()
      .show_default()
      .type_name("N");
  verb.option("--top-k", command->per_token, "Experts per token; default: two copies")
      .positive()
      .type_name("K");
  verb.option("--granularity", command->how.granularity, "Split each FFN into this many experts")
      .positive()
      .show_default()
      .type_name("G");
  verb.option("--noise", command->how.noise, "Noise on the weights, in their standard deviations")
      .show_default();
  verb.option("--fresh", command->how.fresh, "The share of each expert's inner units that is reinitialized")
      .show_default();
  verb.option("--seed", command->how.seed, "Seed of router, noise and reinitialized units").show_default();
  add_output(verb, command, target, run_upcycle);
}

void add_add_indexer(Verb checkpoint) {
  auto command = std::make_shared<AddIndexerCommand>();
  auto target = std::make_shared<std::string>();
  Verb verb = checkpoint.verb(
      "add-indexer", "Prepare a dense deepseek3 model for sparse attention, for a warm-up of its indexer",
      "strata checkpoint add-indexer dense/ sparse/ --top-k 64 --heads 4 --size 64");
  verb.option("DENSE", command->source, "Checkpoint, run, RUN@latest, RUN@best or Hugging Face directory")
      .required();
  verb.option("OUT", *target, "The directory to write").required();
  verb.option("--top-k", command->how.dims.count, "Keys that each token attends to (index_topk)")
      .positive()
      .show_default()
      .type_name("K");
  verb.option("--heads", command->how.dims.heads, "Heads of the indexer (index_n_heads)")
      .positive()
      .show_default()
      .type_name("H");
  verb.option("--size", command->how.dims.dim, "Size of one of its heads (index_head_dim)")
      .positive()
      .show_default()
      .type_name("D");
  verb.option("--seed", command->how.seed, "Seed of its weights").show_default();
  add_output(verb, command, target, run_add_indexer);
}

}  // namespace

void add_checkpoint_conversions(Verb checkpoint) {
  auto options = std::make_shared<ConvertOptions>();
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
  Verb out = add("export", "Write a Hugging Face directory or a GGUF file",
                 "strata checkpoint export runs/first@best model/ --dtype bf16",
                 "The directory or .gguf file to write", run_export);
  out.option("--format", options->format, "hf (default) or gguf, the file of llama.cpp")
      .one_of({"hf", "gguf"});
  out.option(
         "--dtype", options->dtype,
         "Type of the weights; fp8_block: attention and feed-forward as DeepSeek-V3, mxfp4: experts as gpt-oss, the rest bf16")
      .one_of({"bf16", "fp16", "fp32", "fp8_block", "mxfp4"})
      .show_default();
  out.option("--max-shard-size", options->max_shard_size, "Size limit of a weight file: 500 MB, 5 GB")
      .show_default();
  out.flag("--skip-values", options->skip_values, "Skip the check of all weights for NaN and infinity");
  out.flag("--force", options->force, kForceHelp);
  Verb in = add("import", "Make step 0 of a new run from a model directory or a Megatron-LM checkpoint",
                "strata checkpoint import model/ runs/second", "The new run's folder", run_import);
  in.option("--format", options->format, "hf or megatron; default: detected from the folder")
      .one_of({"hf", "megatron"});
  add_upcycle(checkpoint);
  add_add_indexer(checkpoint);
}

}  // namespace strata::cli
