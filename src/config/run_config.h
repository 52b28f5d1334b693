// Reading, checking, showing and comparing configurations of runs.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"

namespace strata::config {

// Reads `path` (empty: no file, all defaults), then `sets` and `arguments`, both KEY=VALUE; arguments are
// what the command line's own words stand for (`strata train corpus.txt` → data.train=["corpus.txt"]).
// data.build has become data.source and tokenizer.path afterwards. A missing file and faults of TOML syntax
// throw ConfigError at once; all other faults are kept in reading_faults for validate().
RunConfig read_run_config(const Path& path, std::span<const std::string> sets = {},
                          std::span<const std::string> arguments = {});
// The same from a text; `name` stands in messages. Includes are not followed.
RunConfig parse_run_config(std::string_view text, const std::string& name,
                           std::span<const std::string> sets = {});

// The run.toml of a run's folder; nothing where there is none. Its paths lead from the working folder to what
// they named where the run was started, also where the project has been moved as a whole since.
std::optional<RunConfig> read_stored_config(const Path& run, std::span<const std::string> sets = {});
// The same as what is asked for when a run goes on from its folder alone: what the program had chosen is open
// again, unless `sets` give it.
std::optional<RunConfig> read_asked_config(const Path& run, std::span<const std::string> sets = {});

// Adds what only another room can find (sizes of a model, files of a corpus).
using FaultHook = std::function<void(const RunConfig&, std::vector<Fault>&)>;
// Every fault, in the order of the file: those of reading, those between keys, those of the hooks.
std::vector<Fault> validate(const RunConfig& config, std::span<const FaultHook> hooks = {});
// What a run of this configuration may measure, as checkpoint.best_metric names it: "loss" of the step,
// "eval/valid/loss", "eval/NAME/acc", …
std::vector<std::string> metric_names(const RunConfig& config);
// What is wrong with checkpoint.best_metric where these are measured; empty: nothing. The default is never
// wrong: a run that holds nothing out has no best checkpoint.
std::string fault_of_best_metric(const CheckpointTable& checkpoint, std::span<const std::string> measured);
// What is allowed and hardly meant: to be logged before a run starts.
std::vector<Fault> warnings(const RunConfig& config);
// Throws one ConfigError that lists all faults, if there are any.
void require_valid(const RunConfig& config, std::span<const FaultHook> hooks = {});
[[noreturn]] void throw_faults(std::span<const Fault> faults);

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
// The keys in which two configurations differ in meaning: tables have no order, 1 and 1.0 are one number, and
// paths are equal that lead to the same place.
std::vector<Change> compare(const RunConfig& before, const RunConfig& after);
// `now` for going on with a run: every "auto" (and schedule.steps = "training", and a tokenizer or name left
// to the program) takes the stored run's value, but for those that were chosen for the machine or for
// something that is changed.
RunConfig keep_resolved(const RunConfig& now, const RunConfig& stored);
// What a resume changes: compare(stored, keep_resolved(now, stored)).
std::vector<Change> compare_for_resume(const RunConfig& stored, const RunConfig& now);
// Throws ConfigError that lists the refused changes, and those that need --accept-changes unless `accepted`.
void require_resumable(std::span<const Change> changes, bool accepted);

// run.toml: every key with its value; relative paths begin at the working folder. `machine` is one line that
// describes this machine.
std::string resolved_toml(const RunConfig& config, const std::string& machine);
// A RUN.toml for people: every key with its help; keys that were given stand uncommented, defaults and unset
// ones as comments. Keys for later versions are left out.
std::string commented_toml(const RunConfig& config, const std::string& heading);
// JSON Schema 2020-12 of RUN.toml, for editors.
std::string config_schema();

}  // namespace strata::config
