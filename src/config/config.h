// A run's configuration: the tables of RUN.toml as plain structs, with their defaults.
//
// Keys, checks and help texts are defined once, in tables*.cpp; reading, validation, `strata config` and
// `strata init` are derived from them. Relative paths start at the current directory.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/toml.h"
#include "config/values.h"
#include "data/samples/objective.h"
#include "data/samples/sample_source.h"
#include "data/tokenizer/special_tokens.h"
#include "device/open/open.h"
#include "layers/layers.h"
#include "models/model.h"
#include "ops/capacity/capacity.h"
#include "optim/guard.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "program/passes.h"
#include "quantize/partial_sums.h"
#include "tensor/dtype.h"

namespace strata::config {

// Enums that no other module needs; names.h spells them, and all enums declared elsewhere.
enum class ModelInit { kWeights, kRandom };
enum class OptimizerKind : uint8_t { kAdamW };  // a place in optim::optimizers(), the first one's
enum class CapacityOver { kSequence, kMicroBatch };
enum class Dispatch { kFlat, kTwoLevel };
enum class Progress { kInline, kThread };
enum class Backend { kLocal, kMpi };
enum class RecoveryRules { kAuto, kNone };
enum class PeerCopies { kAuto, kNever };

// The value of a key reserved for a later version: anything other than its default is rejected.
struct LaterValue {
  ConfigValue value;
  template <typename T>
  LaterValue(T standard) {  // implicit, so that defaults read as in the file
    value.data = std::move(standard);
  }
};

struct RunTable {
  std::string name = "auto";    // reading sets it: the file's name without .toml
  std::string folder = "auto";  // reading sets it: runs/NAME
  std::string started_in;       // base of relative paths; reading prepends it
  // In a run's run.toml: choices made by the program, as KEY=VALUE with the replaced value. They are open
  // again for a run that resumes from that file.
  std::vector<std::string> chosen;
  int64_t seed = 1234;
  Auto<Duration> max_time;
};

// Exactly one of preset, from and family is set in a valid configuration.
struct ModelTable {
  std::string preset;
  std::string from;
  ModelInit init = ModelInit::kWeights;  // of `from`
  // For random weights (models/parametrization.h); auto or unset: the family's.
  Auto<models::InitScheme> init_scheme;
  std::optional<double> init_std;
  std::optional<int64_t> mup_base_hidden_size, mup_base_head_dim;
  std::string family;
  // Sizes of a family, under their names in config.json; unset ones are the family's own.
  std::optional<int64_t> vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
      num_key_value_heads, head_dim, max_position_embeddings;
  std::optional<bool> tie_word_embeddings;
  std::optional<double> rope_theta;
  Auto<double> mtp_loss_weight;                                       // auto: ModelConfig::predict_weight
  ConfigValue overrides{.data = ConfigValue::Table{}, .origin = {}};  // [model.override], as written
  bool allow_leaking_routing = false;
  Auto<layers::Settings::Indexer> indexer;  // auto: sparse, of models that have one
};

struct TokenizerTrainTable {
  Auto<int64_t> vocab_size;  // auto: the model's
  int64_t min_frequency = 2;
  std::string pattern = "gpt2";
  std::vector<std::string> special = {"<|endoftext|>"};
};

struct TokenizerTable {
  std::string path;          // empty: of model.from where it has one, else trained
  bool train_given = false;  // the configuration asks for training one
  TokenizerTrainTable train;
  bool add_bos = false;
  bool add_eos = true;
  Auto<TokenName> eos, bos;  // auto: as the model's files declare (data::TextEnds)
  data::SpecialInText special_in_text = data::SpecialInText::kToken;
};

struct DataSource {
  std::string name;
  std::vector<std::string> path;
  double weight = 1.0;
  OrWord<int64_t> max_epochs;         // word: "repeat", no limit
  std::optional<int64_t> max_tokens;  // of the whole run
};

struct DataPhase {
  int64_t from_step = 1;
  std::map<std::string, double> weights;
};

struct DataTable {
  std::vector<std::string> train;
  std::vector<std::string> build;  // taken apart into `source` and tokenizer.path while reading (builds.h)
  std::string text_field = "text";
  std::vector<DataSource> source;
  std::vector<DataPhase> phase;
  std::vector<std::string> valid;
  std::optional<double> temperature;
  Auto<double> valid_fraction;  // auto: 0.01 of text without `valid`, nothing of token files
  bool shuffle = true;
  data::Pack pack = data::Pack::kDocuments;
  Auto<data::Objective> objective;  // auto: the model kind's objective
  double mask_rate = 0.15;
  double mean_span = 3.0;
  double fim_rate = 0.0;
  double fim_spm_rate = 0.5;
  OrWord<int64_t> epochs;  // word: "repeat"
  std::vector<Range> skip;
};

struct TrainingTable {
  int64_t sequence_length = 512;
  Auto<int64_t> micro_batch_size;
  int64_t global_batch_size = 64;
  int64_t steps = 1000;
  std::optional<int64_t> tokens;     // in place of steps
  double clip_grad_norm = 1.0;       // 0: no clipping
  double clip_rows = 0;              // 0: no clipping
  OrWord<Ramp> batch_ramp = Ramp{};  // word: "noise_scale"
  Ramp length_warmup;
};

// Of the moments; fp8: codes of e4m3 with a scale for each block.
enum class StateDtype : uint8_t { kFp32, kBf16, kFp8 };

struct OptimizerGroup {
  std::string match;  // of Hugging Face tensor names, with * and ?
  double lr_scale = 1.0;
  std::optional<double> weight_decay;
  std::optional<OptimizerKind> name;
};

struct OptimizerTable {
  OptimizerKind name = OptimizerKind::kAdamW;
  double lr = 1e-3;
  double weight_decay = 0.1;
  StateDtype state_dtype = StateDtype::kFp32;
  std::vector<optim::Optimizer> constants = optim::standard_optimizers();  // by kind
  std::vector<OptimizerGroup> group;

  bool uses(OptimizerKind kind) const {
    return name == kind ||
           std::any_of(group.begin(), group.end(), [&](const auto& one) { return one.name == kind; });
  }
  const optim::Optimizer& constants_of(OptimizerKind kind) const {
    return constants[static_cast<size_t>(kind)];
  }
};

struct ScheduleTable {
  optim::ScheduleKind name = optim::ScheduleKind::kCosine;
  OrWord<int64_t> warmup_steps = int64_t{100};  // auto: by the horizon (schedule_of)
  double min_lr_ratio = 0.1;
  OrWord<int64_t> steps;  // word: "training"
  double decay_ratio = 0.1;
  optim::DecayShape decay = optim::DecayShape::kLinear;
};

struct PrecisionTable {
  Auto<DType> compute;  // kE4M3: a recipe in 8 bits; kE2M1: in 4
  Auto<DType> residual;
  std::string recipe = "auto";
  std::vector<std::string> keep = {"head", "first 1", "last 1"};
  std::string gather = "auto";
  DType weights = DType::kF32;  // of matrices and tables: masters, or bf16
  optim::Rounding rounding = optim::Rounding::kStochastic;
  OrWord<double> loss_scale;  // word: "dynamic"
  std::string dispatch = "auto";
  // Controls for studies of precision.
  bool hadamard = true;
  std::string gradient_rounding = "auto";
  quantize::PartialSums accumulation = quantize::PartialSums::kF32;
};

struct MemoryTable {
  Auto<Bytes> budget;
  Auto<program::Recompute> recompute;
  std::string offload = "auto";
};

struct DeviceTable {
  Auto<device::Kind> kind;
  Auto<int64_t> threads;
  bool pin = true;
};

struct ParallelTable {
  int64_t replicate = 1;
  int64_t shard = -1;
  Auto<int64_t> zero;
  int64_t tensor = 1;
  bool sequence = true;
  int64_t context = 1;
  layers::ContextKind context_kind = layers::ContextKind::kAllGather;
  int64_t pipeline = 1;
  std::string schedule = "1f1b";
  int64_t virtual_stages = 1;
  Auto<StageLayers> stage_layers;
  int64_t expert = 1;
  int64_t expert_tensor = 1;
  Auto<Dispatch> dispatch;
  Auto<double> expert_capacity;
  Auto<int64_t> prefetch;
  Auto<bool> reshard_after_forward;
  DType reduce_dtype = DType::kF32;
  Auto<Progress> progress;
  Duration silence_limit = {8}, wait_limit = {1800};
  int64_t overlap_chunks = 1;
  Auto<Backend> backend;
};

struct MoeTable {
  Auto<models::Experts::Router> router;  // auto: the model's
  Auto<int64_t> groups;
  int64_t kept_groups = 1;
  Auto<int64_t> slots;
  models::Experts::Balance balance = models::Experts::Balance::kSequence;
  bool pool_layers = false;
  Auto<double> aux_coef;  // auto: the family's
  Auto<double> z_coef;
  Auto<double> bias_rate;
  Auto<double> capacity_factor;
  int64_t min_capacity = 1;
  ops::CapacityAttrs::Keep drop = ops::CapacityAttrs::Keep::kFirst;
  CapacityOver capacity_over = CapacityOver::kSequence;
  Auto<double> jitter;  // auto: the family's
  bool force_balanced = false;
};

struct CheckpointTable {
  Interval interval = kAutoInterval;
  int64_t keep_last = 3;
  Interval keep_every;  // never
  int64_t keep_best = 1;
  std::string best_metric = "eval/valid/loss";
};

struct EvalSet {
  std::string name;
  std::vector<std::string> path;
  std::optional<int64_t> max_tokens;
  std::string task;  // of task_names.h; empty: plain text or tokens
  int64_t limit = 0;
};

struct EvalTable {
  Interval interval = every_steps(100);
  Auto<int64_t> max_tokens;  // of data.valid
  std::vector<std::string> sample_prompts;
  int64_t sample_tokens = 64;
  std::vector<EvalSet> set;
};

struct LogTable {
  int64_t interval_steps = 10;
  bool tensorboard = false;
  std::string prometheus;
  std::vector<std::string> alert_command;  // empty: none
  Interval layers = every_steps(10);
  LaterValue histograms = std::string("100 steps");
};

// A [[recovery.rule]]; `when` and `action` are set in a valid configuration.
struct RecoveryRule {
  enum class When : uint8_t {
    kNonfinite,
    kLossSpike,
    kGradSpike,
    kLossHigh,
    kDivergence,
    kPlateau,
    kLogitGrowth,
    kCorruption,
  };
  enum class Action : uint8_t {
    kSkipUpdate,
    kRollback,
    kRollbackSkip,
    kEaseLr,
    kClip,
    kShrinkEmbedding,
    kAlert,
    kStop,
  };
  std::optional<When> when;
  Auto<optim::SpikePreset> preset;
  Auto<double> threshold;
  Auto<int64_t> window;
  std::optional<Action> action;
  Auto<double> factor;
  Auto<int64_t> for_steps;
};

struct RecoveryTable {
  RecoveryRules rules = RecoveryRules::kAuto;
  std::vector<RecoveryRule> rule;  // if any, in place of the usual ones
  Interval snapshot = every_steps(50);
  Auto<bool> in_memory;
  Auto<int64_t> detection_delay;
  int64_t max_interventions = 10;
  int64_t max_lost_steps = 1000;
  Interval copies = kAutoInterval;
  PeerCopies peer_copies = PeerCopies::kAuto;
  Interval compare_replicas = kAutoInterval;
  Interval recompute_check = {};  // never
};

struct ProfileTable {
  std::vector<Range> steps;
};

struct DebugTable {
  bool reference_kernels = false;
  std::vector<std::string> inject;
};

// One error in a configuration.
struct Issue {
  std::string key;                // "training.steps"; empty: the whole
  Origin origin;                  // its source
  std::string problem;            // "found X, expected Y" and the remedy
  std::string to_string() const;  // "run.toml:12: training.steps: found X, expected Y"
};

struct RunConfig {
  RunTable run;
  ModelTable model;
  TokenizerTable tokenizer;
  DataTable data;
  TrainingTable training;
  OptimizerTable optimizer;
  ScheduleTable schedule;
  PrecisionTable precision;
  MemoryTable memory;
  DeviceTable device;
  ParallelTable parallel;
  MoeTable moe;
  CheckpointTable checkpoint;
  EvalTable eval;
  LogTable log;
  RecoveryTable recovery;
  ProfileTable profile;
  DebugTable debug;

  std::map<std::string, Origin> origins;  // of every key that was given, as "data.source.0.weight"
  std::vector<Issue>
      reading_issues;  // unknown keys, wrong types, values out of range; validate() includes them

  bool was_set(const std::string& key) const { return origins.contains(key); }
  Origin origin_of(const std::string& key) const;  // kDefault if not given
};

// Whether weights or moments take fewer bits than fp32.
inline bool stores_low(const RunConfig& config) {
  return config.precision.weights != DType::kF32 || config.optimizer.state_dtype != StateDtype::kFp32;
}

// The greatest score that heads of attention may keep (optimizer.muon.qk_clip of a run with muon); 0: any.
double score_limit(const RunConfig& config);

// Optimizer steps of the run: training.steps, or training.tokens rounded up to whole steps.
int64_t total_steps(const RunConfig& config);
// Seconds between checkpoints for checkpoint.interval = "auto" if one takes `save_seconds`: at most 1 % of
// the time, at least one every 30 minutes.
inline double auto_checkpoint_seconds(double save_seconds) {
  return std::min(1800.0, std::max(60.0, 100 * save_seconds));
}
// Seconds between copies for recovery.copies = "auto" if one takes `copy_seconds`: at most 1 % of the time.
inline double auto_copy_seconds(double copy_seconds) {
  return 100 * copy_seconds;
}
// log.alert_command with a program that is given as a relative path found from run.started_in.
std::vector<std::string> alert_command(const RunConfig& config);
// Warm-up steps for schedule.warmup_steps = "auto": a twentieth of the horizon, at least 10, at most half.
inline int64_t auto_warmup_steps(int64_t horizon) {
  return std::min(std::max<int64_t>(10, horizon / 20), horizon / 2);
}
// The curve that `schedule`, `optimizer.lr` and the horizon describe.
optim::ScheduleConfig schedule_of(const RunConfig& config);

}  // namespace strata::config
