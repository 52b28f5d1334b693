// Published training runs as typed rows: data/planning/published_runs.csv, and tables with the same columns.
//
// A cell that is empty is a missing value. A cell that cannot be what its column holds (text, another unit, a
// number out of range) is a fault with line and column, and its value is missing; nothing is guessed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "plan/catalogue.h"

namespace strata::plan {

// Column `fsdp`: zero1, zero2, zero3, or the number of ranks that share the weights.
struct Sharding {
  int stage = 3;
  std::optional<int64_t> degree;  // not published: the whole data axis
  friend bool operator==(const Sharding&, const Sharding&) = default;
};

enum class Recompute { kNone, kSelective, kFull, kUnspecified };

struct PublishedRun {
  int64_t line = 0;
  std::string id, source, model, gpu, stack, notes;
  // Model. Parameters are counts: the columns hold billions.
  std::optional<double> params_total, params_active;
  std::optional<int64_t> layers, hidden, heads, kv_heads, ffn, vocab, seq_len, global_batch_tokens;
  // Layout.
  std::optional<int64_t> num_gpus, tp, pp, vpp, dp, ep, cp, micro_batch;
  std::optional<Sharding> fsdp;
  std::optional<Recompute> recompute;
  std::optional<Dtype> precision;  // of the matmuls; mxfp8 counts as fp8, nvfp4 as fp4
  std::string precision_text, recompute_text;
  // Results as published.
  std::optional<double> tokens_per_s, tokens_per_s_per_gpu;
  std::optional<double> tflops_per_gpu;  // 1e12 FLOP/s
  std::optional<double> mfu;             // a fraction, in the publication's own convention
  std::optional<double> step_time_s;
  std::optional<double> memory_gb;  // 1e9 bytes, the fullest device
  std::vector<std::string> flags;   // of the notes: "hfu" for "FLAG:hfu"
  // Values of the row that contradict each other, in words.
  std::vector<std::string> conflicts;
};

struct RunFault {
  int64_t line = 0;
  int64_t column = 0;
  std::string column_name;
  std::string message;  // "found …, expected …"
};
std::string to_string(const RunFault& fault);  // "12:34 mfu: found …"

struct RunTable {
  std::vector<PublishedRun> runs;
  std::vector<RunFault> faults;
};

std::span<const std::string_view> run_columns();

// DataError for a table that is not CSV, or a header with a column that is unknown, doubled or missing (id,
// gpu and stack are required; other columns that are left out are missing values). Faults of cells are
// listed.
RunTable parse_runs(std::string_view text, const std::string& name);
// A file whose cells must all be right: DataError with the first 20 faults.
std::vector<PublishedRun> read_runs(const Path& file);

// Those of `columns` that the row has no value for.
std::vector<std::string_view> missing_columns(const PublishedRun& run,
                                              std::span<const std::string_view> columns);
// What a price of a row needs at least.
std::span<const std::string_view> priced_columns();

// Seconds of a step, from step_time_s, else from tokens/s and the batch; nothing if neither was published.
std::optional<double> published_step_seconds(const PublishedRun& run);

}  // namespace strata::plan
