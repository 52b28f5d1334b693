// What a configuration names: the model, the tokenizer, the tokens, the programs. What had to be chosen for
// it comes back as choices, so that it is stored with the run (plan.h).
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
#include "inference/model_runtime.h"
#include "models/model.h"
#include "program/program.h"

namespace strata::config {

// Asked between pieces of long work; throws Interrupted where the run is to stop.
using StopCheck = std::function<void()>;

// The model that [model] means. Throws ConfigError for unknown presets and families, DataError for a bad
// config.json.
models::ModelConfig resolve_model(const RunConfig& config);

// The folder that model.from names, in any of the ways of --model: a directory, a run, RUN@best, …/latest.
Path model_folder(const RunConfig& config);

// Impossible sizes, as faults of the keys that set them: a hook of validate().
void check_model(const RunConfig& config, std::vector<Fault>& faults);

// The tokenizer of a run: none where all data are token files and none is named.
struct RunTokenizer {
  std::optional<data::Tokenizer> tokenizer;
  bool trained = true;  // false: it is yet to be, and only the special tokens are known
  std::vector<Choice> choices = {};
};
// Loaded, or trained on the text of the run and kept in FOLDER/data. `stored` is the tokenizer of the run's
// checkpoint, which a run that goes on keeps unless tokenizer.path names one; empty: none.
RunTokenizer resolve_tokenizer(
    const RunConfig& config, const models::ModelConfig& model, FileSystem& files, const Path& stored = {},
    const StopCheck& check = [] {});
// The same without training or writing anything. Nothing where the data that decide about it are not there.
RunTokenizer known_tokenizer(const RunConfig& config, const models::ModelConfig& model, const Path& stored);

// What is held out, with the name under which its loss is reported: "valid", or an eval.set's.
struct HeldOut {
  std::string name;
  data::TokenCorpus corpus;
  int64_t max_tokens = 0;      // 0: all
  double bytes_per_token = 0;  // of the text behind the tokens; 0: not known
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
// Tasks alone, without sources and held-out text.
std::vector<TaskSet> resolve_tasks(const RunConfig& config, const models::ModelConfig& model,
                                   const data::Tokenizer* tokenizer);
RunData resolve_data(
    const RunConfig& config, const models::ModelConfig& model, const data::Tokenizer* tokenizer,
    FileSystem& files, const StopCheck& check = [] {});
// Names the training tokens by their sources, number and a sample of their content.
std::string data_fingerprint(const RunData& data);
// ConfigError where data.objective or data.fim_rate ask for tokens that the tokenizer lacks. `origin`: where
// the order begins, from which on data.phase counts steps of the batch of now.
data::SampleOptions sample_options(const RunConfig& config, const models::ModelConfig& model,
                                   const data::Tokenizer* tokenizer, data::DataOrigin origin = {});

// What the run computes on, once its threads are known.
std::shared_ptr<device::Device> make_device(const RunConfig& config);

// The programs of a run, in this order: those that write texts where it has them, and one for tasks where
// there are any.
enum RunProgram : size_t { kTrainProgram = 0, kEvalProgram = 1, kPrefillProgram = 2, kDecodeProgram = 3 };
size_t task_program(const program::ProgramSet& set);
// For the rank at `place` on the pipeline axis; in its smallest form where memory.budget does not hold it.
// `host_ranks`: ranks of this host.
program::Compiled compile_run(const RunConfig& config, const models::ModelConfig& model,
                              const std::vector<TaskSet>& tasks = {}, int32_t place = 0,
                              int64_t host_ranks = 1);

// For every tensor of the model's files: weight decay where it has two or more dimensions, none on norms and
// biases; of the groups the first match counts; then µP's factors. Muon takes the matrices within blocks,
// AdamW the rest.
optim::RuleOf optimizer_rules(const RunConfig& config, const models::ModelConfig& model);

DType activation_dtype(const RunConfig& config);

// Keys that --set may change for the verbs that take --model; the rest of the configuration has its defaults.
RunConfig config_of_sets(const std::vector<std::string>& sets);

// How a model is computed with where its verb takes no configuration but --set.
inference::ComputeOptions compute_options(const RunConfig& config);

}  // namespace strata::config
