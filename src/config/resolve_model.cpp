#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/suggest.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/weights.h"
#include "config/objective.h"
#include "config/pipeline.h"
#include "config/resolve.h"
#include "config/resolve_moe.h"
#include "config/value_json.h"
#include "device/open/open.h"
#include "evaluation/task_score.h"
#include "hardware/device_spec.h"
#include "inference/generate.h"
#include "models/parametrization.h"
#include "optim/definition.h"

namespace strata::config {
namespace {

// A value of [model.override] as JSON text.
std::string json_of(const ConfigValue& value) {
  return dump_json(to_json(value), -1, InvalidUtf8::kReplace);
}

models::ModelConfig model_of_family(const ModelTable& table) {
  const models::Family* family = models::find_family(table.family);
  if (family == nullptr) {
    std::string known;
    for (const models::Family* each : models::families())
      known += (known.empty() ? "" : ", ") + std::string(each->name);
    throw ConfigError("[model.family] \"{}\" is not known; known are {}", table.family, known);
  }
  // What is not said is as in the family's smallest preset, in its proportions.
  const models::ModelConfig base = models::smallest_preset(*family);
  models::ModelConfig config = base;
  config.vocab_size = table.vocab_size.value_or(config.vocab_size);
  config.hidden_size = table.hidden_size.value_or(config.hidden_size);
  config.layers = table.num_hidden_layers.value_or(config.layers);
  if (config.encoder_layers > 0)
    config.encoder_layers = table.num_hidden_layers.value_or(config.encoder_layers);
  config.heads = table.num_attention_heads.value_or(config.heads);
  const bool grouped = base.kv_heads < base.heads;
  config.kv_heads =
      table.num_key_value_heads.value_or(grouped ? std::min(config.kv_heads, config.heads) : config.heads);
  if (!config.latent) {
    config.head_dim = table.head_dim.value_or(config.heads > 0 ? config.hidden_size / config.heads : 0);
  } else if (table.head_dim) {
    throw ConfigError(
        "[model.head_dim] {} says the sizes of a head one by one; set qk_nope_head_dim, qk_rope_head_dim and "
        "v_head_dim in [model.override]",
        family->name);
  }
  config.intermediate_size =
      table.intermediate_size.value_or(config.hidden_size * base.intermediate_size / base.hidden_size);
  config.max_positions = table.max_position_embeddings.value_or(config.max_positions);
  config.tied = table.tie_word_embeddings.value_or(config.tied);
  config.rope.theta = table.rope_theta.value_or(config.rope.theta);
  return config;
}

models::InitScheme scheme_of(InitScheme scheme, models::InitScheme family) {
  switch (scheme) {
    case InitScheme::kAuto:
      break;
    case InitScheme::kNormal:
      return models::InitScheme::kPlain;
    case InitScheme::kScaledResidual:
      return models::InitScheme::kScaledResidual;
    case InitScheme::kSmallWang:
      return models::InitScheme::kSmallWang;
    case InitScheme::kTruncatedNormal:
      return models::InitScheme::kTruncatedNormal;
    case InitScheme::kMitchell:
      return models::InitScheme::kMitchell;
  }
  return family;
}

optim::Optimizer optimizer_of(const OptimizerTable& table, OptimizerKind kind) {
  optim::Optimizer optimizer = table.constants_of(kind);
  if (const auto share = optimizer.definition().share; share != nullptr)
    share(optimizer, table.constants_of(OptimizerKind::kAdamW));
  return optimizer;
}

bool matches(const OptimizerGroup& group, const std::string& file_name) {
  return fnmatch(group.match.c_str(), file_name.c_str(), 0) == 0;
}

// Names of tensors that a pattern may have meant: by the part of the name that is nearest to it.
std::string nearest_tensors(const std::string& pattern, const std::vector<models::TensorRow>& tensors) {
  std::string letters;
  for (const char c : pattern)
    if (c != '*' && c != '?') letters += c;
  std::vector<std::string> parts, wholes;
  for (const models::TensorRow& tensor : tensors) {
    wholes.push_back(tensor.file_name);
    for (size_t at = 0; at < tensor.file_name.size();) {
      const size_t end = std::min(tensor.file_name.find('.', at), tensor.file_name.size());
      parts.push_back(tensor.file_name.substr(at, end - at));
      at = end + 1;
    }
  }
  auto near = nearest_name(letters, wholes);
  if (!near) near = nearest_name(letters, parts);
  std::string names;
  int64_t shown = 0;
  for (const std::string& name : wholes) {
    if (!near || ("." + name + ".").find("." + *near + ".") == name.npos) continue;
    if (++shown <= 3) names += (names.empty() ? "" : ", ") + name;
  }
  if (near) return fmt::format("near it are {}{}", names, shown > 3 ? ", …" : "");
  return fmt::format("names are such as {} and {}", wholes.front(), wholes.back());
}

// A group that matches nothing is a typing mistake, and so is one for Muon that matches no matrix within a
// block.
void check_groups(const RunConfig& config, const models::ModelConfig& model, std::vector<Fault>& faults) {
  if (config.optimizer.group.empty()) return;
  const auto tensors = model.family->tensors(model);
  const auto roles = models::parameter_roles(model);
  for (size_t i = 0; i < config.optimizer.group.size(); ++i) {
    const OptimizerGroup& group = config.optimizer.group[i];
    if (group.match.empty()) continue;
    bool any = false, matrices = false;
    for (const models::TensorRow& tensor : tensors) {
      if (!matches(group, tensor.file_name)) continue;
      any = true;
      matrices = matrices || models::is_hidden_matrix(roles.at(tensor.parameter));
    }
    const auto fault = [&](const char* name, std::string problem) {
      const std::string key = fmt::format("optimizer.group.{}.{}", i, name);
      faults.push_back({key, config.origin_of(key), std::move(problem)});
    };
    if (!any) {
      fault("match", fmt::format("found \"{}\", which matches no tensor; {}", group.match,
                                 nearest_tensors(group.match, tensors)));
    } else if (group.name && !matrices) {
      const optim::Definition& definition = config.optimizer.constants_of(*group.name).definition();
      if (definition.hidden_matrices)
        fault("name",
              fmt::format("found \"{}\" for \"{}\", which matches no matrix within a block; embeddings, "
                          "heads, norms and biases are AdamW's",
                          definition.name, group.match));
    }
  }
}

// µP's factors are derived for Adam's update.
void check_optimizers(const RunConfig& config, const models::ModelConfig& model, std::vector<Fault>& faults) {
  if (model.mup.base_hidden_size == 0) return;
  const auto check = [&](const std::string& key, OptimizerKind kind) {
    if (kind == OptimizerKind::kAdamW) return;
    faults.push_back(
        {key, config.origin_of(key),
         fmt::format("found \"{}\" with model.mup_base_hidden_size, whose learning rates are those of "
                     "adamw; leave one of the two out",
                     optim::name_of(config.optimizer.constants_of(kind)))});
  };
  check("optimizer.name", config.optimizer.name);
  for (size_t i = 0; i < config.optimizer.group.size(); ++i) {
    if (config.optimizer.group[i].name)
      check(fmt::format("optimizer.group.{}.name", i), *config.optimizer.group[i].name);
  }
}

// What the model says about how its weights start.
void check_start(const RunConfig& config, const models::ModelConfig& model, std::vector<Fault>& faults) {
  const auto fault = [&](const char* key, std::string problem) {
    faults.push_back({key, config.origin_of(key), std::move(problem)});
  };
  for (std::string& problem : models::mup_faults(model))
    fault("model.mup_base_hidden_size", std::move(problem));
  // By the family: its config.json has a factor of its scheme where others have a standard deviation.
  if (model.init == models::InitScheme::kT5 && config.model.init_scheme != InitScheme::kAuto) {
    fault("model.init_scheme",
          fmt::format("found it for {}, which starts by a scheme of its own; leave it out",
                      model.family->name));
  }
  const bool by_sizes =
      model.init == models::InitScheme::kSmallWang || model.init == models::InitScheme::kMitchell;
  if (config.model.init_std && config.model.init_scheme == InitScheme::kAuto && by_sizes) {
    fault(
        "model.init_std",
        fmt::format("found it for {}, whose scheme \"{}\" follows from the sizes alone; name an init_scheme "
                    "that has a standard deviation, such as \"normal\"",
                    model.family->name, models::name_of(model.init)));
  }
}

// A model made for this run has as many entries as the tokenizer that is trained for it, unless it says how
// many it has.
bool takes_vocabulary_of_tokenizer(const RunConfig& config) {
  if (!config.tokenizer.train_given || config.tokenizer.train.vocab_size.is_word()) return false;
  if (!config.tokenizer.path.empty() || !config.model.from.empty() || config.model.vocab_size) return false;
  const auto* overrides = config.model.overrides.get_if<ConfigValue::Table>();
  return overrides == nullptr ||
         std::none_of(overrides->begin(), overrides->end(),
                      [](const ConfigEntry& entry) { return entry.key == "vocab_size"; });
}

// Whether the folder has weights; without them a model can still be planned.
bool has_weights(const Path& folder) {
  std::error_code error;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                           "pytorch_model.bin.index.json"}) {
    if (std::filesystem::exists(folder / name, error)) return true;
  }
  return false;
}

}  // namespace

Path model_folder(const RunConfig& config) {
  return checkpoint::resolve_model(config.model.from);
}

namespace {

// Without a weight the layers are left out; so they are, where nothing is asked for, of a model whose files
// lack them, as those that transformers has written do.
void apply_prediction(const RunConfig& config, models::ModelConfig& model) {
  const Auto<double>& weight = config.model.mtp_loss_weight;
  model.predict_weight = weight.value_or(model.predict_weight);
  if (model.predict_weight == 0) model.predict_layers = 0;
  const bool reads_weights = !config.model.from.empty() && config.model.init == ModelInit::kWeights;
  if (model.predict_layers == 0 || !weight.is_word() || !reads_weights) return;
  const Path folder = model_folder(config);
  if (has_weights(folder) && !checkpoint::holds_prediction(folder, model)) model.predict_layers = 0;
}

void check_prediction(const RunConfig& config, const models::ModelConfig& model, std::vector<Fault>& faults) {
  if (model.predict_layers > 0 || config.model.mtp_loss_weight.value_or(0) == 0) return;
  faults.push_back({"model.mtp_loss_weight", config.origin_of("model.mtp_loss_weight"),
                    fmt::format("found it for a {} model without layers that predict further tokens; set "
                                "num_nextn_predict_layers in [model.override] where the family has them "
                                "(deepseek3, glm4-moe), or leave it out",
                                model.family->name)});
}

}  // namespace

models::ModelConfig resolve_model(const RunConfig& config) {
  models::ModelConfig model;
  std::string where = config.model.preset.empty() ? "model.family " + config.model.family
                                                  : "model.preset " + config.model.preset;
  if (!config.model.from.empty()) {
    const Path folder = model_folder(config);
    where = (folder / "config.json").string();
    model = models::read_config_json(checkpoint::read_config_json(folder), where);
  } else if (!config.model.preset.empty()) {
    model = models::preset(config.model.preset);
  } else {
    model = model_of_family(config.model);
    // Where experts are as wide as the FFN, one key says both.
    if (model.experts.count > 0 && models::faults_of(model).empty())
      model = models::read_config_json(models::write_config_json(model, DType::kF32), where);
  }
  std::vector<std::pair<std::string, std::string>> overrides;
  if (const auto* table = config.model.overrides.get_if<ConfigValue::Table>()) {
    for (const ConfigEntry& entry : *table) overrides.emplace_back(entry.key, json_of(entry.value));
  }
  model = models::with_overrides(model, overrides, where);
  const bool own_ends = std::none_of(overrides.begin(), overrides.end(),
                                     [](const auto& one) { return one.first == "eos_token_id"; });
  if (!config.model.from.empty() && own_ends)
    model.generation_eos_ids = data::generation_ends(model_folder(config));
  if (takes_vocabulary_of_tokenizer(config)) model.vocab_size = *config.tokenizer.train.vocab_size;
  model.init = scheme_of(config.model.init_scheme, model.init);
  model.init_std = config.model.init_std.value_or(model.init_std);
  model.mup = {.base_hidden_size = config.model.mup_base_hidden_size.value_or(0),
               .base_head_dim = config.model.mup_base_head_dim.value_or(0)};
  apply_moe(config, model.experts);
  apply_prediction(config, model);
  return model;
}

void check_model(const RunConfig& config, std::vector<Fault>& faults) {
  const std::string key = !config.model.from.empty()     ? "model.from"
                          : !config.model.preset.empty() ? "model.preset"
                                                         : "model.family";
  try {
    const models::ModelConfig model = resolve_model(config);
    auto problems = models::faults_of(model);
    for (std::string& problem : problems) faults.push_back({key, config.origin_of(key), std::move(problem)});
    if (problems.empty()) {
      for (std::string& problem : models::transformers_faults(model))
        faults.push_back({key, config.origin_of(key), std::move(problem)});
    }
    // What config.json says is planned only where the weights beside it say the same.
    if (problems.empty() && !config.model.from.empty() && config.model.init == ModelInit::kWeights &&
        config.model.overrides.get_if<ConfigValue::Table>()->empty() && has_weights(model_folder(config)))
      checkpoint::check_weights(model_folder(config), model);
    if (problems.empty()) check_groups(config, model, faults);
    if (problems.empty()) check_moe(config, model, faults);
    if (problems.empty()) check_prediction(config, model, faults);
    if (problems.empty()) check_optimizers(config, model, faults);
    if (problems.empty()) check_objective(config, model, faults);
    if (problems.empty()) check_start(config, model, faults);
    if (config.training.sequence_length > model.max_sequence_length()) {
      faults.push_back(
          {"training.sequence_length", config.origin_of("training.sequence_length"),
           fmt::format("found {}, but the model has {} positions; lower it or raise max_position_embeddings",
                       config.training.sequence_length, model.max_positions)});
    }
  } catch (const ConfigError& error) {
    faults.push_back({key, config.origin_of(key), error.what()});
  }
}

DType activation_dtype(const RunConfig& config) {
  return config.precision.compute == Compute::kBf16 ? DType::kBF16 : DType::kF32;
}

void share_machine(RunConfig& config, const RankPlace& place, const std::function<double(double)>& least) {
  const auto share = [&](int64_t mine) { return static_cast<int64_t>(least(static_cast<double>(mine))); };
  if (config.parallel.progress == Progress::kAuto) {
    const bool fills = config.device.threads.is_word() ||
                       available_processors() < place.local_ranks * (*config.device.threads + 1);
    config.parallel.progress =
        share(place.ranks == 1 || fills ? 0 : 1) > 0 ? Progress::kThread : Progress::kInline;
  }
  if (config.device.threads.is_word())
    config.device.threads = share(std::max<int64_t>(1, available_processors() / place.local_ranks));
  // What is free now, less room for the rest of the program and for others.
  if (config.memory.budget.is_word())
    config.memory.budget = Bytes{share(available_memory() / 10 * 9 / place.local_ranks)};
}

void resolve_machine(RunConfig& config, const RankPlace& place) {
  config.parallel.host_ranks = std::max(1, place.local_ranks);
  share_machine(config, place, [](double mine) { return mine; });
  config.device.kind = DeviceKind::kCpu;
  if (config.precision.compute == Compute::kAuto) {
    const bool is_fast = hardware::bf16_is_fast(make_device(config)->spec());
    config.precision.compute = is_fast ? Compute::kBf16 : Compute::kFp32;
  }
  if (config.precision.residual == Residual::kAuto) {
    config.precision.residual =
        config.precision.compute == Compute::kBf16 ? Residual::kBf16 : Residual::kFp32;
  }
  if ((config.precision.residual == Residual::kBf16) != (config.precision.compute == Compute::kBf16)) {
    throw ConfigError(
        "[precision.residual] a residual stream of another type than precision.compute ({}) is not yet in "
        "this version; leave it at \"auto\"",
        name_of(activation_dtype(config)));
  }
  if (config.training.micro_batch_size.is_word()) {
    // As many sequences as make about 2,048 tokens of a rank: GEMMs are at their best there, and more would
    // only take memory. compile() takes fewer where these do not fit.
    const int64_t shares = mesh_of(config).size(graph::Axis::kContext);
    const int64_t wanted = std::max<int64_t>(1, 2048 * shares / config.training.sequence_length);
    const int64_t sequences = sequences_of_part(config);
    int64_t size = std::min(wanted, sequences);
    // A pipeline of p ranks waits for p - 1 micro-batches: with 4 p of them that is a fifth of the time.
    if (const int64_t ranks = config.parallel.pipeline; ranks > 1)
      size = std::max<int64_t>(1, std::min(size, sequences / (4 * ranks)));
    const auto fits = [&](int64_t n) { return sequences % n == 0 && has_equal_rows(config, n); };
    // The next smaller one; where ranks can share none of those, the next greater.
    int64_t chosen = size;
    while (chosen > 0 && !fits(chosen)) --chosen;
    for (int64_t more = size + 1; chosen == 0 && more <= sequences; ++more)
      if (fits(more)) chosen = more;
    config.training.micro_batch_size = std::max<int64_t>(1, chosen);
  }
}

std::shared_ptr<device::Device> make_device(const RunConfig& config) {
  return device::open(config.debug.reference_kernels ? device::Kind::kReference : device::Kind::kCpu, 0,
                      static_cast<int>(*config.device.threads));
}

std::shared_ptr<const program::ProgramSet> compile_run(RunConfig& config, const models::ModelConfig& model,
                                                       const std::vector<TaskSet>& tasks, int32_t place) {
  const data::RowShape shape = row_shape(config, model);
  // Rows that see later ones must not see the padding behind a text.
  const bool documents =
      config.data.pack != Pack::kStream || model.architecture != models::Architecture::kDecoder;
  const int64_t context =
      std::min(model.max_sequence_length(),
               std::max<int64_t>(config.training.sequence_length, inference::kPrefillChunk));
  int64_t longest = 0, most = 0;  // task requests
  for (const TaskSet& set : tasks) {
    longest = std::max(longest, set.requests.longest);
    most = std::max(most, static_cast<int64_t>(set.requests.requests.size()));
  }
  // A decoder's rows beside an encoder have the length of their longest target, which nobody chose: they are
  // filled up to what ranks can share.
  const graph::Mesh mesh = mesh_of(config);
  const int64_t pieces = (mesh.size(graph::Axis::kContext) > 1 ? 2 * mesh.size(graph::Axis::kContext) : 1) *
                         (config.parallel.sequence ? mesh.size(graph::Axis::kTensor) : 1);
  const int64_t tokens =
      shape.encoder_length > 0 ? (shape.tokens + pieces - 1) / pieces * pieces : shape.tokens;
  auto requests_for = [&](int64_t micro_batch) {
    std::vector<program::Request> requests{{.kind = program::Kind::kTrain,
                                            .sequences = micro_batch,
                                            .sequence_length = tokens,
                                            .encoder_length = shape.encoder_length,
                                            .document_mask = documents,
                                            .micro_batches = micro_batches_of_part(config),
                                            .target_share = shape.target_share,
                                            .idle_rows = tokens - shape.tokens},
                                           {.kind = program::Kind::kEvaluate,
                                            .sequences = micro_batch,
                                            .sequence_length = tokens,
                                            .encoder_length = shape.encoder_length,
                                            .document_mask = documents,
                                            .target_share = shape.target_share,
                                            .idle_rows = tokens - shape.tokens}};
    const bool generates = model.architecture == models::Architecture::kDecoder &&
                           config.parallel.pipeline <= 1 && reads_token_by_token(model);
    if (generates || writes_samples(config, model)) {
      for (auto& request : inference::generation_requests(inference::kPrefillChunk, 1, shape.encoder_length))
        requests.push_back(request);
    }
    if (longest > 0)
      requests.push_back(
          evaluation::task_program(evaluation::task_row_length(longest, model.max_positions), most));
    return requests;
  };
  program::CompileOptions options;
  options.model = model;
  options.activations = activation_dtype(config);
  options.rule_of = optimizer_rules(config, model);
  options.memory_budget = (*config.memory.budget).count;
  switch (config.memory.recompute) {
    case Recompute::kAuto:
      break;
    case Recompute::kNone:
      options.recompute = program::Recompute::kNone;
      break;
    case Recompute::kSelective:
      options.recompute = program::Recompute::kSelective;
      break;
    case Recompute::kFull:
      options.recompute = program::Recompute::kFull;
      break;
  }
  options.mesh = mesh_of(config);
  options.pipeline = pipeline_of(config, model, place);
  if (options.pipeline != nullptr && options.pipeline->splits_backward())
    options.backward = program::Backward::kSplit;
  options.sequence_parallel = config.parallel.sequence;
  options.context_kind = static_cast<layers::ContextKind>(config.parallel.context_kind);
  options.experts = expert_layout(config);
  options.zero = static_cast<int>(config.parallel.zero.value_or(0));
  options.reshard_after_forward = config.parallel.reshard_after_forward.value_or(true);
  options.prefetch = config.parallel.prefetch.value_or(config.parallel.progress == Progress::kThread ? 1 : 0);
  options.overlap_chunks = config.parallel.overlap_chunks;
  options.reduce_dtype = config.parallel.reduce_dtype == ReduceDtype::kBf16 ? DType::kBF16 : DType::kF32;
  options.cache_capacity = inference::cache_capacity_for(context, inference::kPrefillChunk);
  options.target = make_device(config)->target();
  return program::compile(requests_for(*config.training.micro_batch_size), options);
}

size_t task_program(const program::ProgramSet& set) {
  const auto scores = [](const program::Program& program) { return program.request.per_token_loss; };
  const auto found = std::find_if(set.programs.begin(), set.programs.end(), scores);
  STRATA_CHECK(found != set.programs.end(), "no program scores tasks");
  return static_cast<size_t>(found - set.programs.begin());
}

optim::RuleOf optimizer_rules(const RunConfig& config, const models::ModelConfig& model) {
  std::unordered_map<std::string, std::vector<models::TensorRow>>
      tensors;  // of each parameter, in the order of its rows
  for (models::TensorRow& row : model.family->tensors(model)) tensors[row.parameter].push_back(row);
  for (auto& [name, rows] : tensors)
    std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.row < b.row; });
  return [optimizer = config.optimizer, model, tensors = std::move(tensors)](const std::string& name,
                                                                             graph::ParameterRole role) {
    // The share of a weight that a step takes away does not change with the width.
    models::RateScale scale = models::rate_scale(model, role);
    optim::ParameterRule rules{{}, std::move(scale.parts)};
    const auto found = tensors.find(name);
    STRATA_CHECK(found != tensors.end(), "{} is in no file of {}", name, model.family->name);
    for (const models::TensorRow& row : found->second) {
      OptimizerKind kind = optimizer.name;
      optim::UpdateRule rule{.weight_decay = models::is_matrix(role) ? optimizer.weight_decay : 0.0};
      const auto group = std::find_if(optimizer.group.begin(), optimizer.group.end(),
                                      [&](const auto& one) { return matches(one, row.file_name); });
      if (group != optimizer.group.end()) {
        kind = group->name.value_or(kind);
        rule.lr_scale = group->lr_scale;
        rule.weight_decay = group->weight_decay.value_or(rule.weight_decay);
      }
      if (optimizer.constants_of(kind).definition().hidden_matrices && !models::is_hidden_matrix(role))
        kind = OptimizerKind::kAdamW;
      rule.optimizer = optimizer_of(optimizer, kind);
      rule.lr_scale *= scale.whole;
      rule.weight_decay /= scale.whole;
      rules.tensors.push_back({row.rows, rule});
    }
    return rules;
  };
}

RunConfig config_of_sets(const std::vector<std::string>& sets) {
  RunConfig config = read_run_config({}, sets);
  // Model and data come from other arguments here, so only faults of what was set count.
  std::vector<Fault> faults = validate(config);
  std::erase_if(faults, [&](const Fault& fault) {
    const bool unread = std::any_of(config.reading_faults.begin(), config.reading_faults.end(),
                                    [&](const Fault& each) { return each.key == fault.key; });
    return !unread && !config.was_set(fault.key);
  });
  if (!faults.empty()) throw_faults(faults);
  return config;
}

inference::ComputeOptions compute_options(const RunConfig& config) {
  inference::ComputeOptions options;
  if (config.precision.compute != Compute::kAuto) options.dtype = activation_dtype(config);
  if (!config.device.threads.is_word()) options.threads = static_cast<int>(*config.device.threads);
  options.reference_kernels = config.debug.reference_kernels;
  return options;
}

}  // namespace strata::config
