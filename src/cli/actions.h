// Options and actions of verbs that need a model: plain structs, and one function per verb, defined in the
// verb's file. Tests call them as the command line does.
//
// Functions return an exit code (0; 75 stopped by the time limit and 130/143 interrupted, both after a clean
// save) and throw Error for everything else. Results go to standard output, as one JSON object with `json`;
// all else goes to standard error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "interop/add_indexer.h"
#include "interop/upcycle.h"

namespace strata::cli {

enum class ResumeMode { kAuto, kNever, kFrom };

// strata train FILE [--set KEY=VALUE]… [--resume auto|never|DIR] [--accept-changes] [--dry-run] [--ranks N]
struct TrainOptions {
  std::vector<std::string> inputs = {};  // one .toml file, or texts to train on without one
  std::vector<std::string> sets = {};
  ResumeMode resume = ResumeMode::kAuto;
  Path resume_from = {};  // kFrom
  bool accept_changes = false;
  bool dry_run = false;
  int64_t ranks = 1;  // threads of this process
  bool json = false;
};
int run_training(const TrainOptions& options);

// strata launch [-n N] [--hosts FILE] [--spares N] [--max-restarts N] RUN.toml [--set KEY=VALUE]…
// [--accept-changes]
struct LaunchCommand {
  std::vector<std::string> inputs = {};  // as of TrainOptions
  std::vector<std::string> sets = {};
  std::optional<int64_t> ranks = {};  // those of the hosts, or of the layout
  std::string hosts = {};             // a file; empty: this host, or the Slurm job's
  int64_t spares = 0;
  std::optional<int64_t> max_restarts = {};
  bool accept_changes = false;
};
int run_launch(const LaunchCommand& command);

// strata simulate RUN.toml [--cluster NAME|FILE] [--ranks N] [--trace FILE], or --runs FILE.csv
struct SimulateOptions {
  std::vector<std::string> inputs = {};     // as of TrainOptions; empty: runs
  std::string runs = {};                    // a table
  std::vector<std::string> sets = {};       // of the run, or of the cluster and its chip
  std::string cluster = {};                 // a name or a file; empty: this machine
  std::optional<int64_t> ranks = {};        // absent: as many as [parallel] makes
  std::string trace = {};                   // a file
  std::string html = {};                    // a file
  std::vector<std::string> calibrate = {};  // folders of runs
  std::string output = {};                  // a file for their rates
  bool force = false;                       // replace it
  bool json = false;
};
int run_simulate(const SimulateOptions& options);

// strata stop|save|set RUN …
struct ControlOptions {
  std::string run = {};                       // its folder
  std::vector<std::string> assignments = {};  // KEY=VALUE, of set
  bool no_wait = false;
  bool json = false;
};
int run_stop(const ControlOptions& options);
int run_save(const ControlOptions& options);
int run_set(const ControlOptions& options);

// strata branch RUN@STEP NEW [--set KEY=VALUE]…
struct BranchOptions {
  std::string source = {};
  Path target = {};
  std::vector<std::string> sets = {};
  bool json = false;
};
int run_branch(const BranchOptions& options);

// strata replay RUN --step N
struct ReplayOptions {
  std::string run = {};
  int64_t step = 0;
  std::optional<int64_t> ranks = {};  // as the run had
  bool json = false;
};
int run_replay(const ReplayOptions& options);

// strata eval --model DIR --tokens FILE|--text FILE --sequence-length N, or --task NAME --jsonl FILE, or
// --experts [--tokens FILE]… [--text FILE]…
struct EvalOptions {
  std::string model = {};                           // as checkpoint::resolve_model takes it
  std::vector<std::string> tokens = {}, text = {};  // one of both; with `experts` any number, or none
  bool experts = false;                             // report where tokens go, instead of only the loss
  int64_t max_tokens = 65536;                       // of each source of `experts`; 0: all
  std::string task = {}, jsonl = {};                // a name of task_format.h and its questions
  int64_t limit = 0;                                // of the questions; 0: all
  std::string samples = {};                         // output file for each question's scores; empty: none
  bool force = false;                               // replace that file
  int64_t sequence_length = 0;
  std::optional<int64_t> stride = {};  // unset: sequence_length
  std::vector<std::string> sets = {};
  bool json = false;
};
int run_evaluation(const EvalOptions& options);

struct GenerateOptions {
  std::string model = {};
  std::optional<std::string> prompt = {};
  std::string prompts = {};  // a .jsonl file with one "prompt" per line, instead of prompt
  int64_t max_tokens = 100;
  double temperature = 1.0;  // 0: greedy
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;
  std::vector<std::string> stop = {};
  int64_t batch = 8;  // texts generated in parallel
  uint64_t seed = 1234;
  std::vector<std::string> sets = {};
  bool json = false;
};
int run_generation(const GenerateOptions& options);

struct ExplainOptions {
  std::vector<std::string> inputs = {};  // as of TrainOptions
  std::vector<std::string> sets = {};
  bool schedule = false;  // only the order of a step
  bool program = false;   // the instructions too
  int64_t ranks = 1;
  std::string rank = {};     // a rank, or "all" for each stage of a pipeline; empty: the first
  std::string svg = {};      // a file for the picture of the schedule
  std::string cluster = {};  // a name or a file; empty: this machine
  bool json = false;
};
int run_explain(const ExplainOptions& options);

// strata check causality RUN.toml|--model DIR [--set KEY=VALUE]… [--ranks N] [--positions N]
struct CausalityCheckOptions {
  std::vector<std::string> inputs = {};  // as of TrainOptions; empty: model
  std::string model = {};                // as checkpoint::resolve_model takes it
  std::vector<std::string> sets = {};
  int64_t ranks = 1;       // threads of this process
  int64_t positions = 64;  // of a sequence
  bool json = false;
};
int run_causality_check(const CausalityCheckOptions& options);

// strata check drift --model DIR [--text FILE] [--length N] [--texts N] [--set KEY=VALUE]…
struct DriftCheckOptions {
  std::string model = {};  // as checkpoint::resolve_model takes it
  std::string text = {};   // a file; empty: random tokens
  int64_t length = 128;    // tokens of a text
  int64_t texts = 4;
  std::vector<std::string> sets = {};  // precision.compute: only this one
  bool json = false;
};
int run_drift_check(const DriftCheckOptions& options);

// strata check precision RUN.toml|--model DIR [--set KEY=VALUE]…
struct PrecisionCheckOptions {
  std::vector<std::string> inputs = {};  // as of TrainOptions; empty: model
  std::string model = {};                // as checkpoint::resolve_model takes it
  std::vector<std::string> sets = {};
  bool json = false;
};
int run_precision_check(const PrecisionCheckOptions& options);

struct PresetsOptions {
  std::string name = {};  // empty: all
  bool json = false;
};
int run_presets(const PresetsOptions& options);

// strata bench [NAME…] [--set KEY=VALUE]…
struct BenchOptions {
  std::vector<std::string> names = {};  // empty: all
  std::vector<std::string> sets = {};   // of a run's configuration, for the benchmarks that run a model
  bool list = false;
  bool json = false;
};
int run_bench(const BenchOptions& options);

// strata checkpoint export SOURCE TARGET: writes a checkpoint, run or other directory in a format that other
// programs read: a Hugging Face directory, converted tensor part by tensor part, or a GGUF file, with one
// tensor at a time in memory. strata checkpoint import DIRECTORY RUN_FOLDER: makes step 0 of a new run from a
// Hugging Face directory or a Megatron-LM checkpoint.
struct ConvertOptions {
  std::string source = {};  // as checkpoint::resolve_model takes it
  Path target = {};
  std::string dtype = "bf16";           // bf16, fp16, fp32
  std::string max_shard_size = "5 GB";  // of a weight file; a larger tensor gets a separate one
  std::string format = {};              // hf, gguf, megatron; empty: hf, or what an import finds
  bool skip_values = false;             // do not look for NaN and infinities before writing
  bool force = false;                   // overwrite `target`
  bool json = false;
};
struct UpcycleCommand : ConvertOptions {
  interop::UpcycleOptions how = {};
  int64_t per_token = 0;  // 0: two copies
};
struct AddIndexerCommand : ConvertOptions {
  interop::IndexerOptions how = {};
};
int run_export(const ConvertOptions& options);
int run_import(const ConvertOptions& options);
int run_upcycle(const UpcycleCommand& command);
int run_add_indexer(const AddIndexerCommand& command);

}  // namespace strata::cli
