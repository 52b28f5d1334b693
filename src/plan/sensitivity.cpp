// What more of one resource would give.
#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "plan/search.h"

namespace strata::planning {

std::vector<Sensitivity> sensitivity(const SearchRequest& request, const RankedLayout& best) {
  std::vector<Sensitivity> out;
  const auto attempt = [&](std::string what, SearchRequest changed, double steps) {
    changed.keep = 1;
    Sensitivity one;
    one.what = std::move(what);
    one.devices = changed.devices;
    try {
      const SearchResult found = search_layouts(changed);
      if (!found.best.empty()) {
        one.seconds = found.best.front().seconds * steps;
        one.gain = 1 - one.seconds / best.seconds;
        one.layout = layout_in_words(found.best.front().layout);
      }
    } catch (const ConfigError&) {
      // The changed job has no layout: nothing is gained.
    }
    if (one.seconds > 0) out.push_back(std::move(one));
  };
  const double limit = request.memory_limit > 0 ? request.memory_limit
                                                : hardware::kUsableMemory * request.cluster.chip.memory.value;
  SearchRequest more = request;
  more.memory_limit = limit + 1e9;
  attempt("1 GB more memory on every device", more, 1);
  more.memory_limit = 2 * limit;
  attempt("twice the memory", more, 1);
  if (!request.cluster.links.empty()) {
    SearchRequest faster = request;
    LinkLevel& link = faster.cluster.links.back();
    link.bandwidth.value += 1e9 / 8;
    attempt(fmt::format("1 Gbit/s more of {} for every device", link.name), faster, 1);
    link.bandwidth.value = 2 * request.cluster.links.back().bandwidth.value;
    attempt(fmt::format("twice the bandwidth of {}", link.name), faster, 1);
  }
  SearchRequest wider = request;
  wider.devices *= 2;
  attempt("twice the devices", wider, 1);
  SearchRequest larger = request;
  larger.batch *= 2;
  attempt("twice the batch, for the same tokens", larger, 0.5);
  return out;
}

}  // namespace strata::planning
