// Resolves the parts of a configuration: the model, the tokenizer, the tokens, the programs. Choices made on
// the way are returned, so that they are stored with the run (plan.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/choice.h"
#include "config/run_config.h"
#include "data/samples/sample_source.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokens/token_corpus.h"
#include "device/device.h"
#include "evaluation/task_requests.h"
#include "hardware/cluster_spec.h"
#include "inference/model_runtime.h"
#include "models/model.h"
#include "parallel/stage_layout.h"
#include "program/program.h"

namespace strata::config {

// Called between steps of long work; throws Interrupted if the run is to stop.
using StopCheck = std::function<void()>;

// The model described by [model]. Throws ConfigError for unknown presets and families, DataError for an
// invalid config.json.
models::ModelConfig resolve_model(const RunConfig& config);

// The folder that model.from names, in any form that --model accepts: a directory, a run, RUN@best, …/latest.
Path model_folder(const RunConfig& config);

// A hook of validate(): reports impossible sizes at the keys that set them.
void check_model(const RunConfig& config, std::vector<Issue>& issues);

// A run's tokenizer; none if all data are token files and no tokenizer is named.
struct RunTokenizer {
  std::optional<data::Tokenizer> tokenizer;
  bool trained = true;  // false: not yet; only the special tokens are known
  std::vector<Choice> choices = {};
};
// Loads the tokenizer, or trains it on the run's text and saves it in FOLDER/data. `stored`: the tokenizer of
// the run's checkpoint, which a resumed run keeps unless tokenizer.path is set; empty: none.
RunTokenizer resolve_tokenizer(
    const RunConfig& config, const models::ModelConfig& model, FileSystem& files, const Path& stored = {},
    const StopCheck& check = [] {});
// Like resolve_tokenizer(), but trains and writes nothing. Returns nothing if the data that determine the
// tokenizer do not exist.
RunTokenizer known_tokenizer(const RunConfig& config, const models::ModelConfig& model, const Path& stored);

// Held-out data, with the name under which its loss is reported: "valid", or an eval.set's.
struct HeldOut {
  std::string name;
  data::TokenCorpus corpus;
  int64_t max_tokens = 0;      // 0: all
  double bytes_per_token = 0;  // of the tokenized text; 0: unknown
};

// An eval.set with a task.
struct TaskSet {
  std::string name;
  evaluation::Task task;
  evaluation::TaskRequests requests;
};

struct RunData {
  std::vector<data::SampleSourceSpec> sources;
  std::vector<HeldOut> held_out;
  std::vector<TaskSet> tasks;
  int64_t train_tokens = 0;
  std::vector<Choice> choices;
};
// Resolves tasks only, without sources and held-out text.
std::vector<TaskSet> resolve_tasks(const RunConfig& config, const models::ModelConfig& model,
                                   const data::Tokenizer* tokenizer);
RunData resolve_data(
    const RunConfig& config, const models::ModelConfig& model, const data::Tokenizer* tokenizer,
    FileSystem& files, const StopCheck& check = [] {});
// Identifies the training tokens by their sources, number and a sample of their content.
std::string data_fingerprint(const RunData& data);
// Throws ConfigError if data.objective or data.fim_rate need tokens that the tokenizer lacks. `origin`: start
// of the order, from which data.phase counts steps of the current sizes.
data::SampleOptions sample_options(const RunConfig& config, const models::ModelConfig& model,
                                   const data::Tokenizer* tokenizer, data::DataOrigin origin = {});

// The run's device, once its threads are known.
std::shared_ptr<device::Device> make_device(const RunConfig& config);
// What programs are compiled for: that device, or one of a machine that is only described.
using DescribedMachine = std::optional<hardware::Machine>;
device::Target target_of(const RunConfig& config, const DescribedMachine& described);

// The programs of a run, in this order: those for generation if it generates, one for tasks if it has any, and
// those of steps with other sizes than the full ones (ramp.h).
enum RunProgram : size_t { kTrainProgram = 0, kEvalProgram = 1, kPrefillProgram = 2, kDecodeProgram = 3 };
size_t task_program(const program::ProgramSet& set);
// Shared by the programs of all places on the pipeline axis, and made once for them: a large mixture has 50,000
// tensors. It depends on the model, training.sequence_length and the keys of the optimizer.
struct SharedByPlaces {
  SharedByPlaces(const RunConfig& config, const models::ModelConfig& model);
  optim::RuleOf rules;
  parallel::PartCosts costs;  // empty without a pipeline
};
// For the rank at `place` on the pipeline axis; in its smallest form if it exceeds memory.budget.
// `host_ranks`: ranks on this host.
program::Compiled compile_run(const RunConfig& config, const models::ModelConfig& model,
                              const SharedByPlaces& shared, const std::vector<TaskSet>& tasks = {},
                              int32_t place = 0, int64_t host_ranks = 1,
                              const DescribedMachine& described = {});

// For every tensor of the model's files: weight decay if it has two or more dimensions, none on norms and
// biases; the first matching group overrides it; then µP's factors apply. Muon takes matrices within blocks,
// AdamW the rest.
optim::RuleOf optimizer_rules(const RunConfig& config, const models::ModelConfig& model);

DType activation_dtype(const RunConfig& config);
// Whether matmuls read codes of 8 or 4 bits (precision.compute).
bool computes_in_codes(const RunConfig& config);
// Of a run in fp16 whose loss scale does not adapt.
std::optional<float> fixed_loss_scale(const RunConfig& config);

// Keys that --set may change in verbs with --model; other keys have their defaults.
RunConfig config_of_sets(const std::vector<std::string>& sets);

// Compute options for verbs that take no configuration except --set.
inference::ComputeOptions compute_options(const RunConfig& config);

}  // namespace strata::config
