#include "observe/rank_log.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "observe/lines.h"

namespace strata::observe {
namespace {

using Json = nlohmann::ordered_json;

struct Figure {
  const char* name;
  double RankFigures::*value;
};
constexpr Figure kFigures[] = {{"step_ms", &RankFigures::step_ms},
                               {"data_wait_ms", &RankFigures::data_wait_ms},
                               {"memory_bytes", &RankFigures::memory_bytes}};

void raise(RankFigures& to, const RankFigures& from) {
  for (const Figure& figure : kFigures) to.*figure.value = std::max(to.*figure.value, from.*figure.value);
}

std::string line_of(const RankSample& sample) {
  Json line{{"step", sample.step}, {"ranks", sample.ranks}};
  for (const Figure& figure : kFigures) {
    Json& values = line[figure.name];
    // Microseconds and bytes are enough.
    for (const RankFigures& bin : sample.bins) values.push_back(std::round(bin.*figure.value * 1e3) / 1e3);
  }
  return dump_json(line) + "\n";
}

std::optional<RankSample> sample_of(std::string_view text) {
  const Json line = parse_json_or_discard<Json>(text);
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer() ||
      !line.contains("ranks") || !line["ranks"].is_number_integer())
    return std::nullopt;
  RankSample sample{.step = line["step"], .ranks = line["ranks"], .bins = {}};
  if (sample.ranks < 1 || sample.step < 1) return std::nullopt;
  sample.bins.resize(static_cast<size_t>(std::min(sample.ranks, RankSample::kMostBins)));
  for (const Figure& figure : kFigures) {
    const auto values = line.find(figure.name);
    if (values == line.end() || !values->is_array() || values->size() != sample.bins.size())
      return std::nullopt;
    for (size_t i = 0; i < sample.bins.size(); ++i) {
      if (!(*values)[i].is_number()) return std::nullopt;
      sample.bins[i].*figure.value = (*values)[i];
    }
  }
  return sample;
}

}  // namespace

RankLog::RankLog(FileSystem& files, const Path& folder, int64_t ranks, int64_t interval, int64_t step)
    : interval_(interval), sums_(static_cast<size_t>(ranks)) {
  const Path path = folder / "ranks.jsonl";
  const std::string content = read_or_empty(path);
  std::string kept;
  for_each_line(content, [&](std::string_view line) {
    std::optional<RankSample> sample = sample_of(line);
    if (!sample || sample->step > step || sample->ranks != ranks) return;
    kept += line;
    keep(std::move(*sample));
  });
  if (kept != content) write_file_atomically(files, path, kept);
  file_ = files.open_for_writing(path, /*keep=*/true);
}

RankLog::~RankLog() = default;

void RankLog::keep(RankSample sample) {
  samples_.push_back(std::move(sample));
  if (samples_.size() <= kMostKept) return;
  std::vector<RankSample> halved;
  for (size_t i = 0; i < samples_.size(); ++i) {
    if (i % 2 == 0) {
      halved.push_back(std::move(samples_[i]));
      continue;
    }
    RankSample& into = halved.back();
    into.step = samples_[i].step;
    for (size_t bin = 0; bin < into.bins.size(); ++bin) raise(into.bins[bin], samples_[i].bins[bin]);
  }
  samples_ = std::move(halved);
}

void RankLog::step(int64_t step, std::span<const RankFigures> ranks) {
  STRATA_CHECK(ranks.size() == sums_.size(), "[ranks.jsonl] found figures of {} ranks: expected {}",
               ranks.size(), sums_.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (const Figure& figure : kFigures) sums_[i].*figure.value += ranks[i].*figure.value;
  }
  ++summed_;
  if (step != 1 && step % interval_ != 0) return;
  const auto count = static_cast<int64_t>(sums_.size());
  const int64_t bins = std::min(count, RankSample::kMostBins);
  RankSample sample{.step = step, .ranks = count, .bins = {}};
  for (int64_t bin = 0; bin < bins; ++bin) {
    RankFigures& most = sample.bins.emplace_back();
    for (int64_t rank = bin * count / bins; rank < (bin + 1) * count / bins; ++rank) {
      RankFigures mean = sums_[static_cast<size_t>(rank)];
      for (const Figure& figure : kFigures) mean.*figure.value /= static_cast<double>(summed_);
      raise(most, mean);
    }
  }
  std::fill(sums_.begin(), sums_.end(), RankFigures{});
  summed_ = 0;
  file_->append(line_of(sample));
  keep(std::move(sample));
}

std::vector<RankSample> read_rank_log(const Path& path) {
  std::vector<RankSample> samples;
  const std::string content = read_or_empty(path);
  for_each_line(content, [&](std::string_view line) {
    if (std::optional<RankSample> sample = sample_of(line)) samples.push_back(std::move(*sample));
  });
  return samples;
}

}  // namespace strata::observe
