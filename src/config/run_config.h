// Reading, checking, showing and comparing configurations of runs.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"

namespace strata::config {

// Reads `path` (empty: no file, all defaults), then `sets` and `arguments`, both KEY=VALUE; arguments are the
// expansion of positional command-line arguments (`strata train corpus.txt` → data.train=["corpus.txt"]).
// Afterwards data.build is replaced by data.source and tokenizer.path. Throws ConfigError for a missing file
// and TOML syntax errors; all other errors are collected in reading_issues for validate().
RunConfig read_run_config(const Path& path, std::span<const std::string> sets = {},
                          std::span<const std::string> arguments = {});
// Like read_run_config(), from a string; `name` appears in messages. Includes are not followed.
RunConfig parse_run_config(std::string_view text, const std::string& name,
                           std::span<const std::string> sets = {});

// The run.toml of a run's folder, or nothing if there is none. Its paths, now relative to the current
// directory, point to the files that they named when the run was started, even if the whole project has been
// moved since.
std::optional<RunConfig> read_stored_config(const Path& run, std::span<const std::string> sets = {});
// Like read_stored_config(), but as a request, for a run that resumes from its folder without a
// configuration: the program's choices are open again unless `sets` override them.
std::optional<RunConfig> read_asked_config(const Path& run, std::span<const std::string> sets = {});

// Adds errors that only another module can find (sizes of a model, files of a corpus).
using IssueHook = std::function<void(const RunConfig&, std::vector<Issue>&)>;
// All errors, in the order of the file: from reading, from combinations of keys, from the hooks.
std::vector<Issue> validate(const RunConfig& config, std::span<const IssueHook> hooks = {});
// Metrics that a run of this configuration may measure, as checkpoint.best_metric names them: "loss" of the
// step, "eval/valid/loss", "eval/NAME/acc", …
std::vector<std::string> metric_names(const RunConfig& config);
// The error in checkpoint.best_metric if a run measures these metrics; empty: none. The default is always
// accepted: a run without held-out data has no best checkpoint.
std::string error_in_best_metric(const CheckpointTable& checkpoint, std::span<const std::string> measured);
// Settings that are allowed but probably unintended; log them before a run starts.
std::vector<Issue> warnings(const RunConfig& config);
// Throws one ConfigError that lists all errors, if there are any.
void require_valid(const RunConfig& config, std::span<const IssueHook> hooks = {});
[[noreturn]] void throw_issues(std::span<const Issue> issues);

enum class ResumeClass { kFree, kAccept, kRefused };  // may change, needs --accept-changes, never

// One key with its value, for showing and comparing.
struct Setting {
  std::string key;    // "optimizer.group.0.lr_scale"
  std::string value;  // TOML
  Origin origin;
  ResumeClass resume = ResumeClass::kFree;
};
// Every key that has a value, in the order of the tables.
std::vector<Setting> settings(const RunConfig& config);

struct Change {
  std::string key;
  std::string before, after;  // TOML; empty: not there
  ResumeClass resume = ResumeClass::kFree;
};
// The keys in which two configurations differ in meaning: tables have no order, 1 equals 1.0, and paths to
// the same place are equal.
std::vector<Change> compare(const RunConfig& before, const RunConfig& after);
// `now` for resuming a run: every "auto" (and schedule.steps = "training", and an unset tokenizer or name)
// takes the stored run's value, except those that were chosen for the machine or for a value that changes.
RunConfig keep_resolved(const RunConfig& now, const RunConfig& stored);
// The changes that a resume makes: compare(stored, keep_resolved(now, stored)).
std::vector<Change> compare_for_resume(const RunConfig& stored, const RunConfig& now);
// Throws a ConfigError that lists rejected changes, and those that need --accept-changes unless `accepted`.
void require_resumable(std::span<const Change> changes, bool accepted);

// run.toml: every key with its value; paths are relative to the current directory. `machine`: one line that
// describes this machine.
std::string resolved_toml(const RunConfig& config, const std::string& machine);
// A RUN.toml for people: every key with its help text. Given keys are uncommented; defaults and unset keys
// are comments. Keys for later versions are omitted.
std::string commented_toml(const RunConfig& config, const std::string& heading);
// A RUN.toml with only the keys that differ from their defaults; the run's name and folder are left out.
// `heading` becomes a comment.
std::string short_toml(const RunConfig& config, const std::string& heading);
// JSON Schema 2020-12 of RUN.toml, for editors.
std::string config_schema();

}  // namespace strata::config
