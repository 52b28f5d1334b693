#include "inference/model_runtime.h"

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/weights.h"
#include "device/open/open.h"
#include "inference/generate.h"

namespace strata::inference {
namespace {

// bf16 if the files have bf16, else fp32.
DType dtype_of(const checkpoint::TensorSource& source) {
  for (const auto& [name, entry] : source.tensors) {
    if (entry.tensor->dtype != DType::kBF16) return DType::kF32;
  }
  return DType::kBF16;
}

// The advice depends on the largest part.
void check_memory(const program::ProgramSet& set, const device::Device& device, device::Kind kind) {
  const bool separate = kind == device::Kind::kCuda;
  const int64_t there = separate ? device.free_memory() : holdable_memory();
  if (there == 0 || set.arena_bytes <= there) return;
  const auto bytes = [](int64_t count) { return human_bytes(static_cast<double>(count)); };
  const int64_t rows = set.arena_bytes - set.persistent_bytes - set.cache_bytes;
  const char* advice = "Use a smaller model";
  if (set.cache_bytes > set.persistent_bytes)
    advice = "Generate fewer tokens (--max-tokens) or fewer concurrent texts (--batch)";
  if (rows > std::max(set.cache_bytes, set.persistent_bytes)) advice = "Lower the sequence length";
  throw WorldError("[memory] weights need {}, keys and values {}, activations {}, but {} are free {}. {}",
                   bytes(set.persistent_bytes), bytes(set.cache_bytes), bytes(rows), bytes(there),
                   separate ? "on " + device.spec().name : where_memory_ends(), advice);
}

}  // namespace

ModelRuntime open_model(const std::string& model) {
  ModelRuntime runtime;
  runtime.folder = checkpoint::resolve_model(model);
  runtime.model = models::read_config_json(checkpoint::read_config_json(runtime.folder),
                                           (runtime.folder / "config.json").string());
  runtime.model.predict_layers = 0;  // not used here
  runtime.model.generation_eos_ids = data::generation_ends(runtime.folder);
  const auto errors = models::errors_of(runtime.model);
  if (!errors.empty()) throw DataError("[{}] {}", (runtime.folder / "config.json").string(), errors.front());
  const Path tokenizer = runtime.folder / "tokenizer.json";
  if (std::filesystem::exists(tokenizer)) runtime.tokenizer = data::Tokenizer::load(tokenizer);
  return runtime;
}

std::vector<int32_t> stop_ids(const models::ModelConfig& model, const data::Tokenizer* tokenizer) {
  std::vector<int32_t> ids;
  for (const int64_t id : model.stop_ids()) ids.push_back(static_cast<int32_t>(id));
  if (ids.empty() && tokenizer != nullptr && tokenizer->end_of_text_id())
    ids.push_back(*tokenizer->end_of_text_id());
  return ids;
}

void load_runtime(ModelRuntime& runtime, const RuntimeOptions& options) {
  if (options.compute.threads > 0) set_compute_threads(options.compute.threads);
  flush_denormals();
  // Parameters that are not in the files are neither planned nor allocated.
  const checkpoint::WeightSource weights = checkpoint::open_weights(runtime.folder, runtime.model);
  program::CompileOptions compile;
  compile.model = runtime.model;
  compile.activations = options.compute.dtype ? *options.compute.dtype : dtype_of(weights.source);
  const auto device = device::open(options.compute.device);
  compile.target = device->target();
  const int64_t most = options.cache_tokens > 0
                           ? options.cache_tokens
                           : std::min<int64_t>(runtime.model.max_sequence_length(), 4096);
  compile.cache_capacity =
      cache_capacity_for(std::min(most, runtime.model.max_sequence_length()), kPrefillChunk);
  compile.cache_slots = options.cache_sequences;
  auto set = program::compile(options.requests, compile);
  check_memory(*set, *device, options.compute.device);
  runtime.executor = std::make_unique<program::Executor>(std::move(set), device);
  checkpoint::load_weights(weights, runtime.model, *runtime.executor);
  // Programs of the same kind share packed weights.
  for (size_t i = 0; i < options.requests.size(); ++i) {
    if (i == 0 || options.requests[i].kind != options.requests[i - 1].kind)
      runtime.executor->run(i, {program::Segment::kEncode});
  }
}

}  // namespace strata::inference
