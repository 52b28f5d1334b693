// [optimizer] of a run: its rules for each tensor, and their validation.
#include "config/optimizer_rules.h"

#include <fnmatch.h>

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "base/error.h"
#include "base/suggest.h"
#include "config/resolve.h"
#include "models/parametrization.h"
#include "optim/definition.h"
#include "optim/muon/muon.h"

namespace strata::config {
namespace {

optim::Optimizer optimizer_of(const OptimizerTable& table, OptimizerKind kind) {
  optim::Optimizer optimizer = table.constants_of(kind);
  if (const auto share = optimizer.definition().share; share != nullptr)
    share(optimizer, table.constants_of(OptimizerKind::kAdamW));
  return optimizer;
}

DType moments_of(StateDtype dtype) {
  switch (dtype) {
    case StateDtype::kFp32:
      return DType::kF32;
    case StateDtype::kBf16:
      return DType::kBF16;
    case StateDtype::kFp8:
      return DType::kE4M3;
  }
  throw InternalError("no moments are of type {}", static_cast<int>(dtype));
}

bool matches(const OptimizerGroup& group, const std::string& file_name) {
  return fnmatch(group.match.c_str(), file_name.c_str(), 0) == 0;
}

}  // namespace

// Those with the nearest component.
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
  if (near) return fmt::format("similar names are {}{}", names, shown > 3 ? ", …" : "");
  return fmt::format("two of the names are {} and {}", wholes.front(), wholes.back());
}

void check_groups(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& issues) {
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
    const auto report = [&](const char* name, std::string problem) {
      const std::string key = fmt::format("optimizer.group.{}.{}", i, name);
      issues.push_back({key, config.origin_of(key), std::move(problem)});
    };
    if (!any) {
      report("match", fmt::format("found \"{}\", which matches no tensor; {}", group.match,
                                  nearest_tensors(group.match, tensors)));
    } else if (group.name && !matrices) {
      const optim::Definition& definition = config.optimizer.constants_of(*group.name).definition();
      if (definition.hidden_matrices)
        report("name",
               fmt::format("found \"{}\" for \"{}\", which matches no matrix within a block; AdamW updates "
                           "embeddings, heads, norms and biases",
                           definition.name, group.match));
    }
  }
}

void check_optimizers(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& issues) {
  if (model.mup.base_hidden_size == 0) return;
  const auto check = [&](const std::string& key, OptimizerKind kind) {
    if (kind == OptimizerKind::kAdamW) return;
    issues.push_back(
        {key, config.origin_of(key),
         fmt::format("found \"{}\" with model.mup_base_hidden_size, whose learning rates are defined for "
                     "adamw; leave one of the two out",
                     optim::name_of(config.optimizer.constants_of(kind)))});
  };
  check("optimizer.name", config.optimizer.name);
  for (size_t i = 0; i < config.optimizer.group.size(); ++i) {
    if (config.optimizer.group[i].name)
      check(fmt::format("optimizer.group.{}.name", i), *config.optimizer.group[i].name);
  }
}

double score_limit(const RunConfig& config) {
  const optim::Optimizer& optimizer = config.optimizer.constants_of(config.optimizer.name);
  return optimizer.is<optim::Muon>() ? optimizer.as<optim::Muon>().qk_clip : 0;
}

void check_score_limit(const RunConfig& config, const models::ModelConfig& model,
                       std::vector<Issue>& issues) {
  const double limit = score_limit(config);
  if (limit == 0) return;
  const auto report = [&](std::string_view problem) {
    const std::string key = "optimizer.muon.qk_clip";
    issues.push_back(
        {key, config.origin_of(key), fmt::format("found {} for {}, {}", limit, model.family->name, problem)});
  };
  bool has_attention = false;
  for (int64_t layer = 0; layer < model.layers; ++layer)
    has_attention = has_attention || model.has_attention(layer);
  if (model.qk_norm != layers::AttentionSpec::QkNorm::kAbsent || model.plain_qk_norm) {
    report(
        "whose queries and keys are normalized, so that smaller weights change no score; expected 0: the norms "
        "limit scores already");
  } else if (!has_attention) {
    report("which has no attention; expected 0");
  } else if (model.architecture == models::Architecture::kEncoderDecoder) {
    report("whose scores of attention to an encoder have no limit; expected 0, or a decoder or an encoder");
  }
}

optim::RuleOf optimizer_rules(const RunConfig& config, const models::ModelConfig& model) {
  // Of each parameter, in the order of its rows. The copies of the rules share them: a large mixture has 50,000.
  using Tensors = std::unordered_map<std::string, std::vector<models::TensorRow>>;
  Tensors all;
  for (models::TensorRow& row : model.family->tensors(model)) {
    std::vector<models::TensorRow>& rows = all[row.parameter];
    rows.push_back(std::move(row));
  }
  for (auto& [name, rows] : all)
    std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.row < b.row; });
  return [optimizer = config.optimizer, precision = config.precision, seed = config.run.seed,
          row_clip = config.training.clip_rows, model,
          tensors = std::make_shared<const Tensors>(std::move(all))](const std::string& name,
                                                                     graph::ParameterRole role) {
    // The relative weight decay per step does not change with the width.
    models::RateScale scale = models::rate_scale(model, role);
    optim::ParameterRule rules{.tensors = {},
                               .part_scales = std::move(scale.parts),
                               .row_clip = models::is_hidden_matrix(role) ? row_clip : 0};
    const auto found = tensors->find(name);
    STRATA_CHECK(found != tensors->end(), "no file of {} contains {}", name, model.family->name);
    for (const models::TensorRow& row : found->second) {
      OptimizerKind kind = optimizer.name;
      optim::UpdateRule rule{.weight_decay = models::is_matrix(role) ? optimizer.weight_decay : 0.0};
      if (models::may_be_low(role)) rule.storage.weights = precision.weights;
      rule.storage.rounding = precision.rounding;
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
      if (rule.optimizer.definition().low_moments) rule.storage.moments = moments_of(optimizer.state_dtype);
      if (rule.storage.is_stochastic()) rule.storage.seed = seed;
      rule.lr_scale *= scale.whole;
      rule.weight_decay /= scale.whole;
      rules.tensors.push_back({row.rows, rule});
    }
    return rules;
  };
}

}  // namespace strata::config
