#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file_name.h"
#include "config/inject.h"
#include "config/keys.h"
#include "config/layout.h"
#include "config/names.h"
#include "config/ramp.h"
#include "config/resolve.h"
#include "config/validate.h"
#include "evaluation/task_names.h"
#include "optim/muon/muon.h"

namespace strata::config {
namespace {

class Checker {
 public:
  explicit Checker(const RunConfig& config) : config_(config), report_(config) {}

  std::vector<Issue> run() {
    check_later();
    check_run();
    check_model();
    check_start();
    check_tokenizer();
    check_data();
    check_mixture();
    check_training();
    check_groups();
    check_score_limit();
    check_eval();
    check_log();
    check_recovery(config_, report_);
    check_inject();
    check_precision(config_, report_);
    check_not_yet();
    return report_.take();
  }

 private:
  bool unread(const std::string& key) const { return report_.unread(key); }

  template <typename... Args>
  void report(const std::string& key, fmt::format_string<Args...> format, Args&&... args) {
    report_(key, format, std::forward<Args>(args)...);
  }

  void check_file_name(const std::string& key, const std::string& name) {
    if (const std::string wrong = file_name_error(name); !wrong.empty()) {
      ConfigValue found;
      found.data = name;
      report(key, "found {}, which {} and is to name files and metrics; expected one such as \"web\"",
             to_toml(found), wrong);
    }
  }

  // Keys reserved for a later version.
  void check_later() {
    RunConfig own = config_;
    for (const TableSpec& table : run_tables()) {
      for (size_t i = 0; i < table.count(config_); ++i) {
        RunConfig defaults;
        for (const KeySpec& spec : table.keys)
          check_later_key(table, i, spec, table.at(own, i), table.at(defaults, 0));
      }
    }
  }

  void check_later_key(const TableSpec& table, size_t index, const KeySpec& spec, const void* now,
                       const void* usual) {
    const std::string path = table_path(table, index) + "." + spec.name;
    const auto value = spec.write(now);
    const auto standard = spec.write(usual);
    const bool accepted = value && ((standard && same_value(*value, *standard)) ||
                                    (spec.former && same_value(*value, *spec.former)));
    if (spec.later && value && !accepted) {
      report(path, "found {}: not yet in this version; {}", to_toml(*value),
             standard ? "leave it at " + to_toml(*standard) : "leave it out");
    }
  }

  void check_run() {
    const std::string& name = config_.run.name;
    if (name.find('/') != std::string::npos || name == "." || name == "..") {
      report("run.name", "found \"{}\", expected a name without \"/\"; use run.folder to set the location",
             name);
    }
    if (config_.run.folder.empty()) report("run.folder", "found an empty path, expected a folder");
  }

  void check_model() {
    const ModelTable& model = config_.model;
    std::vector<std::string> given;
    if (!model.preset.empty()) given.push_back("preset");
    if (!model.from.empty()) given.push_back("from");
    if (!model.family.empty()) given.push_back("family");
    const bool unreadable =
        unread("model") || unread("model.preset") || unread("model.from") || unread("model.family");
    if (given.empty() && !unreadable) {
      report("model",
             "found no model, expected one of preset = \"…\" (`strata presets` lists them), from = \"DIR\" "
             "or family = \"…\" with sizes");
    }
    if (given.size() > 1) {
      report("model." + given[1], "found both {} and {}, expected one of preset, from and family", given[0],
             given[1]);
    }
    if (model.family.empty()) {
      for (const KeySpec& spec : find_table("model")->keys) {
        if (!is_size(spec.name) || !config_.was_set("model." + spec.name)) continue;
        report("model." + spec.name,
               "sizes here belong to model.family; to change those of a preset or directory put {} "
               "under [model.override]",
               spec.name);
      }
    }
  }

  // Initialization keys have no effect on weights that are read; µP's learning rates apply to read weights
  // too.
  void check_start() {
    const ModelTable& model = config_.model;
    const bool reads = !model.from.empty() && model.init == ModelInit::kWeights;
    for (const char* key : {"model.init_scheme", "model.init_std"}) {
      const bool given = key == std::string_view("model.init_std") ? model.init_std.has_value()
                                                                   : !model.init_scheme.is_word();
      if (reads && given) {
        report(key,
               "found it for weights that are read from model.from; leave it out, or set model.init = "
               "\"random\"");
      }
    }
    if (model.init_std && (model.init_scheme == models::InitScheme::kSmallWang ||
                           model.init_scheme == models::InitScheme::kMitchell)) {
      report("model.init_std", "found it with an init_scheme that depends only on the sizes; leave it out");
    }
    if (model.init_std && model.overrides.find("initializer_range") != nullptr) {
      report("model.init_std", "found both init_std and override.initializer_range, expected one of them");
    }
    if (model.mup_base_head_dim && !model.mup_base_hidden_size) {
      report(
          "model.mup_base_head_dim",
          "found it without mup_base_hidden_size, expected both: the sizes at which the settings were tuned");
    }
  }

  static bool is_size(const std::string& name) {
    static const std::set<std::string> others = {"preset",
                                                 "from",
                                                 "init",
                                                 "family",
                                                 "override",
                                                 "init_scheme",
                                                 "init_std",
                                                 "mup_base_hidden_size",
                                                 "mup_base_head_dim",
                                                 "mtp_loss_weight",
                                                 "allow_leaking_routing",
                                                 "indexer"};
    return !others.contains(name);
  }

  void check_tokenizer() {
    if (config_.tokenizer.train_given && !config_.tokenizer.path.empty()) {
      report("tokenizer.path", "found both path and train, expected one of them");
    }
  }

  void check_data() {
    const DataTable& data = config_.data;
    if (data.train.empty() && data.source.empty() && !unread("data.train") && !unread("data.build") &&
        !unread("data") && !unread("data.source")) {
      report("data.train",
             "found no training data, expected data.train = [\"FILES\"], data.build = \"FOLDER\" or "
             "[[data.source]] tables");
    }
    if (!data.train.empty() && !data.source.empty()) {
      report("data.train", "found both train and [[data.source]] or data.build, expected one of them");
    }
    check_paths("data.train", data.train);
    check_paths("data.valid", data.valid);
    if (!data.valid.empty() && config_.was_set("data.valid_fraction") &&
        data.valid_fraction.value_or(0) > 0) {
      report("data.valid_fraction", "found both valid and valid_fraction, expected one of them");
    }
    if (data.text_field.empty())
      report("data.text_field", "found an empty name, expected the field that holds the text");
  }

  void check_paths(const std::string& key, const std::vector<std::string>& paths) {
    for (size_t i = 0; i < paths.size(); ++i) {
      if (paths[i].empty())
        report(key, "found an empty path at position {}, expected a file, folder or glob", i + 1);
    }
  }

  void check_mixture() {
    std::set<std::string> names;
    double total = 0;
    const auto& sources = config_.data.source;
    for (size_t i = 0; i < sources.size(); ++i) {
      const std::string path = fmt::format("data.source.{}", i);
      check_file_name(path + ".name", sources[i].name);
      if (!sources[i].name.empty() && !names.insert(sources[i].name).second) {
        report(path + ".name", "found the name \"{}\" twice, expected one source of each name",
               sources[i].name);
      }
      if (sources[i].path.empty())
        report(path + ".path", "found a source without files, expected path = [\"FILES\"]");
      check_paths(path + ".path", sources[i].path);
      total += sources[i].weight;
    }
    if (!sources.empty() && !(total > 0))
      report("data.source.0.weight", "found only weights of 0, expected one above 0");
    int64_t last_step = 0;
    for (size_t i = 0; i < config_.data.phase.size(); ++i) {
      const DataPhase& phase = config_.data.phase[i];
      const std::string path = fmt::format("data.phase.{}", i);
      if (phase.from_step <= last_step) {
        report(path + ".from_step",
               "found {}, expected phases in order, each later than the previous one ({})", phase.from_step,
               last_step);
      }
      last_step = phase.from_step;
      check_phase_weights(path + ".weights", phase, names);
    }
  }

  void check_phase_weights(const std::string& key, const DataPhase& phase,
                           const std::set<std::string>& names) {
    double total = 0;
    for (const auto& [name, weight] : phase.weights) {
      total += weight;
      if (names.contains(name)) continue;
      std::string known;
      for (const std::string& source : names) known += (known.empty() ? "" : ", ") + source;
      report(key, "found \"{}\", expected the name of a [[data.source]]: {}", name,
             known.empty() ? "there are none" : known);
    }
    if (!(total > 0))
      report(key, "found no weight above 0, expected weights such as {{ web = 0.3, math = 0.7 }}");
  }

  void check_training() {
    const TrainingTable& training = config_.training;
    if (config_.was_set("training.steps") && training.tokens) {
      report("training.tokens", "found both steps and tokens, expected one of them");
    }
    // Several ranks share a batch, and the last micro-batch of each may have empty rows.
    const bool alone = mesh_of(config_).ranks() == 1;
    if (alone && training.micro_batch_size.value &&
        training.global_batch_size % *training.micro_batch_size != 0) {
      report("training.micro_batch_size",
             "found {}, which does not divide global_batch_size = {}; expected a divisor of it",
             *training.micro_batch_size, training.global_batch_size);
    }
    constexpr int64_t kMostTokens = int64_t{1} << 40;
    if (training.sequence_length > kMostTokens / training.global_batch_size) {
      report("training.global_batch_size",
             "found {} sequences of {} tokens, expected less than 2^40 tokens per step",
             training.global_batch_size, training.sequence_length);
      return;
    }
    check_ramps(config_,
                [&](const std::string& key, const std::string& problem) { report(key, "{}", problem); });
    const int64_t step_tokens = training.global_batch_size * training.sequence_length;
    if (!training.tokens && training.steps > kMostCount / step_tokens) {
      report("training.steps", "found {} steps of {} tokens, expected at most {:g} tokens in a run",
             training.steps, step_tokens, static_cast<double>(kMostCount));
    }
  }

  void check_groups() {
    for (size_t i = 0; i < config_.optimizer.group.size(); ++i) {
      if (config_.optimizer.group[i].match.empty()) {
        report(fmt::format("optimizer.group.{}.match", i),
               "found a group without match, expected one such as match = \"*embed_tokens*\"");
      }
    }
  }

  void check_score_limit() {
    for (const optim::Optimizer& one : config_.optimizer.constants) {
      const double limit = one.is<optim::Muon>() ? one.as<optim::Muon>().qk_clip : 0;
      if (limit <= 0) continue;
      const char* const key = "optimizer.muon.qk_clip";
      const std::string_view name = optim::name_of(config_.optimizer.constants_of(config_.optimizer.name));
      if (name != optim::name_of(one)) {
        report(key, "found {} with optimizer.name = \"{}\", expected 0, or optimizer.name = \"muon\"", limit,
               name);
      } else if (!config_.device.kind.is_word() && config_.device.kind == device::Kind::kCuda) {
        report(
            key,
            "found {} with device.kind = \"cuda\", whose attention does not report its scores yet; expected 0, or "
            "device.kind = \"cpu\"",
            limit);
      }
    }
  }

  void check_eval() {
    std::set<std::string> names = {"valid"};
    for (size_t i = 0; i < config_.eval.set.size(); ++i) {
      const EvalSet& set = config_.eval.set[i];
      const std::string path = fmt::format("eval.set.{}", i);
      check_file_name(path + ".name", set.name);
      if (!set.name.empty() && !names.insert(set.name).second) {
        report(path + ".name",
               "found the name \"{}\" twice (data.valid is \"valid\"), expected one set of each name",
               set.name);
      }
      if (set.path.empty()) report(path + ".path", "found a set without files, expected path = [\"FILES\"]");
      check_paths(path + ".path", set.path);
      check_task(set, path);
    }
    if (const std::string wrong = error_in_best_metric(config_.checkpoint, metric_names(config_));
        !wrong.empty())
      report("checkpoint.best_metric", "{}", wrong);
  }

  void check_task(const EvalSet& set, const std::string& path) {
    if (set.task.empty()) {
      if (set.limit > 0) report(path + ".limit", "found it without a task, expected max_tokens for text");
      return;
    }
    if (const std::string wrong = evaluation::task_name_error(set.task); !wrong.empty())
      report(path + ".task", "{}", wrong);
    if (set.path.size() > 1)
      report(path + ".path", "found {} files, expected the one jsonl file of the task", set.path.size());
    if (set.max_tokens)
      report(path + ".max_tokens", "found it with a task, expected limit, the number of questions");
  }

  void check_log() {
    const std::vector<std::string>& command = config_.log.alert_command;
    if (!command.empty() && command[0].empty()) {
      report("log.alert_command",
             "found an empty program name, expected a program and its arguments, such as [\"mail\", \"me\"]");
    }
    const Interval& layers = config_.log.layers;
    if (layers.kind == Interval::Kind::kNever || layers.kind == Interval::Kind::kSteps) return;
    report("log.layers", "found {}, expected steps, such as \"10 steps\", or \"never\"", to_string(layers));
  }

  void check_inject() {
    if (const std::string wrong = inject_error(config_); !wrong.empty()) report("debug.inject", "{}", wrong);
  }

  // Values that this version does not support; ignoring them would train another model than requested.
  void check_not_yet() {
    if (config_.debug.reference_kernels && !config_.device.kind.is_word() &&
        config_.device.kind == device::Kind::kCuda) {
      report(
          "debug.reference_kernels",
          "found true with device.kind = \"cuda\", expected one of them: reference kernels run on the processor");
    }
    const Interval::Kind every = config_.checkpoint.keep_every.kind;
    if (every != Interval::Kind::kNever && every != Interval::Kind::kSteps) {
      report("checkpoint.keep_every", "found {}, expected steps, such as \"1000 steps\"",
             to_string(config_.checkpoint.keep_every));
    }
    if (config_.model.init == ModelInit::kRandom && config_.model.from.empty()) {
      report("model.init", "found \"random\" without model.from, whose weights it replaces; leave it out");
    }
  }

  const RunConfig& config_;
  Report report_;
};

}  // namespace

int64_t total_steps(const RunConfig& config) {
  if (!config.training.tokens) return config.training.steps;
  return Ramps(config).steps(0, {.tokens = *config.training.tokens});
}

optim::ScheduleConfig schedule_of(const RunConfig& config) {
  const int64_t horizon = config.schedule.steps.value_or(total_steps(config));
  return {.kind = config.schedule.name,
          .lr = config.optimizer.lr,
          .warmup_steps = config.schedule.warmup_steps.value_or(auto_warmup_steps(horizon)),
          .steps = horizon,
          .min_lr_ratio = config.schedule.min_lr_ratio,
          .decay_ratio = config.schedule.decay_ratio,
          .decay = config.schedule.decay};
}

std::vector<Issue> validate(const RunConfig& config, std::span<const IssueHook> hooks) {
  std::vector<Issue> issues = Checker(config).run();
  for (const IssueHook& hook : hooks) hook(config, issues);
  // In the order of the file; errors without a file come last.
  std::stable_sort(issues.begin(), issues.end(), [](const Issue& a, const Issue& b) {
    const bool a_file = a.origin.kind == Origin::Kind::kFile, b_file = b.origin.kind == Origin::Kind::kFile;
    if (a_file != b_file) return a_file;
    return a_file && a.origin.file == b.origin.file && a.origin.line < b.origin.line;
  });
  return issues;
}

void throw_issues(std::span<const Issue> issues) {
  std::string text = fmt::format("[config] found {} error{}:", issues.size(), issues.size() == 1 ? "" : "s");
  for (const Issue& issue : issues) text += "\n  " + issue.to_string();
  throw ConfigError(text);
}

void require_valid(const RunConfig& config, std::span<const IssueHook> hooks) {
  const std::vector<Issue> issues = validate(config, hooks);
  if (!issues.empty()) throw_issues(issues);
}

}  // namespace strata::config
