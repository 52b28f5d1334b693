#include "data/tokenizer/byte_trie.h"

#include <algorithm>

namespace strata::data {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries) {
  roots_.fill(-1);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // Level by level: a node stands for the entries [begin, end) that share its first `depth` bytes.
  struct Span {
    size_t begin;
    size_t end;
  };
  std::vector<Span> spans;
  const auto add_children = [&](Span span, size_t depth) {
    uint16_t count = 0;
    size_t at = span.begin;
    while (at < span.end && entries[at].first.size() <= depth) ++at;
    while (at < span.end) {
      const char byte = entries[at].first[depth];
      size_t end = at + 1;
      while (end < span.end && entries[end].first[depth] == byte) ++end;
      Node node{.byte = static_cast<uint8_t>(byte)};
      for (size_t i = at; i < end && entries[i].first.size() == depth + 1; ++i)
        node.value = entries[i].second;
      nodes_.push_back(node);
      spans.push_back({at, end});
      at = end;
      ++count;
    }
    return count;
  };
  add_children({0, entries.size()}, 0);
  for (size_t i = 0; i < nodes_.size(); ++i) roots_[nodes_[i].byte] = static_cast<int32_t>(i);
  size_t depth = 1;
  for (size_t level_begin = 0, level_end = nodes_.size(); level_begin < level_end; ++depth) {
    for (size_t i = level_begin; i < level_end; ++i) {
      const auto first = static_cast<uint32_t>(nodes_.size());
      const uint16_t children = add_children(spans[i], depth);
      nodes_[i].first_child = first;
      nodes_[i].children = children;
    }
    level_begin = level_end;
    level_end = nodes_.size();
  }
}

}  // namespace strata::data
