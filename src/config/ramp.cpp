#include "config/ramp.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "config/layout.h"
#include "config/objective.h"

namespace strata::config {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

int64_t size_at(const Ramp& ramp, int64_t tokens, int64_t full) {
  int64_t size = full;
  for (const RampStep& step : ramp)
    if (step.tokens <= tokens) size = step.size;
  return size;
}

bool follows_noise(const RunConfig& config) {
  return config.training.batch_ramp.is_word();
}

// The batches of "noise_scale".
std::vector<int64_t> doublings(const RunConfig& config) {
  const int64_t full = config.training.global_batch_size, parts = mesh_of(config).batch_ranks();
  const int64_t rows = config.training.micro_batch_size.value_or(1);
  const int64_t stages = std::max<int64_t>(1, config.parallel.pipeline);
  const auto is_usable = [&](int64_t batch) {
    const int64_t micro_batches = batch / (parts * rows);
    return batch % (parts * rows) == 0 && micro_batches >= 2 && micro_batches % stages == 0;
  };
  std::vector<int64_t> sizes{full};
  while (sizes.back() % 2 == 0 && is_usable(sizes.back() / 2)) sizes.push_back(sizes.back() / 2);
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

// Steps of `places` token positions until `tokens` more are done.
int64_t steps_for(int64_t tokens, int64_t places, double filled) {
  if (filled >= 1) return (tokens + places - 1) / places;
  return static_cast<int64_t>(
      std::ceil(static_cast<double>(tokens) / (static_cast<double>(places) * filled)));
}

}  // namespace

std::vector<int64_t> batch_sizes(const RunConfig& config) {
  if (follows_noise(config)) return doublings(config);
  std::set<int64_t> sizes{config.training.global_batch_size};
  for (const RampStep& step : *config.training.batch_ramp) sizes.insert(step.size);
  return {sizes.begin(), sizes.end()};
}

int64_t shared_sequences(const RunConfig& config) {
  int64_t shared = sequences_of_part(config, config.training.global_batch_size);
  if (follows_noise(config)) return shared;
  for (const int64_t batch : batch_sizes(config)) shared = std::gcd(shared, sequences_of_part(config, batch));
  return shared;
}

Ramps::Ramps(const RunConfig& config, std::optional<int64_t> batch)
    : sequence_length_(config.training.sequence_length) {
  const TrainingTable& training = config.training;
  Ramp batches;
  if (follows_noise(config)) {
    batches = {{0, batch.value_or(batch_sizes(config).front())}};
  } else {
    batches = *training.batch_ramp;
  }
  std::set<int64_t> begins{0};
  for (const Ramp* ramp : {static_cast<const Ramp*>(&batches), &training.length_warmup})
    for (const RampStep& step : *ramp) begins.insert(step.tokens);
  for (const int64_t tokens : begins) {
    const Entry entry{tokens,
                      {size_at(batches, tokens, training.global_batch_size),
                       size_at(training.length_warmup, tokens, training.sequence_length)}};
    if (entries_.empty() || !(entries_.back().size == entry.size)) entries_.push_back(entry);
  }
}

std::vector<StepSize> Ramps::sizes() const {
  std::vector<StepSize> sizes;
  for (const Entry& entry : entries_) sizes.push_back(entry.size);
  return sizes;
}

StepSize Ramps::at(int64_t tokens) const {
  const auto after = std::find_if(entries_.begin() + 1, entries_.end(),
                                  [&](const Entry& entry) { return entry.tokens > tokens; });
  return std::prev(after)->size;
}

std::vector<Ramps::Period> Ramps::periods(int64_t tokens, const End& end, double filled) const {
  std::vector<Period> out;
  Period next;
  next.tokens = tokens;
  auto later = entries_.begin() + 1;
  while (next.steps_before < end.steps && next.tokens < end.tokens && next.samples < end.samples) {
    later =
        std::find_if(later, entries_.end(), [&](const Entry& entry) { return entry.tokens > next.tokens; });
    next.size = std::prev(later)->size;
    const int64_t places = next.size.sequences * sequence_length_;
    const auto until = [&](int64_t to) {
      return to == kNoLimit ? kNoLimit : steps_for(to - next.tokens, places, filled);
    };
    next.steps = std::min(end.steps - next.steps_before, until(end.tokens));
    if (end.samples != kNoLimit)
      next.steps = std::min(next.steps, steps_for(end.samples - next.samples, next.size.sequences, 1));
    if (later != entries_.end()) next.steps = std::min(next.steps, until(later->tokens));
    out.push_back(next);
    next.steps_before += next.steps;
    next.samples += next.steps * next.size.sequences;
    const double step_tokens = static_cast<double>(places) * std::min(1.0, filled);
    next.tokens += filled >= 1
                       ? next.steps * places
                       : static_cast<int64_t>(std::ceil(static_cast<double>(next.steps) * step_tokens));
  }
  return out;
}

int64_t Ramps::steps(int64_t tokens, const End& end, double filled) const {
  const std::vector<Period> all = periods(tokens, end, filled);
  return all.empty() ? 0 : all.back().steps_before + all.back().steps;
}

int64_t Ramps::samples(int64_t tokens, const End& end, double filled) const {
  const std::vector<Period> all = periods(tokens, end, filled);
  return all.empty() ? 0 : all.back().samples + all.back().steps * all.back().size.sequences;
}

std::string Ramps::str() const {
  std::string text;
  for (const Entry& entry : entries_) {
    if (!text.empty())
      text += fmt::format("; from {} tokens on ", human_count(static_cast<double>(entry.tokens)));
    text += fmt::format("{}{} in sequences of {}{}", entry.size.sequences, text.empty() ? " samples" : "",
                        entry.size.length, text.empty() ? " tokens" : "");
  }
  return text;
}

std::string ramps_in_words(const RunConfig& config) {
  const std::string text = Ramps(config).str();
  if (follows_noise(config))
    return fmt::format("{}; doubled with the noise scale up to {}", text, config.training.global_batch_size);
  return Ramps(config).changes() ? text : "";
}

std::vector<StepSize> step_sizes(const RunConfig& config) {
  std::vector<StepSize> sizes{{config.training.global_batch_size, config.training.sequence_length}};
  const auto add = [&](const StepSize& size) {
    if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
  };
  // Without noise they are all in one series.
  for (const int64_t batch : follows_noise(config) ? batch_sizes(config) : std::vector<int64_t>{0})
    for (const StepSize& size : Ramps(config, batch).sizes()) add(size);
  return sizes;
}

size_t training_program(const program::ProgramSet& set, const RunConfig& config, const StepSize& size) {
  const int64_t micro_batches = micro_batches_of_part(config, size.sequences);
  const int64_t pieces = config.training.sequence_length / size.length;
  for (size_t i = 0; i < set.programs.size(); ++i) {
    const program::Request& request = set.programs[i].request;
    if (request.kind == program::Kind::kTrain && request.micro_batches == micro_batches &&
        request.sequences == *config.training.micro_batch_size * pieces)
      return i;
  }
  throw InternalError("[training] no program has {} sequences of {} tokens", size.sequences, size.length);
}

namespace {

constexpr const char* kBatchKey = "training.batch_ramp";
constexpr const char* kLengthKey = "training.length_warmup";

// What two ramps have in common.
void check_ramp(const char* key, const Ramp& ramp, const char* full_key, int64_t full,
                const ReportIssue& report) {
  if (ramp.empty()) return;
  if (ramp.front().tokens != 0) {
    report(key, fmt::format("found [[{}, {}], …], expected the size from the first step on: [[0, {}], …]",
                            ramp.front().tokens, ramp.front().size, ramp.front().size));
    return;
  }
  for (size_t i = 1; i < ramp.size(); ++i) {
    const RampStep &before = ramp[i - 1], &step = ramp[i];
    if (step.tokens > before.tokens && step.size > before.size) continue;
    report(key, fmt::format("found [{}, {}] after [{}, {}], expected more tokens and a larger size",
                            step.tokens, step.size, before.tokens, before.size));
    return;
  }
  if (ramp.back().size != full) {
    report(key, fmt::format("found {} as its last size, expected {} ({})", ramp.back().size, full, full_key));
  }
}

void check_noise_scale(const RunConfig& config, const ReportIssue& report) {
  if (config.training.tokens && config.schedule.steps.is_word()) {
    report(kBatchKey,
           "found \"noise_scale\" with training.tokens, whose number of steps is then unknown; set "
           "training.steps, or schedule.steps for the learning rate");
  }
  if (!config.data.phase.empty()) {
    report(kBatchKey,
           "found \"noise_scale\" with [[data.phase]], which begins at a step whose sample is then unknown; "
           "expected [[tokens, sequences], …]");
  }
}

}  // namespace

void check_ramps(const RunConfig& config, const ReportIssue& report) {
  const TrainingTable& training = config.training;
  check_ramp(kLengthKey, training.length_warmup, "training.sequence_length", training.sequence_length,
             report);
  for (const RampStep& step : training.length_warmup) {
    if (training.sequence_length % step.size == 0) continue;
    report(kLengthKey,
           fmt::format("found {}, which does not divide sequence_length = {}; expected a divisor of it",
                       step.size, training.sequence_length));
    break;
  }
  if (follows_noise(config)) return check_noise_scale(config, report);
  check_ramp(kBatchKey, *training.batch_ramp, "training.global_batch_size", training.global_batch_size,
             report);
  if (!training.micro_batch_size.value || mesh_of(config).ranks() > 1) return;
  for (const RampStep& step : *training.batch_ramp) {
    if (step.size % *training.micro_batch_size == 0) continue;
    report(kBatchKey,
           fmt::format("found {} sequences, which micro_batch_size = {} does not divide; expected a "
                       "multiple of it",
                       step.size, *training.micro_batch_size));
    break;
  }
}

std::string unfinished_ramp(const RunConfig& config) {
  const Ramps ramps(config);
  const int64_t steps = total_steps(config);
  if (!ramps.changes() || steps < 1) return {};
  const StepSize last = ramps.periods(0, {.steps = steps}).back().size;
  if (last.length != config.training.sequence_length) return kLengthKey;
  if (!follows_noise(config) && last.sequences != config.training.global_batch_size) return kBatchKey;
  return {};
}

void require_ramps(const RunConfig& config, const models::ModelConfig& model) {
  const TrainingTable& training = config.training;
  const graph::Mesh mesh = mesh_of(config);
  if (!training.length_warmup.empty() && model.architecture == models::Architecture::kEncoderDecoder) {
    throw ConfigError(
        "[{}] found it for an encoder-decoder, whose target has no tokens next to each place of its source; "
        "leave it out",
        kLengthKey);
  }
  const int64_t chunks = mesh.size(graph::Axis::kContext) > 1 ? 2 * mesh.size(graph::Axis::kContext) : 1;
  for (const RampStep& step : training.length_warmup) {
    if (step.size % chunks == 0) continue;
    throw ConfigError(
        "[{}] found {}, but {} ranks of parallel.context share a sequence in {} equal chunks; "
        "expected a multiple of {}",
        kLengthKey, step.size, mesh.size(graph::Axis::kContext), chunks, chunks);
  }
  if (follows_noise(config) && batch_sizes(config).size() < 2) {
    throw ConfigError(
        "[{}] found \"noise_scale\" with global_batch_size = {}, micro_batch_size = {} and {} ranks that share a "
        "batch: half of that batch is less than two micro-batches for each rank; raise global_batch_size",
        kBatchKey, training.global_batch_size, *training.micro_batch_size, mesh.batch_ranks());
  }
}

}  // namespace strata::config
