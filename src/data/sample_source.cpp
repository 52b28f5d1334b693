#include "data/sample_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"

namespace strata::data {
namespace {

void check_weights(const std::vector<double>& weights, size_t sources, const char* where) {
  if (weights.size() != sources) {
    throw ConfigError("[{}] has {} weights for {} sources; give one for each", where, weights.size(),
                      sources);
  }
  bool any = false;
  for (const double weight : weights) {
    if (!(weight >= 0) || !std::isfinite(weight)) {
      throw ConfigError("[{}] has the weight {}; expected a number of at least 0", where, weight);
    }
    any = any || weight > 0;
  }
  if (!any)
    throw ConfigError("[{}] all weights are 0; at least one source must have a weight above 0", where);
}

Mixture make_mixture(const std::vector<SampleSourceSpec>& sources, const SampleOptions& options) {
  if (sources.empty()) throw ConfigError("[data] names no source; give data.train or a [[data.source]]");
  if (options.sequence_length < 1) {
    throw ConfigError("[training.sequence_length] is {}; expected at least 1", options.sequence_length);
  }
  MixturePhase initial;
  std::vector<int64_t> limits;
  for (const SampleSourceSpec& source : sources) {
    const int64_t windows = (source.corpus.tokens() - 1) / options.sequence_length;
    if (source.corpus.tokens() < 1 || windows < 1) {
      throw ConfigError(
          "[data] source \"{}\" has {} tokens; one sample of training.sequence_length = {} needs {}; "
          "add text or shorten the sequence",
          source.name, source.corpus.tokens(), options.sequence_length, options.sequence_length + 1);
    }
    initial.weights.push_back(source.weight);
    const int64_t epochs = source.max_epochs > 0 ? source.max_epochs : options.epochs;
    const bool bounded = epochs > 0 && epochs < Mixture::kUnbounded / windows;
    limits.push_back(bounded ? epochs * windows : Mixture::kUnbounded);
  }
  check_weights(initial.weights, sources.size(), "data.source");
  std::vector<MixturePhase> phases{initial};
  for (const MixturePhase& phase : options.phases) {
    check_weights(phase.weights, sources.size(), "data.phase");
    if (phase.first_sample == 0 && phases.size() == 1) {
      phases[0] = phase;
      continue;
    }
    if (phase.first_sample <= phases.back().first_sample) {
      throw ConfigError(
          "[data.phase] starts at sample {}, not after the one before ({}); sort the phases by "
          "from_step",
          phase.first_sample, phases.back().first_sample);
    }
    phases.push_back(phase);
  }
  return {phases, limits};
}

}  // namespace

SampleSource::SampleSource(std::vector<SampleSourceSpec> sources, SampleOptions options)
    : options_(std::move(options)), skip_(options_.skip), mixture_(make_mixture(sources, options_)) {
  for (size_t k = 0; k < sources.size(); ++k) {
    const int64_t windows = (sources[k].corpus.tokens() - 1) / options_.sequence_length;
    // The first source keeps the run's seed; the others get their own order.
    const uint64_t seed = k == 0 ? options_.seed : hash64(&k, sizeof k, options_.seed);
    sources_.push_back({std::move(sources[k].name), std::move(sources[k].corpus), windows, seed});
  }
  total_ = mixture_.total();
  if (total_ != Mixture::kUnbounded) total_ = skip_.trained_before(total_);
}

int64_t SampleSource::samples_per_epoch() const {
  int64_t sum = 0;
  for (const Source& source : sources_) sum += source.windows;
  return sum;
}

SampleSource::Place SampleSource::place(int64_t sample) const {
  const int64_t global = skip_.global_of(sample);
  const auto [k, index] = mixture_(global);
  const Source& source = sources_[static_cast<size_t>(k)];
  const int64_t epoch = index / source.windows;
  int64_t window = index % source.windows;
  if (options_.shuffle) {
    const Permutation order(static_cast<uint64_t>(source.windows), source.seed, static_cast<uint64_t>(epoch));
    window = static_cast<int64_t>(order(static_cast<uint64_t>(window)));
  }
  return {k, epoch, window, global};
}

int64_t SampleSource::fill(int64_t first, int64_t sequences, const Batch& out, BatchScratch& scratch) const {
  STRATA_CHECK(first >= 0 && sequences >= 0, "samples {} + {}", first, sequences);
  const int64_t length = options_.sequence_length;
  scratch.ids.resize(static_cast<size_t>(length) + 1);
  scratch.starts.resize(static_cast<size_t>(length) + 1);
  int64_t counted = 0;
  for (int64_t row = 0; row < sequences; ++row) {
    int32_t* tokens = out.tokens + row * length;
    int32_t* targets = out.targets + row * length;
    int32_t* positions = out.positions + row * length;
    int32_t* kv_begin = out.kv_begin + row * length;
    if (first + row >= total_) {
      fill_padding(length, tokens, targets, positions, kv_begin);
      continue;
    }
    const Place at = place(first + row);
    const TokenCorpus& corpus = sources_[static_cast<size_t>(at.source)].corpus;
    const int64_t begin = at.window * length;
    corpus.read(begin, length + 1, scratch.ids.data());
    const bool documents = options_.pack == Pack::kDocuments;
    if (documents) corpus.mark_document_starts(begin, length + 1, scratch.ids.data(), scratch.starts.data());
    counted += fill_row(scratch.ids.data(), documents ? scratch.starts.data() : nullptr, length, 0, tokens,
                        targets, positions, kv_begin);
  }
  return counted;
}

int64_t fill_row(const int32_t* ids, const uint8_t* starts, int64_t length, int64_t count_from,
                 int32_t* tokens, int32_t* targets, int32_t* positions, int32_t* kv_begin) {
  const auto bytes = static_cast<size_t>(length) * sizeof(int32_t);
  std::memcpy(tokens, ids, bytes);
  std::memcpy(targets, ids + 1, bytes);
  std::fill(targets, targets + std::min(count_from, length), -1);
  int64_t counted = std::max<int64_t>(0, length - count_from);
  int32_t begin = 0;
  for (int64_t j = 0; j < length; ++j) {
    if (starts != nullptr) {
      if (j > 0 && starts[j] != 0) begin = static_cast<int32_t>(j);
      if (starts[j + 1] != 0) {
        counted -= targets[j] >= 0 ? 1 : 0;
        targets[j] = -1;
      }
    }
    kv_begin[j] = begin;
    positions[j] = static_cast<int32_t>(j) - begin;
  }
  return counted;
}

void fill_padding(int64_t length, int32_t* tokens, int32_t* targets, int32_t* positions, int32_t* kv_begin) {
  for (int64_t j = 0; j < length; ++j) {
    tokens[j] = 0;
    targets[j] = -1;
    positions[j] = 0;
    kv_begin[j] = static_cast<int32_t>(j);
  }
}

}  // namespace strata::data
