// strata checkpoint export and import
#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface.h"
#include "train/commands.h"
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

// The weights in memory: with the optimizer's moments for a run that goes on, alone to be written elsewhere.
void load_weights(ModelRuntime& runtime, bool with_moments) {
  program::CompileOptions compile;
  compile.model = runtime.model;
  compile.rule_of = [](const std::string&, const Shape&) { return optim::ParameterRule{}; };
  compile.recompute = program::Recompute::kNone;
  compile.cache_room = 1;
  compile.threads = 1;
  const auto kind = with_moments ? program::Kind::kTrain : program::Kind::kDecode;
  runtime.executor = std::make_unique<program::Executor>(program::compile({{.kind = kind}}, compile));
  initialize_weights(*runtime.executor, 0);
  load_hugging_face(runtime.folder, runtime.model, *runtime.executor);
}

}  // namespace

int run_export(const ConvertOptions& options) {
  const DType dtype = dtype_of(options.dtype);
  ModelRuntime runtime = open_model(options.source);
  load_weights(runtime, false);
  checkpoint::write_hf_directory(
      posix_file_system(), options.target,
      {.config_json = runtime.model.family->write(runtime.model, dtype),
       .files = companion_files(runtime.model, runtime.tokenizer ? &*runtime.tokenizer : nullptr),
       .weights = read_only(weight_views(runtime.model, *runtime.executor)),
       .dtype = dtype});
  print_result(options, runtime.model, "exported to");
  return 0;
}

int run_import(const ConvertOptions& options) {
  ModelRuntime runtime = open_model(options.source);
  RunStore store(posix_file_system(), options.target);
  if (store.holds_run()) {
    throw ConfigError("[{}] holds a run already; import into a new folder", options.target.string());
  }
  load_weights(runtime, true);
  store.save(
      {runtime.model, *runtime.executor, runtime.tokenizer ? &*runtime.tokenizer : nullptr, {}, {}, {}});
  print_result(options, runtime.model, "imported as step 0 of");
  return 0;
}

}  // namespace strata::train
