#include "observe/rank_section.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/clock.h"
#include "observe/heat_map.h"
#include "observe/markup.h"

namespace strata::observe {
namespace {

std::string name_of_bin(const RankSample& sample, size_t bin) {
  const auto bins = std::ssize(sample.bins), at = static_cast<int64_t>(bin);
  const int64_t first = at * sample.ranks / bins, last = (at + 1) * sample.ranks / bins - 1;
  return first == last ? fmt::format("rank {}", first) : fmt::format("{} to {}", first, last);
}

std::string milliseconds(double value) {
  return fmt::format("{:.3g} ms", value);
}

std::string map_of(const std::vector<RankSample>& samples, const char* title, double RankFigures::*figure,
                   std::string (*text)(double)) {
  HeatMap map{.title = title,
              .rows = {},
              .columns = {},
              .first = fmt::format("step {}", samples.front().step),
              .last = fmt::format("step {}", samples.back().step),
              .text = text};
  for (size_t bin = 0; bin < samples.front().bins.size(); ++bin)
    map.rows.push_back(name_of_bin(samples.front(), bin));
  for (const RankSample& sample : samples) {
    std::vector<double>& column = map.columns.emplace_back();
    for (const RankFigures& bin : sample.bins) column.push_back(bin.*figure);
  }
  return "<div class=\"plot\">" + draw_heat_map(map) + "</div>\n";
}

// "slowest: rank 3, in 71 of the last 100 steps; …"; empty if the metrics do not contain it.
std::string slowest(const MetricsTable& metrics) {
  constexpr size_t kSteps = 100;
  const auto column = metrics.column("slowest_rank");
  const auto longest = metrics.column("step_ms_max");
  std::map<int64_t, int64_t> times;
  int64_t steps = 0;
  for (const double rank : column.last(std::min(kSteps, column.size()))) {
    if (!(rank >= 0 && rank <= 0x1p53)) continue;
    ++times[static_cast<int64_t>(rank)];
    ++steps;
  }
  if (times.empty() || longest.empty()) return "";
  const auto most = std::max_element(times.begin(), times.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format(
      "slowest: rank {}, in {} of the last {} steps; in the last step the ranks worked {} to {}", most->first,
      most->second, steps, milliseconds(metrics.last("step_ms_min")),
      milliseconds(metrics.last("step_ms_max")));
}

}  // namespace

std::string rank_section(const std::vector<RankSample>& samples, const MetricsTable& metrics) {
  if (samples.empty()) return "";
  std::string out =
      fmt::format("<section class=\"card wide\"><h2>Ranks <span class=\"muted\">&middot; {}</span></h2>\n",
                  samples.back().ranks);
  if (const std::string words = slowest(metrics); !words.empty())
    out += "<div class=\"small\">" + escape_markup(words) + "</div>\n";
  out +=
      map_of(samples, "Time of a step, without waiting for other ranks", &RankFigures::step_ms, milliseconds);
  out += map_of(samples, "Waiting for data", &RankFigures::data_wait_ms, milliseconds);
  out += map_of(samples, "Memory", &RankFigures::memory_bytes, human_bytes);
  return out + "</section>\n";
}

}  // namespace strata::observe
