// A run's device and programs.
#include <algorithm>

#include "base/error.h"
#include "config/choose.h"
#include "config/layout.h"
#include "config/names.h"
#include "config/objective.h"
#include "config/pipeline.h"
#include "config/precision.h"
#include "config/ramp.h"
#include "config/resolve.h"
#include "device/open/open.h"
#include "evaluation/task_score.h"
#include "inference/generate.h"

namespace strata::config {
namespace {

// Key names for messages of models and programs.
program::Words words() {
  program::Words words;
  words.tensor = "parallel.tensor";
  words.context = "parallel.context";
  words.context_kind = "parallel.context_kind";
  words.sequence = "parallel.sequence";
  words.expert = "parallel.expert";
  words.expert_tensor = "parallel.expert_tensor";
  words.sequence_length = "training.sequence_length";
  words.micro_batch = "training.micro_batch_size";
  words.router = "moe.router";
  words.pool_layers = "moe.pool_layers";
  words.capacity_factor = "moe.capacity_factor";
  words.capacity_over = "moe.capacity_over";
  words.min_capacity = "moe.min_capacity";
  words.prompts = "eval.sample_prompts";
  words.memory_budget = "memory.budget";
  words.recompute = "memory.recompute";
  words.overlap_chunks = "parallel.overlap_chunks";
  words.recipe = "precision.recipe";
  words.gather = "precision.gather";
  return words;
}

// The training programs of the other sizes that steps may have. Their micro-batches hold the same tokens.
void add_ramp_requests(const RunConfig& config, const models::ModelConfig& model,
                       const parallel::PartCosts& costs, int32_t place,
                       std::vector<program::Request>& requests) {
  for (const StepSize& size : step_sizes(config)) {
    const int64_t pieces = config.training.sequence_length / size.length;
    program::Request request = requests[kTrainProgram];
    request.sequences *= pieces;
    request.sequence_length /= pieces;
    request.micro_batches = micro_batches_of_part(config, size.sequences);
    const bool is_new = std::none_of(requests.begin(), requests.end(), [&](const program::Request& other) {
      return other.kind == program::Kind::kTrain && other.sequences == request.sequences &&
             other.micro_batches == request.micro_batches;
    });
    if (!is_new) continue;
    request.pipeline = pipeline_of(config, model, costs, place, size.sequences);
    requests.push_back(std::move(request));
  }
}

bool splits_backward(const std::shared_ptr<const program::Pipeline>& pipeline) {
  return pipeline != nullptr && pipeline->splits_backward();
}

}  // namespace

DType activation_dtype(const RunConfig& config) {
  return computes_in_codes(config) ? DType::kBF16 : config.precision.compute.value_or(DType::kF32);
}

bool computes_in_codes(const RunConfig& config) {
  return is_code(config.precision.compute.value_or(DType::kF32));
}

std::optional<float> fixed_loss_scale(const RunConfig& config) {
  if (config.precision.loss_scale.is_word()) return std::nullopt;
  return static_cast<float>(*config.precision.loss_scale);
}

std::shared_ptr<device::Device> make_device(const RunConfig& config) {
  return device::open(config.debug.reference_kernels ? device::Kind::kReference
                                                     : config.device.kind.value_or(device::Kind::kCpu),
                      0, static_cast<int>(config.device.threads.value_or(0)));
}

device::Target target_of(const RunConfig& config, const DescribedMachine& described) {
  if (!described) return make_device(config)->target();
  if (config.device.kind == device::Kind::kCuda) return device::gpu_target_for(described->device);
  return device::target_for(described->device);
}

SharedByPlaces::SharedByPlaces(const RunConfig& config, const models::ModelConfig& model)
    : rules(optimizer_rules(config, model)) {
  if (config.parallel.pipeline > 1) costs = costs_of_parts(model, config.training.sequence_length);
}

program::Compiled compile_run(const RunConfig& config, const models::ModelConfig& model,
                              const SharedByPlaces& shared, const std::vector<TaskSet>& tasks, int32_t place,
                              int64_t host_ranks, const DescribedMachine& described) {
  const data::RowShape shape = row_shape(config, model);
  // Rows whose tokens see later ones must not see the padding after a text.
  const bool documents =
      config.data.pack != data::Pack::kStream || model.architecture != models::Architecture::kDecoder;
  const int64_t context =
      std::min(model.max_sequence_length(),
               std::max<int64_t>(config.training.sequence_length, inference::kPrefillChunk));
  const int64_t full = config.training.global_batch_size;
  int64_t longest = 0, most = 0;  // task requests
  for (const TaskSet& set : tasks) {
    longest = std::max(longest, set.requests.longest);
    most = std::max(most, static_cast<int64_t>(set.requests.requests.size()));
  }
  // In an encoder-decoder, decoder rows have the length of their longest target, which no key sets: they are
  // padded to a length that ranks can share.
  const graph::Mesh mesh = mesh_of(config);
  const int64_t pieces = (mesh.size(graph::Axis::kContext) > 1 ? 2 * mesh.size(graph::Axis::kContext) : 1) *
                         (config.parallel.sequence ? mesh.size(graph::Axis::kTensor) : 1);
  const int64_t tokens =
      shape.encoder_length > 0 ? (shape.tokens + pieces - 1) / pieces * pieces : shape.tokens;
  auto requests_for = [&](int64_t micro_batch) {
    std::vector<program::Request> requests{{.kind = program::Kind::kTrain,
                                            .sequences = micro_batch,
                                            .sequence_length = tokens,
                                            .encoder_length = shape.encoder_length,
                                            .document_mask = documents,
                                            .micro_batches = micro_batches_of_part(config, full),
                                            .target_share = shape.target_share,
                                            .idle_rows = tokens - shape.tokens},
                                           {.kind = program::Kind::kEvaluate,
                                            .sequences = micro_batch,
                                            .sequence_length = tokens,
                                            .encoder_length = shape.encoder_length,
                                            .document_mask = documents,
                                            .target_share = shape.target_share,
                                            .idle_rows = tokens - shape.tokens}};
    const bool generates = model.architecture == models::Architecture::kDecoder &&
                           config.parallel.pipeline <= 1 && reads_token_by_token(model);
    if (generates || writes_samples(config, model)) {
      for (auto& request : inference::generation_requests(inference::kPrefillChunk, 1, shape.encoder_length))
        requests.push_back(request);
    }
    if (longest > 0)
      requests.push_back(
          evaluation::task_program(evaluation::task_row_length(longest, model.max_positions), most));
    add_ramp_requests(config, model, shared.costs, place, requests);
    return requests;
  };
  program::CompileOptions options;
  options.model = model;
  options.activations = activation_dtype(config);
  options.precision = precision_of(config, model);
  options.rule_of = shared.rules;
  options.memory_budget = (*config.memory.budget).count;
  options.recompute = config.memory.recompute.value;
  options.mesh = mesh_of(config);
  options.pipeline = pipeline_of(config, model, shared.costs, place, full);
  const std::vector<program::Request> requests = requests_for(*config.training.micro_batch_size);
  const bool some_split = std::any_of(requests.begin(), requests.end(), [](const program::Request& request) {
    return splits_backward(request.pipeline);
  });
  if (splits_backward(options.pipeline) || some_split) options.backward = program::Backward::kSplit;
  options.sequence_parallel = config.parallel.sequence;
  options.context_kind = config.parallel.context_kind;
  options.indexer = config.model.indexer.value_or(layers::Settings::Indexer::kSparse);
  options.experts = expert_layout(config, host_ranks);
  options.gathers_narrow = config.precision.gather != "fp32" && options.activations == DType::kBF16;
  options.zero = static_cast<int>(config.parallel.zero.value_or(0));
  options.reshard_after_forward = config.parallel.reshard_after_forward.value_or(true);
  options.prefetch = config.parallel.prefetch.value_or(config.parallel.progress == Progress::kThread ? 1 : 0);
  options.overlap_chunks = config.parallel.overlap_chunks;
  options.reduce_dtype = config.parallel.reduce_dtype;
  options.score_limit = score_limit(config);
  options.cache_capacity = inference::cache_capacity_for(context, inference::kPrefillChunk);
  options.target = target_of(config, described);
  options.words = words();
  return program::compile_any(requests, options);
}

size_t task_program(const program::ProgramSet& set) {
  const auto scores = [](const program::Program& program) { return program.request.per_token_loss; };
  const auto found = std::find_if(set.programs.begin(), set.programs.end(), scores);
  STRATA_CHECK(found != set.programs.end(), "there is no program for tasks");
  return static_cast<size_t>(found - set.programs.begin());
}

RunConfig config_of_sets(const std::vector<std::string>& sets) {
  RunConfig config = read_run_config({}, sets);
  // Model and data come from other arguments here, so only errors in keys that were set count.
  std::vector<Issue> issues = validate(config);
  std::erase_if(issues, [&](const Issue& issue) {
    const bool unread = std::any_of(config.reading_issues.begin(), config.reading_issues.end(),
                                    [&](const Issue& each) { return each.key == issue.key; });
    return !unread && !config.was_set(issue.key);
  });
  if (!issues.empty()) throw_issues(issues);
  return config;
}

inference::ComputeOptions compute_options(const RunConfig& config) {
  inference::ComputeOptions options;
  if (computes_in_codes(config)) {
    throw ConfigError("[precision.compute] found {}, expected \"bf16\" or \"fp32\": recipes are for training",
                      spelled(*config.precision.compute));
  }
  if (!config.precision.compute.is_word()) options.dtype = activation_dtype(config);
  if (!config.device.threads.is_word()) options.threads = static_cast<int>(*config.device.threads);
  options.device = config.debug.reference_kernels ? device::Kind::kReference : kind_of(config, 1);
  if (options.dtype == DType::kF16 && options.device == device::Kind::kCuda) {
    throw ConfigError(
        "[precision.compute] found fp16 on a GPU: not yet in this version; take \"bf16\", or "
        "device.kind = \"cpu\"");
  }
  return options;
}

}  // namespace strata::config
