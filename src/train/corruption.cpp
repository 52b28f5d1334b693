#include "train/corruption.h"

#include <fmt/core.h>

namespace strata::training {

std::string text_of(const Corruption& corruption) {
  const std::string tensor = corruption.tensor ? " (" + *corruption.tensor + ")" : "";
  if (corruption.where == "snapshot" || corruption.where == "copy") {
    return fmt::format("the {} of rank {}{} is damaged in memory", corruption.where,
                       corruption.rank.value_or(0), tensor);
  }
  if (corruption.where == "computation") {
    return corruption.rank
               ? fmt::format(
                     "rank {} computed a micro-batch with another result than two other computations of it",
                     *corruption.rank)
               : "two ranks computed the same micro-batch with different results";
  }
  if (!corruption.rank) {
    return fmt::format("{}{} of ranks {} differ, and no majority shows which are wrong", corruption.where,
                       tensor, corruption.ranks);
  }
  return fmt::format("{}{} of rank {} differ from those of its replicas (ranks {})", corruption.where, tensor,
                     *corruption.rank, corruption.ranks);
}

void report_corruption(const Corruption& corruption, int64_t step, Reporter& reporter) {
  observe::MetricFields fields{{"where", corruption.where}};
  if (corruption.tensor) fields.push_back({"tensor", *corruption.tensor});
  if (corruption.rank) fields.push_back({"rank", static_cast<int64_t>(*corruption.rank)});
  fields.push_back({"found_by", corruption.found_by});
  reporter.event("corruption", step, fields);
  reporter.note(fmt::format("corruption: step {}: {}", step, text_of(corruption)));
}

}  // namespace strata::training
