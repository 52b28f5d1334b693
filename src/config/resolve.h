// From a configuration to everything that a run stands on: the model, the tokenizer, the tokens, the
// machine's part. Each function resolves its "auto"s in the configuration, so that what was chosen is stored
// with the run.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/layout.h"
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

// The tokenizer of the run: loaded, or trained on the text of the run and kept in FOLDER/data; nothing where
// all data are token files and none is named.
// `stored` is the tokenizer of the run's checkpoint, which a run that goes on keeps unless tokenizer.path
// names one; empty: none.
std::optional<data::Tokenizer> resolve_tokenizer(
    RunConfig& config, const models::ModelConfig& model, FileSystem& files, const Path& stored = {},
    const StopCheck& check = [] {});

// The same without training or writing anything. `trained`: false where it is one that the run is yet to
// train, of which only the special tokens are known. Nothing where the data that decide about it are not
// there.
struct KnownTokenizer {
  std::optional<data::Tokenizer> tokenizer;
  bool trained = true;
};
KnownTokenizer known_tokenizer(RunConfig& config, const models::ModelConfig& model, const Path& stored);

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
};
// Tasks alone, without sources and held-out text.
std::vector<TaskSet> resolve_tasks(const RunConfig& config, const models::ModelConfig& model,
                                   const data::Tokenizer* tokenizer);
RunData resolve_data(
    RunConfig& config, const models::ModelConfig& model, const data::Tokenizer* tokenizer, FileSystem& files,
    const StopCheck& check = [] {});
// Names the training tokens by their sources, number and a sample of their content.
std::string data_fingerprint(const RunData& data);
data::Pack packing(const RunConfig& config);
// ConfigError where data.objective or data.fim_rate ask for tokens that the tokenizer lacks. `origin`: where
// the order begins, from which on data.phase counts steps of the batch of now.
data::SampleOptions sample_options(const RunConfig& config, const models::ModelConfig& model,
                                   const data::Tokenizer* tokenizer, data::DataOrigin origin = {});

// A rank's share of its host's processors and memory, where they were left to the program. `least` gives the
// least of all ranks, so that all of them run the same program.
void share_machine(RunConfig& config, const RankPlace& place, const std::function<double(double)>& least);
// Threads, precision, memory budget, micro-batch. It needs no data; what follows asks it for the threads.
void resolve_machine(RunConfig& config, const RankPlace& place = {});

// What the run computes on. Call it after resolve_machine.
std::shared_ptr<device::Device> make_device(const RunConfig& config);

// The programs of a run, in this order: those that write texts where it has them, and one for tasks where
// there are any.
enum RunProgram : size_t { kTrainProgram = 0, kEvalProgram = 1, kPrefillProgram = 2, kDecodeProgram = 3 };
size_t task_program(const program::ProgramSet& set);
// Of the rank at `place` on the pipeline axis.
std::shared_ptr<const program::ProgramSet> compile_run(RunConfig& config, const models::ModelConfig& model,
                                                       const std::vector<TaskSet>& tasks = {},
                                                       int32_t place = 0);

// What a configuration comes to: all that a run stands on, with every "auto" of the configuration replaced by
// what was chosen. Training, explaining and benchmarks start from here, so that what is explained is what
// runs.
struct ResolvedRun {
  RunConfig config;
  models::ModelConfig model;  // with the ids of the run's tokenizer
  std::optional<data::Tokenizer> tokenizer;
  RunData data;
  bool micro_batch_open = false;  // training.micro_batch_size was "auto": compile() may lower it
  bool zero_open = false;         // parallel.zero was "auto": compile() may raise it
};

struct ResolveOptions {
  FileSystem& files;
  Path stored_tokenizer = {};  // of the run's newest checkpoint
  StopCheck check = [] {};
  RankPlace place = {};
  // kFromWhatIsThere: nothing is written, no tokenizer is trained and no text tokenized; sources and held-out
  // text stay empty. What a tokenizer that is yet to be trained decides is known before: the ids of its
  // special tokens. Only how long a task's questions are is not.
  enum class Data { kPrepared, kFromWhatIsThere } data = Data::kPrepared;
};

// `config`: as read and validated. Sets the calling thread's number of compute threads.
ResolvedRun resolve(RunConfig config, const ResolveOptions& options);

// The programs of a run; memory.recompute and a micro-batch size that was "auto" become what was chosen.
// DoesNotFit where memory.budget holds no choice.
// Of a pipeline's rank at `place`; what is chosen fits all of its ranks.
std::shared_ptr<const program::ProgramSet> compile(ResolvedRun& run, int32_t place = 0);

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
