#include "config/precision.h"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"
#include "config/names.h"
#include "config/optimizer_rules.h"

namespace strata::config {
namespace {

// An entry of precision.keep.
struct Kept {
  enum class Kind : uint8_t { kHead, kFirst, kLast, kPattern } kind = Kind::kPattern;
  int64_t blocks = 0;  // of kFirst and kLast
  std::string pattern = {};
};

Kept parse_kept(const std::string& entry) {
  if (entry == "head") return {Kept::Kind::kHead};
  for (const auto& [word, kind] :
       {std::pair{"first ", Kept::Kind::kFirst}, std::pair{"last ", Kept::Kind::kLast}}) {
    if (!entry.starts_with(word)) continue;
    Kept kept{kind};
    const char *begin = entry.data() + std::string_view(word).size(), *end = entry.data() + entry.size();
    const auto [rest, error] = std::from_chars(begin, end, kept.blocks);
    if (error == std::errc() && rest == end) return kept;
  }
  return {Kept::Kind::kPattern, 0, entry};
}

// Which matmuls of a model stay in the type of activations.
class Keep {
 public:
  Keep(const std::vector<std::string>& entries, const models::ModelConfig& model) : blocks_(model.blocks()) {
    for (const std::string& entry : entries) {
      const Kept kept = parse_kept(entry);
      if (kept.kind == Kept::Kind::kFirst) first_ = std::max(first_, kept.blocks);
      if (kept.kind == Kept::Kind::kLast) last_ = std::max(last_, kept.blocks);
      if (kept.kind != Kept::Kind::kPattern) continue;
      for (const models::TensorRow& tensor : model.family->tensors(model)) {
        if (fnmatch(kept.pattern.c_str(), tensor.file_name.c_str(), 0) == 0)
          parameters_.insert(tensor.parameter);
      }
    }
  }

  int64_t blocks_kept() const { return first_ + last_; }
  bool operator()(int32_t layer, const std::string& parameter) const {
    if (layer != graph::kNone && (layer < first_ || layer >= blocks_ - last_)) return true;
    return parameters_.contains(parameter);
  }

 private:
  int64_t blocks_, first_ = 0, last_ = 0;
  std::set<std::string> parameters_;  // by name in the graph
};

// The message about an entry that keeps nothing; else empty.
std::string problem_of(const std::string& entry, const models::ModelConfig& model) {
  const Kept kept = parse_kept(entry);
  switch (kept.kind) {
    case Kept::Kind::kHead:
      return {};
    case Kept::Kind::kFirst:
    case Kept::Kind::kLast:
      if (kept.blocks >= 1 && kept.blocks <= model.blocks()) return {};
      return fmt::format("found \"{}\", expected between 1 and {} blocks", entry, model.blocks());
    case Kept::Kind::kPattern:
      break;
  }
  const auto tensors = model.family->tensors(model);
  const bool matches = std::any_of(tensors.begin(), tensors.end(), [&](const models::TensorRow& tensor) {
    return fnmatch(kept.pattern.c_str(), tensor.file_name.c_str(), 0) == 0;
  });
  if (matches) return {};
  return fmt::format(
      "found \"{}\", which matches no tensor; {}. Other entries are \"head\", \"first N\" and \"last N\"",
      entry, nearest_tensors(kept.pattern, tensors));
}

program::Precision::Gathers gathers_of(const RunConfig& config) {
  using enum program::Precision::Gathers;
  return config.precision.gather == "fp32"  ? kWeights
         : config.precision.gather == "fp8" ? kCodes
                                            : kCodesWherePossible;
}

}  // namespace

std::shared_ptr<const program::Precision> precision_of(const RunConfig& config,
                                                       const models::ModelConfig& model) {
  if (!computes_in_codes(config)) return nullptr;
  const quantize::Recipe* const recipe = quantize::find_recipe(config.precision.recipe);
  STRATA_CHECK(recipe != nullptr, "no recipe {}", config.precision.recipe);
  const Keep keep(config.precision.keep, model);
  quantize::Recipe own = *recipe;
  if (!config.precision.hadamard) own.transforms_weight_gradient = false;
  if (config.precision.gradient_rounding == "nearest") own.rounds_gradients_stochastically = false;
  return std::make_shared<const program::Precision>(program::Precision{
      .recipe = own,
      .sums = config.precision.accumulation,
      .gathers = gathers_of(config),
      .keeps =
          [keep](const std::string& name, const graph::Parameter& parameter) {
            return keep(parameter.layer, parameter.part.of.empty() ? name : parameter.part.of);
          },
      .dispatches_codes = *config.precision.compute == DType::kE4M3 && recipe->quantizes_weight_gradient &&
                          config.precision.dispatch != "bf16"});
}

std::string_view recipe_name(const RunConfig& config) {
  if (config.precision.recipe != "auto") return config.precision.recipe;
  return config.precision.compute == DType::kE4M3 ? "block" : "nvfp4";
}

std::string precision_in_words(const RunConfig& config) {
  return fmt::format("{} ({})", spelled(*config.precision.compute), recipe_name(config));
}

void check_keep(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& issues) {
  if (!computes_in_codes(config)) return;
  const auto report = [&](std::string problem) {
    issues.push_back({"precision.keep", config.origin_of("precision.keep"), std::move(problem)});
  };
  for (const std::string& entry : config.precision.keep) {
    if (std::string problem = problem_of(entry, model); !problem.empty()) report(std::move(problem));
  }
  const Keep keep(config.precision.keep, model);
  const bool keeps_all = keep.blocks_kept() >= model.blocks();
  if (keeps_all)
    report(fmt::format(
        "keeps all {} blocks in bf16, which leaves nothing to precision.recipe; keep fewer, as in [\"head\"]",
        model.blocks()));
}

}  // namespace strata::config
