// Published training runs as typed rows: data/planning/published_runs.csv, and tables with the same columns.
//
// An empty cell is a missing value. A cell with an invalid value (text, another unit, a number out of range)
// is reported with line and column and its value is missing; nothing is guessed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "plan/catalogue.h"

namespace strata::planning {

// Column `fsdp`: zero1, zero2, zero3, or the number of ranks over which weights are sharded.
struct Sharding {
  int stage = 3;
  std::optional<int64_t> degree;  // not published: the whole data axis
  friend bool operator==(const Sharding&, const Sharding&) = default;
};

enum class Recompute { kNone, kSelective, kFull, kUnspecified };

// A cell whose text is not a value of its column; the value is missing.
struct InvalidCell {
  std::string column;
  std::string message;  // "found …, expected …"
};

struct PublishedRun {
  int64_t line = 0;
  std::string id, source, model, gpu, stack, notes;
  // Model. Parameters are counts; the columns contain billions.
  std::optional<double> params_total, params_active;
  std::optional<int64_t> layers, hidden, heads, kv_heads, ffn, vocab, seq_len, global_batch_tokens;
  // Layout.
  std::optional<int64_t> num_gpus, tp, pp, vpp, dp, ep, cp, micro_batch;
  std::optional<Sharding> fsdp;
  std::optional<Recompute> recompute;
  std::optional<Precision> precision;  // of the matmuls; mxfp8 counts as fp8, nvfp4 as fp4
  std::string precision_text, recompute_text;
  // Results as published.
  std::optional<double> tokens_per_s, tokens_per_s_per_gpu;
  std::optional<double> tflops_per_gpu;  // 1e12 FLOP/s
  std::optional<double> mfu;             // a fraction, in the publication's convention
  std::optional<double> step_time_s;
  std::optional<double> memory_gb;  // 1e9 bytes, the fullest device
  std::vector<std::string> flags;   // of the notes: "hfu" for "FLAG:hfu"
  // Descriptions of values in the row that contradict each other.
  std::vector<std::string> conflicts;
  std::vector<InvalidCell> invalid;
};

struct RunProblem {
  int64_t line = 0;
  int64_t column = 0;
  std::string column_name;
  std::string message;  // "found …, expected …"
};
std::string to_string(const RunProblem& problem);  // "12:34 mfu: found …"

struct RunTable {
  std::vector<PublishedRun> runs;
  std::vector<RunProblem> problems;
};

std::span<const std::string_view> run_columns();

// DataError for a table that is not CSV, or a header with an unknown, duplicate or missing column (id, gpu
// and stack are required; all values of another absent column are missing). Lists the problems of cells.
RunTable parse_runs(std::string_view text, const std::string& name);
// A file whose cells must all be valid: DataError with the first 20 problems.
std::vector<PublishedRun> read_runs(const Path& file);

// The columns among `columns` for which the row has no value.
std::vector<std::string_view> missing_columns(const PublishedRun& run,
                                              std::span<const std::string_view> columns);
// The columns required to price a row.
std::span<const std::string_view> priced_columns();
// Whether pricing may read a column: neither a result of the run, nor id, source or notes.
bool is_input(std::string_view column);

// Seconds per step, from step_time_s, else from tokens/s and the batch; nullopt if neither was published.
std::optional<double> published_step_seconds(const PublishedRun& run);

}  // namespace strata::planning
