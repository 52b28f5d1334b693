#include "observe/expert_log.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "observe/lines.h"

namespace strata::observe {
namespace {

using Json = nlohmann::ordered_json;

// Limit for an expert in a sample: beyond every run, and sums over samples and experts fit in 64 bits.
constexpr int64_t kMostTokens = int64_t{1} << 44;

std::string line_of(const ExpertSample& sample) {
  Json layers = Json::array(), tokens = Json::array();
  for (const LayerTokens& layer : sample.layers) {
    layers.push_back(layer.layer);
    tokens.push_back(layer.tokens);
  }
  return dump_json(
             Json{{"step", sample.step}, {"steps", sample.steps}, {"layers", layers}, {"tokens", tokens}}) +
         "\n";
}

std::optional<ExpertSample> sample_of(std::string_view text) {
  try {
    const Json line = parse_json<Json>(text);
    ExpertSample sample{.step = line.at("step"), .steps = line.at("steps"), .layers = {}};
    const std::vector<int64_t> layers = line.at("layers");
    const std::vector<std::vector<int64_t>> tokens = line.at("tokens");
    if (sample.steps < 1 || sample.steps > sample.step || layers.size() != tokens.size()) return std::nullopt;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (!std::all_of(tokens[i].begin(), tokens[i].end(),
                       [](int64_t n) { return n >= 0 && n <= kMostTokens; }))
        return std::nullopt;
      sample.layers.push_back({layers[i], tokens[i]});
    }
    return sample;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

bool are_alike(const std::vector<LayerTokens>& a, const std::vector<LayerTokens>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const LayerTokens& x, const LayerTokens& y) {
    return x.layer == y.layer && x.tokens.size() == y.tokens.size();
  });
}

void add(std::vector<LayerTokens>& to, const std::vector<LayerTokens>& layers) {
  if (to.empty()) {
    to = layers;
    return;
  }
  STRATA_CHECK(are_alike(to, layers), "[experts.jsonl] the layers or experts of two steps differ");
  for (size_t i = 0; i < to.size(); ++i) {
    for (size_t expert = 0; expert < to[i].tokens.size(); ++expert)
      to[i].tokens[expert] += layers[i].tokens[expert];
  }
}

}  // namespace

ExpertLog::ExpertLog(FileSystem& files, const Path& folder, int64_t interval, int64_t step)
    : files_(files), path_(folder / "experts.jsonl"), interval_(interval) {
  const std::string content = read_or_empty(path_);
  std::string kept;
  for_each_line(content, [&](std::string_view line) {
    std::optional<ExpertSample> sample = sample_of(line);
    if (!sample || sample->step > step) return;
    if (!samples_.empty() && !are_alike(samples_.front().layers, sample->layers)) return;
    kept += line;
    // Samples with more steps are merged ones.
    while (interval_ < sample->steps) interval_ *= 2;
    samples_.push_back(std::move(*sample));
  });
  if (kept != content) write_file_atomically(files, path_, kept);
  file_ = files.open_for_writing(path_, /*keep=*/true);
}

ExpertLog::~ExpertLog() = default;

void ExpertLog::halve() {
  std::vector<ExpertSample> halved;
  std::string content;
  for (size_t i = 0; i < samples_.size(); i += 2) {
    ExpertSample& sample = samples_[i];
    if (i + 1 < samples_.size()) {
      sample.step = samples_[i + 1].step;
      sample.steps += samples_[i + 1].steps;
      add(sample.layers, samples_[i + 1].layers);
    }
    content += line_of(sample);
    halved.push_back(std::move(sample));
  }
  samples_ = std::move(halved);
  interval_ *= 2;
  file_.reset();
  write_file_atomically(files_, path_, content);
  file_ = files_.open_for_writing(path_, /*keep=*/true);
}

void ExpertLog::step(int64_t step, const std::vector<LayerTokens>& layers) {
  open_.step = step;
  ++open_.steps;
  add(open_.layers, layers);
  if (step == 1 || step % interval_ == 0) flush();
}

void ExpertLog::flush() {
  if (open_.steps == 0) return;
  // Samples that another model or tool left in the file are not part of this run's history.
  if (!samples_.empty() && !are_alike(samples_.front().layers, open_.layers)) {
    samples_.clear();
    file_.reset();
    write_file_atomically(files_, path_, "");
    file_ = files_.open_for_writing(path_, /*keep=*/true);
  }
  file_->append(line_of(open_));
  samples_.push_back(std::exchange(open_, {}));
  if (samples_.size() > kMostKept) halve();
}

std::vector<ExpertSample> read_expert_log(const Path& path) {
  std::vector<ExpertSample> samples;
  const std::string content = read_or_empty(path);
  for_each_line(content, [&](std::string_view line) {
    if (std::optional<ExpertSample> sample = sample_of(line)) samples.push_back(std::move(*sample));
  });
  return samples;
}

}  // namespace strata::observe
