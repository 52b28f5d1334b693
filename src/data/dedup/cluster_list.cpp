#include "data/dedup/cluster_list.h"

#include <fmt/core.h>

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

void ClusterList::write(FileSystem& files, const Path& path) const {
  const auto as_text = [](const DocumentNumber& n) { return fmt::format("[{}, {}]", n.part, n.document); };
  std::string content;
  for (const Cluster& cluster : largest(pairs_.size())) {
    content += fmt::format("{{\"size\": {}, \"kept\": {}, \"dropped\": [", cluster.dropped.size() + 1,
                           as_text(cluster.kept));
    for (size_t i = 0; i < cluster.dropped.size(); ++i) {
      content += (i > 0 ? ", " : "") + as_text(cluster.dropped[i]);
    }
    content += "]}\n";
  }
  write_file_atomically(files, path, content);
}

}  // namespace strata::data::dedup
