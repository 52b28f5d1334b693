#include "plan/published_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/suggest.h"
#include "plan/csv.h"

namespace strata::planning {
namespace {

// Columns by kind, each with its member and range.
struct TextColumn {
  std::string_view name;
  std::string PublishedRun::*member;
  bool required = false;
};
struct CountColumn {
  std::string_view name;
  std::optional<int64_t> PublishedRun::*member;
  int64_t most;
};
struct NumberColumn {
  std::string_view name;
  std::optional<double> PublishedRun::*member;
  double least, most;
  double factor;
  std::string_view expected;
};

constexpr TextColumn kTexts[] = {{"id", &PublishedRun::id, true},       {"source", &PublishedRun::source},
                                 {"model", &PublishedRun::model},       {"gpu", &PublishedRun::gpu, true},
                                 {"stack", &PublishedRun::stack, true}, {"notes", &PublishedRun::notes}};
constexpr CountColumn kCounts[] = {
    {"layers", &PublishedRun::layers, 10'000},
    {"hidden", &PublishedRun::hidden, 1'000'000},
    {"heads", &PublishedRun::heads, 100'000},
    {"kv_heads", &PublishedRun::kv_heads, 100'000},
    {"ffn", &PublishedRun::ffn, 10'000'000},
    {"vocab", &PublishedRun::vocab, 100'000'000},
    {"seq_len", &PublishedRun::seq_len, 1'000'000'000},
    {"global_batch_tokens", &PublishedRun::global_batch_tokens, 1'000'000'000'000},
    {"num_gpus", &PublishedRun::num_gpus, 10'000'000},
    {"tp", &PublishedRun::tp, 100'000},
    {"pp", &PublishedRun::pp, 100'000},
    {"vpp", &PublishedRun::vpp, 100'000},
    {"dp", &PublishedRun::dp, 10'000'000},
    {"ep", &PublishedRun::ep, 100'000},
    {"cp", &PublishedRun::cp, 100'000},
    {"micro_batch", &PublishedRun::micro_batch, 1'000'000},
};
constexpr NumberColumn kNumbers[] = {
    {"params_total_B", &PublishedRun::params_total, 1e-5, 1e5, 1e9, "billions of parameters, such as 70.6"},
    {"params_active_B", &PublishedRun::params_active, 1e-5, 1e5, 1e9, "billions of parameters, such as 37"},
    {"tokens_per_s", &PublishedRun::tokens_per_s, 1e-3, 1e13, 1, "tokens a second above 0"},
    {"tokens_per_s_per_gpu", &PublishedRun::tokens_per_s_per_gpu, 1e-3, 1e9, 1, "tokens a second above 0"},
    {"tflops_per_gpu", &PublishedRun::tflops_per_gpu, 1e-3, 1e5, 1, "TFLOP/s above 0"},
    {"mfu", &PublishedRun::mfu, 1e-4, 2, 1, "a fraction from 0.0001 to 2, not per cent"},
    {"step_time_s", &PublishedRun::step_time_s, 1e-5, 1e5, 1, "seconds above 0 and at most 100000"},
    {"memory_GB", &PublishedRun::memory_gb, 1e-3, 2000, 1, "GB (1e9 bytes) of one device, at most 2000"},
};
constexpr std::string_view kColumns[] = {"id",
                                         "source",
                                         "model",
                                         "params_total_B",
                                         "params_active_B",
                                         "layers",
                                         "hidden",
                                         "heads",
                                         "kv_heads",
                                         "ffn",
                                         "vocab",
                                         "seq_len",
                                         "global_batch_tokens",
                                         "gpu",
                                         "num_gpus",
                                         "stack",
                                         "tp",
                                         "pp",
                                         "vpp",
                                         "dp",
                                         "fsdp",
                                         "ep",
                                         "cp",
                                         "micro_batch",
                                         "recompute",
                                         "precision",
                                         "tokens_per_s",
                                         "tokens_per_s_per_gpu",
                                         "tflops_per_gpu",
                                         "mfu",
                                         "step_time_s",
                                         "memory_GB",
                                         "notes"};
constexpr std::string_view kStacks[] = {
    "nemo",  "megatron-lm", "megatron-bridge", "torchtitan", "nanotron",  "llm-foundry", "maxtext",
    "paxml", "llmq",        "llm.c",           "primus",     "megascale", "other"};
constexpr std::string_view kPriced[] = {"layers",   "hidden", "heads",   "kv_heads",
                                        "ffn",      "vocab",  "seq_len", "global_batch_tokens",
                                        "num_gpus", "tp",     "pp"};

// The end of a message that suggests the nearest of `known`.
template <size_t n>
std::string did_you_mean(std::string_view name, const std::string_view (&known)[n]) {
  const std::vector<std::string> names(std::begin(known), std::end(known));
  const auto nearest = nearest_name(name, names);
  return nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : "";
}

// The number that the entire text represents; no sign, spaces or separators.
template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number value{};
  if (text.empty() || text.front() == '-') return std::nullopt;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A cell for a message: at most 40 bytes, without control characters.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 40)) out.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
  return out + (text.size() > 40 ? "..." : "");
}

std::optional<Precision> precision_of(std::string_view text) {
  static constexpr std::pair<std::string_view, Precision> kStarts[] = {
      {"bf16", Precision::kBf16}, {"fp16", Precision::kFp16}, {"fp8", Precision::kFp8},
      {"mxfp8", Precision::kFp8}, {"nvfp4", Precision::kFp4}, {"mxfp4", Precision::kFp4},
      {"fp4", Precision::kFp4},   {"fp32", Precision::kFp32}, {"tf32", Precision::kTf32}};
  for (const auto& [start, dtype] : kStarts) {
    if (text.starts_with(start) && (text.size() == start.size() || text[start.size()] == ' ')) return dtype;
  }
  return std::nullopt;
}

std::optional<Recompute> recompute_of(std::string_view text) {
  if (text == "none") return Recompute::kNone;
  if (text == "full") return Recompute::kFull;
  if (text.starts_with("selective")) return Recompute::kSelective;
  if (text == "yes") return Recompute::kUnspecified;
  return std::nullopt;
}

std::optional<Sharding> sharding_of(std::string_view text) {
  for (int stage = 1; stage <= 3; ++stage) {
    if (text == fmt::format("zero{}", stage)) return Sharding{.stage = stage, .degree = {}};
  }
  const auto degree = number_of<int64_t>(text);
  if (!degree || *degree < 1 || *degree > 10'000'000) return std::nullopt;
  return Sharding{.stage = 3, .degree = degree};
}

// "FLAG:hfu; …" and further flags.
std::vector<std::string> flags_of(std::string_view notes) {
  std::vector<std::string> out;
  for (size_t at = notes.find("FLAG:"); at != std::string_view::npos; at = notes.find("FLAG:", at + 5)) {
    const size_t begin = at + 5;
    size_t end = begin;
    while (end < notes.size() &&
           (std::isalnum(static_cast<unsigned char>(notes[end])) != 0 || notes[end] == '_'))
      ++end;
    out.emplace_back(notes.substr(begin, end - begin));
  }
  return out;
}

// Speeds and layouts that contradict each other.
std::vector<std::string> conflicts_of(const PublishedRun& run) {
  std::vector<std::string> out;
  const auto differ = [](double a, double b) { return std::abs(a / b - 1) > 0.03; };
  if (run.num_gpus && run.tp && run.pp && run.dp) {
    const int64_t ranks = *run.tp * *run.pp * *run.dp * run.cp.value_or(1);
    if (ranks != *run.num_gpus)
      out.push_back(fmt::format("tp x pp x dp x cp is {}, num_gpus is {}", ranks, *run.num_gpus));
  }
  std::optional<double> per_second = run.tokens_per_s;
  if (run.num_gpus && run.tokens_per_s_per_gpu) {
    const double all = *run.tokens_per_s_per_gpu * static_cast<double>(*run.num_gpus);
    if (per_second && differ(all, *per_second))
      out.push_back(
          fmt::format("tokens_per_s_per_gpu x num_gpus is {:.0f}, tokens_per_s is {:.0f}", all, *per_second));
    if (!per_second) per_second = all;
  }
  if (per_second && run.step_time_s && run.global_batch_tokens) {
    const double batch = *per_second * *run.step_time_s;
    if (differ(batch, static_cast<double>(*run.global_batch_tokens)))
      out.push_back(fmt::format("tokens a second x step_time_s is {:.0f}, global_batch_tokens is {}", batch,
                                *run.global_batch_tokens));
  }
  if (run.params_active && run.params_total && *run.params_active > *run.params_total * 1.001)
    out.emplace_back("params_active_B is above params_total_B");
  return out;
}

class RunReader {
 public:
  RunReader(std::string_view text, const std::string& name) : name_(name), rows_(parse_csv(text, name)) {}

  RunTable read() {
    read_header();
    for (size_t i = 1; i < rows_.size(); ++i) read_row(rows_[i]);
    return std::move(out_);
  }

 private:
  void read_header() {
    if (rows_.empty())
      throw DataError("[{}] found no header, expected the columns {}", name_, fmt::join(kColumns, ","));
    for (const CsvCell& cell : rows_.front()) {
      const bool known = std::find(std::begin(kColumns), std::end(kColumns), cell.text) != std::end(kColumns);
      const bool twice = std::find(header_.begin(), header_.end(), cell.text) != header_.end();
      if (known && !twice) {
        header_.push_back(cell.text);
        continue;
      }
      throw DataError("[{}:{}:{}] found column \"{}\"{}, expected one of {}{}", name_, cell.line, cell.column,
                      shown(cell.text), twice ? " again" : "", fmt::join(kColumns, ","),
                      twice ? "" : did_you_mean(cell.text, kColumns));
    }
    for (const TextColumn& column : kTexts) {
      if (column.required && std::find(header_.begin(), header_.end(), column.name) == header_.end())
        throw DataError("[{}:1] found no column \"{}\", expected id, gpu and stack", name_, column.name);
    }
  }

  void report(PublishedRun& run, const CsvCell& cell, const std::string& column, std::string_view expected) {
    const std::string message = fmt::format("found \"{}\", expected {}", shown(cell.text), expected);
    out_.problems.push_back({cell.line, cell.column, column, message});
    run.invalid.push_back({column, message});
  }

  void read_row(const CsvRow& row) {
    PublishedRun run;
    run.line = row.front().line;
    for (size_t i = 0; i < row.size(); ++i) read_cell(run, row[i], header_[i]);
    run.flags = flags_of(run.notes);
    run.conflicts = conflicts_of(run);
    out_.runs.push_back(std::move(run));
  }

  void read_cell(PublishedRun& run, const CsvCell& cell, const std::string& name) {
    for (const TextColumn& column : kTexts) {
      if (column.name != name) continue;
      if (column.required && cell.text.empty()) report(run, cell, name, "a value");
      run.*column.member = cell.text;
      if (name == "stack" && !cell.text.empty() &&
          std::find(std::begin(kStacks), std::end(kStacks), cell.text) == std::end(kStacks)) {
        report(run, cell, name,
               fmt::format("one of {}{}", fmt::join(kStacks, ", "), did_you_mean(cell.text, kStacks)));
      }
      return;
    }
    if (cell.text.empty()) return;
    for (const CountColumn& column : kCounts) {
      if (column.name != name) continue;
      const auto value = number_of<int64_t>(cell.text);
      if (value && *value >= 1 && *value <= column.most)
        run.*column.member = value;
      else
        report(run, cell, name, fmt::format("a whole number from 1 to {}", column.most));
      return;
    }
    for (const NumberColumn& column : kNumbers) {
      if (column.name != name) continue;
      const auto value = number_of<double>(cell.text);
      if (value && *value >= column.least && *value <= column.most)
        run.*column.member = *value * column.factor;
      else
        report(run, cell, name, column.expected);
      return;
    }
    read_choice(run, cell, name);
  }

  void read_choice(PublishedRun& run, const CsvCell& cell, const std::string& name) {
    if (name == "fsdp") {
      run.fsdp = sharding_of(cell.text);
      if (!run.fsdp) report(run, cell, name, "zero1, zero2, zero3 or a number of ranks");
    } else if (name == "recompute") {
      run.recompute = recompute_of(cell.text);
      run.recompute_text = cell.text;
      if (!run.recompute) report(run, cell, name, "none, selective, full or yes");
    } else {
      run.precision = precision_of(cell.text);
      run.precision_text = cell.text;
      if (!run.precision) report(run, cell, name, "bf16, fp16, fp8, mxfp8, nvfp4, mxfp4, fp32 or tf32");
    }
  }

  const std::string& name_;
  std::vector<CsvRow> rows_;
  std::vector<std::string> header_;
  RunTable out_;
};

bool has_value(const PublishedRun& run, std::string_view name) {
  for (const TextColumn& column : kTexts) {
    if (column.name == name) return !(run.*column.member).empty();
  }
  for (const CountColumn& column : kCounts) {
    if (column.name == name) return (run.*column.member).has_value();
  }
  for (const NumberColumn& column : kNumbers) {
    if (column.name == name) return (run.*column.member).has_value();
  }
  if (name == "fsdp") return run.fsdp.has_value();
  if (name == "recompute") return run.recompute.has_value();
  return name == "precision" && run.precision.has_value();
}

}  // namespace

std::string to_string(const RunProblem& problem) {
  return fmt::format("{}:{} {}: {}", problem.line, problem.column, problem.column_name, problem.message);
}

std::span<const std::string_view> run_columns() {
  return kColumns;
}
bool is_input(std::string_view column) {
  static constexpr std::string_view kOthers[] = {
      "id",  "source",      "notes",    "tokens_per_s", "tokens_per_s_per_gpu", "tflops_per_gpu",
      "mfu", "step_time_s", "memory_GB"};
  return std::find(std::begin(kOthers), std::end(kOthers), column) == std::end(kOthers);
}
std::span<const std::string_view> priced_columns() {
  return kPriced;
}

RunTable parse_runs(std::string_view text, const std::string& name) {
  return RunReader(text, name).read();
}

std::vector<PublishedRun> read_runs(const Path& file) {
  RunTable table = parse_runs(read_file(file), file.string());
  if (table.problems.empty()) return std::move(table.runs);
  std::string message;
  for (size_t i = 0; i < std::min<size_t>(table.problems.size(), 20); ++i)
    message += fmt::format("{}[{}:{}]", i == 0 ? "" : "\n", file.string(), to_string(table.problems[i]));
  throw DataError(message);
}

std::vector<std::string_view> missing_columns(const PublishedRun& run,
                                              std::span<const std::string_view> columns) {
  std::vector<std::string_view> out;
  for (const std::string_view column : columns) {
    if (!has_value(run, column)) out.push_back(column);
  }
  return out;
}

std::optional<double> published_step_seconds(const PublishedRun& run) {
  if (run.step_time_s) return run.step_time_s;
  if (!run.global_batch_tokens) return std::nullopt;
  const auto batch = static_cast<double>(*run.global_batch_tokens);
  if (run.tokens_per_s) return batch / *run.tokens_per_s;
  if (run.tokens_per_s_per_gpu && run.num_gpus)
    return batch / (*run.tokens_per_s_per_gpu * static_cast<double>(*run.num_gpus));
  return std::nullopt;
}

}  // namespace strata::planning
