#include "data/dedup/cluster_list.h"

#include <algorithm>

namespace strata::data::dedup {

void ClusterList::add(uint32_t part, std::span<const Decision> decisions) {
  for (const Decision& decision : decisions) {
    if (decision.has_original) pairs_.push_back({decision.original, {part, decision.document}});
  }
}

std::vector<Cluster> ClusterList::largest(size_t most) const {
  auto pairs = pairs_;
  std::sort(pairs.begin(), pairs.end());
  std::vector<std::span<const std::pair<DocumentNumber, DocumentNumber>>> groups;
  for (size_t begin = 0; begin < pairs.size();) {
    size_t end = begin;
    while (end < pairs.size() && pairs[end].first == pairs[begin].first) ++end;
    groups.push_back({pairs.data() + begin, end - begin});
    begin = end;
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  std::vector<Cluster> clusters;
  for (size_t i = 0; i < std::min(most, groups.size()); ++i) {
    clusters.push_back({groups[i].front().first, {}});
    for (const auto& [kept, dropped] : groups[i]) clusters.back().dropped.push_back(dropped);
  }
  return clusters;
}

}  // namespace strata::data::dedup
