#include "plan/hypothetical.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"

namespace strata::planning {
namespace {

std::optional<RankedLayout> best_of(SearchRequest request) {
  request.keep = 1;
  try {
    SearchResult found = search_layouts(request);
    if (!found.best.empty()) return std::move(found.best.front());
  } catch (const ConfigError&) {
    // No layout of this many devices can run.
  }
  return std::nullopt;
}

bool has(const ChipSpec& chip, Precision precision) {
  return chip.peak_of(precision).value > 0;
}

}  // namespace

std::vector<Hypothesis> hypotheses(const SearchRequest& request, const Catalogue& catalogue) {
  std::vector<Hypothesis> out;
  const ChipSpec& own = request.cluster.chip;
  const auto add = [&](Hypothesis one, const SearchRequest& changed) {
    std::optional<RankedLayout> best = best_of(changed);
    if (!best) return;
    one.chip = changed.cluster.chip.name;
    one.best = *std::move(best);
    // Adam's fp32 master weights and two moments, as StackProfile::optimizer_bytes has them.
    if (changed.offload) {
      SearchRequest kept = changed;
      kept.offload = false;
      one.host_bytes = price_layout(kept, one.best.layout).memory.optimizer;
    }
    out.push_back(std::move(one));
  };
  if (has(own, Precision::kFp8) && request.precision == Precision::kBf16) {
    SearchRequest narrow = request;
    narrow.precision = Precision::kFp8;
    add({.what = "fp8 matmuls", .note = "attention and loss stay in bf16, memory as now"}, narrow);
  }
  if (own.host_link.known()) {
    SearchRequest offloaded = request;
    offloaded.offload = true;
    add({.what = "optimizer in the host's memory",
         .note = "at best: the host updates as fast as its link passes gradients and weights"},
        offloaded);
  }
  std::set<std::string> seen{own.name};
  for (const ClusterSpec& cluster : catalogue.clusters) {
    if (!seen.insert(cluster.chip.name).second) continue;
    SearchRequest other = request;
    other.cluster = cluster;
    other.memory_limit = 0;
    if (!has(cluster.chip, other.precision)) {
      if (!has(cluster.chip, Precision::kFp16)) continue;
      other.precision = Precision::kFp16;
    }
    add({.what = cluster.title,
         .note = other.precision == request.precision ? "" : "in fp16",
         .cluster = cluster.name},
        other);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.best.seconds < b.best.seconds; });
  return out;
}

}  // namespace strata::planning
