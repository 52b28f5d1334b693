// strata checkpoint export and import
#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface.h"
#include "train/commands.h"
#include "train/config/values.h"
#include "train/gguf_model.h"
#include "train/hand_over.h"
#include "train/megatron.h"
#include "train/model_runtime.h"
#include "train/run_store.h"
#include "train/weights.h"

namespace strata::train {
namespace {

using Json = nlohmann::ordered_json;

DType dtype_of(const std::string& name) {
  if (name == "bf16") return DType::kBF16;
  if (name == "fp16") return DType::kF16;
  if (name == "fp32") return DType::kF32;
  throw ConfigError("[--dtype] found \"{}\", expected bf16, fp16 or fp32", name);
}

void print_result(const ConvertOptions& options, const models::ModelConfig& model, const char* what) {
  if (options.json) {
    fmt::print("{}\n", Json{{"path", options.target.string()},
                            {"dtype", options.dtype},
                            {"parameters", models::parameter_count(model)}}
                           .dump());
  } else {
    fmt::print("{} {}\n", what, options.target.string());
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
  const auto faults = models::faults_of(folder.model);
  if (!faults.empty()) throw DataError("[{}] {}", where, faults.front());
  return folder;
}

// The last part of the path that says more than where a checkpoint lies in its run.
std::string name_of_model(const Path& folder) {
  Path path = std::filesystem::absolute(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  if (name.starts_with("step-")) path = path.parent_path().parent_path();
  if (name == "final") path = path.parent_path();
  return path.filename().string();
}

// Memory for weights and the optimizer's moments, which begin at zero.
void compile_for_training(ModelRuntime& runtime) {
  program::CompileOptions compile;
  compile.model = runtime.model;
  compile.rule_of = [](const std::string&, const Shape&) { return optim::ParameterRule{}; };
  compile.recompute = program::Recompute::kNone;
  compile.cache_room = 1;
  compile.threads = 1;
  const int64_t source = runtime.model.architecture == models::Architecture::kEncoderDecoder ? 1 : 0;
  runtime.executor = std::make_unique<program::Executor>(
      program::compile({{.kind = program::Kind::kTrain, .source_length = source}}, compile));
  initialize_weights(*runtime.executor, 0);
}

}  // namespace

int run_export(const ConvertOptions& options) {
  if (!options.format.empty() && options.format != "hf" && options.format != "gguf")
    throw ConfigError("[--format] found \"{}\", expected hf or gguf", options.format);
  const DType dtype = dtype_of(options.dtype);
  const auto shard_bytes = parse_bytes(options.max_shard_size);
  if (!shard_bytes || shard_bytes->count <= 0)
    throw ConfigError("[--max-shard-size] found \"{}\", expected a size such as 500 MB or 5 GB",
                      options.max_shard_size);
  const ModelFolder folder = open_folder(options.source);
  const WeightSource weights = open_weights(folder.path, folder.model);
  if (!options.skip_values) check_finite(weights, folder.model);
  if (options.format == "gguf") {
    if (std::filesystem::is_directory(options.target))
      throw ConfigError("[{}] is a folder; expected the name of a .gguf file", options.target.string());
    write_gguf_model(posix_file_system(), options.target, name_of_model(folder.path), folder.model, weights,
                     folder.path, dtype);
    print_result(options, folder.model, "exported to");
    return 0;
  }

  checkpoint::ModelFiles files{.config_json = folder.model.family->write(folder.model, dtype),
                               .files = companion_files_of(folder.path, folder.model),
                               .weights = {},
                               .dtype = dtype,
                               .max_shard_bytes = static_cast<uint64_t>(shard_bytes->count)};
  if (const auto facts = facts_of_checkpoint(folder.path)) {
    std::erase_if(files.files, [](const auto& file) { return file.name == "README.md"; });
    files.files.push_back({"README.md", model_card(folder.model, *facts)});
  }
  for (const FileTensor& tensor : file_tensors(folder.model)) {
    const auto& entry = weights.entry(tensor.row.file_name);
    files.weights.push_back({.name = tensor.row.file_name,
                             .shape = tensor.shape,
                             .memory_dtype = *entry.tensor->dtype,
                             .file = entry.file,
                             .stored = entry.tensor});
  }
  checkpoint::write_hf_directory(posix_file_system(), options.target, files);
  print_result(options, folder.model, "exported to");
  return 0;
}

int run_import(const ConvertOptions& options) {
  if (!options.format.empty() && options.format != "hf" && options.format != "megatron")
    throw ConfigError("[--format] found \"{}\", expected hf or megatron", options.format);
  const bool from_megatron =
      options.format == "megatron" || (options.format.empty() && is_megatron(options.source));
  std::optional<MegatronCheckpoint> megatron;
  ModelRuntime runtime;
  if (from_megatron) {
    megatron = open_megatron(options.source);
    runtime.model = megatron->model;
  } else {
    runtime = open_model(options.source);
    open_weights(runtime.folder, runtime.model);  // what does not fit takes no memory and leaves no folder
  }
  compile_for_training(runtime);
  if (megatron) {
    load_megatron(*megatron, *runtime.executor);
  } else {
    load_hugging_face(runtime.folder, runtime.model, *runtime.executor);
  }
  RunStore store(posix_file_system(), options.target);
  if (store.holds_run()) {
    throw ConfigError("[{}] holds a run already; import into a new folder", options.target.string());
  }
  store.save(
      {runtime.model, *runtime.executor, runtime.tokenizer ? &*runtime.tokenizer : nullptr, {}, {}, {}});
  print_result(options, runtime.model, "imported as step 0 of");
  return 0;
}

}  // namespace strata::train
