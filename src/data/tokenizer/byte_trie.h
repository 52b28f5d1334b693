// A set of byte strings with values, asked for all its members that a text begins with.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::data {

// Immutable once built. Children of a node are consecutive, in the order of their bytes.
class ByteTrie {
 public:
  ByteTrie() { roots_.fill(-1); }
  // Values from 0 on; of equal strings the last one counts, empty strings are left out.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries);

  bool empty() const { return nodes_.empty(); }

  // Calls visit(size, value) for every member that text[at, …) begins with, short ones first.
  template <typename Visit>
  void for_each_prefix(std::string_view text, size_t at, Visit visit) const {
    if (at >= text.size()) return;
    int32_t node = roots_[static_cast<uint8_t>(text[at])];
    for (size_t next = at + 1; node >= 0; ++next) {
      const Node& now = nodes_[static_cast<size_t>(node)];
      if (now.value >= 0) visit(next - at, now.value);
      if (next == text.size()) return;
      node = child(now, static_cast<uint8_t>(text[next]));
    }
  }

 private:
  struct Node {
    int32_t value = -1;
    uint32_t first_child = 0;
    uint16_t children = 0;
    uint8_t byte = 0;
  };
  int32_t child(const Node& node, uint8_t byte) const {
    for (uint32_t i = 0; i < node.children; ++i) {
      if (nodes_[node.first_child + i].byte == byte) return static_cast<int32_t>(node.first_child + i);
    }
    return -1;
  }

  std::vector<Node> nodes_;
  std::array<int32_t, 256> roots_{};
};

}  // namespace strata::data
