// The clusters in the decisions of a deduplication: a document that stayed and those dropped for it. For the
// report and a listing next to it.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "data/pipeline/stage.h"

namespace strata::data::dedup {

struct Cluster {
  DocumentNumber kept;
  std::vector<DocumentNumber> dropped;  // rising
  bool operator==(const Cluster&) const = default;
};

class ClusterList {
 public:
  static constexpr int64_t kBytesOfDocument = 48;  // of memory, for a dropped document, at most

  // Takes what a CorpusStage hands to its sink; decisions without an original are passed over.
  void add(uint32_t part, std::span<const Decision> decisions);
  int64_t dropped() const { return static_cast<int64_t>(pairs_.size()); }
  // The `most` largest, largest first, of equal ones the first.
  std::vector<Cluster> largest(size_t most) const;

 private:
  std::vector<std::pair<DocumentNumber, DocumentNumber>> pairs_;  // kept, dropped
};

}  // namespace strata::data::dedup
