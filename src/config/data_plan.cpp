#include "config/data_plan.h"

#include <fmt/format.h>

#include "base/clock.h"

namespace strata::config {

std::vector<SourcePlan> plan_sources(const RunData& data, const data::SampleSource& source, int64_t samples) {
  std::vector<SourcePlan> plan;
  for (size_t k = 0; k < data.sources.size(); ++k) {
    const auto number = static_cast<int64_t>(k);
    plan.push_back({data.sources[k].name, data.sources[k].corpus.tokens(), source.share(number, samples),
                    source.epochs(number, samples)});
  }
  return plan;
}

std::string to_string(const std::vector<SourcePlan>& plan) {
  std::string out;
  for (const SourcePlan& source : plan) {
    if (plan.size() > 1)
      out += fmt::format("{}{} {:.1f} % of the tokens, ", out.empty() ? "" : "; ", source.name,
                         100 * source.share);
    out += fmt::format("{:.3g} epochs", source.epochs);
  }
  return out;
}

std::vector<std::string> repetition_warnings(const std::vector<SourcePlan>& plan) {
  constexpr double kWorthwhile = 4;
  std::vector<std::string> out;
  for (const SourcePlan& source : plan) {
    if (source.epochs <= kWorthwhile) continue;
    out.push_back(fmt::format(
        "data: {} has {} tokens and will be read {:.3g} times; beyond {:.0f} epochs repeated "
        "text helps less and less (Muennighoff et al. 2023). Add more text, {}or train fewer steps",
        source.name, human_count(static_cast<double>(source.tokens)), source.epochs, kWorthwhile,
        plan.size() > 1 ? "lower its weight, set max_epochs " : ""));
  }
  return out;
}

}  // namespace strata::config
