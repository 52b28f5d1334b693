// The clusters that the decisions of a deduplication tell of: a document that stayed and those dropped for
// it. For a listing beside the report. 16 bytes a dropped document in memory.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/file.h"
#include "data/pipeline/stage.h"

namespace strata::data::dedup {

struct Cluster {
  DocumentNumber kept;
  std::vector<DocumentNumber> dropped;  // rising
  bool operator==(const Cluster&) const = default;
};

class ClusterList {
 public:
  // Takes what a CorpusStage hands to its sink; decisions without an original are passed over.
  void add(uint32_t part, std::span<const Decision> decisions);
  // The `most` largest, largest first, of equal ones the first.
  std::vector<Cluster> largest(size_t most) const;
  // All of them so, a JSON object a line: {"size": 3, "kept": [part, document], "dropped": [[part, document],
  // ...]}.
  void write(FileSystem& files, const Path& path) const;

 private:
  std::vector<std::pair<DocumentNumber, DocumentNumber>> pairs_;  // kept, dropped
};

}  // namespace strata::data::dedup
