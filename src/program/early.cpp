#include "program/early.h"

#include <algorithm>
#include <optional>

namespace strata::program {
namespace {

bool overlap(const std::vector<ByteRange>& a, const std::vector<ByteRange>& b) {
  for (const ByteRange& x : a) {
    for (const ByteRange& y : b) {
      if (x.begin < y.end && y.begin < x.end) return true;
    }
  }
  return false;
}

bool conflict(const Access& a, const Access& b) {
  return overlap(a.writes, b.writes) || overlap(a.writes, b.reads) || overlap(a.reads, b.writes);
}

bool communicates(const Access& access) {
  return access.queue == graph::Queue::kCommunication;
}

// The earliest possible start; nullopt: at the end of the list at the earliest.
std::optional<Early> place_in(std::span<const Access> action, const Access& moved) {
  Early early;
  for (size_t i = action.size(); i-- > 0;) {
    if (!conflict(action[i], moved)) continue;
    // Instructions of this queue finish some time after their place. A wait for one there would stall
    // computation; at the next one most of its time has passed.
    size_t from = i + 1;
    if (communicates(action[i])) {
      early.after = std::max(early.after, static_cast<int32_t>(i));
      while (from < action.size() && !communicates(action[from])) ++from;
    }
    // After all passes of a loop.
    while (from < action.size() && from > 0 && action[from].loop != graph::kNone &&
           action[from].loop == action[from - 1].loop)
      ++from;
    early.before = std::max(early.before, static_cast<int32_t>(from));
    if (early.before == std::ssize(action)) return std::nullopt;
    if (communicates(action[i])) break;  // those before it are done when it is
  }
  return early;
}

}  // namespace

std::vector<Early> find_early(std::span<const Access> action, std::span<const Access> update) {
  std::vector<Early> found;
  for (size_t i = 0; i < update.size(); ++i) {
    if (!communicates(update[i]) || update[i].in_order) continue;
    const auto before = update.first(i);
    if (std::any_of(before.begin(), before.end(),
                    [&](const Access& one) { return conflict(one, update[i]); }))
      continue;
    std::optional<Early> early = place_in(action, update[i]);
    if (!early) continue;
    early->instruction = static_cast<int32_t>(i);
    found.push_back(*early);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Early& a, const Early& b) { return a.before < b.before; });
  return found;
}

}  // namespace strata::program
