#include "data/samples/sample_source.h"

#include <algorithm>
#include <cmath>
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

}  // namespace

RowShape SampleSource::checked_shape(const SampleOptions& options) {
  const int64_t length = options.sequence_length;
  if (length < 1) throw ConfigError("[training.sequence_length] is {}; expected at least 1", length);
  const Objective objective = options.objective.kind;
  if (objective != Objective::kCausal && options.fim.rate > 0) {
    throw ConfigError(
        "[data.fim_rate] is {}, and fill-in-the-middle is of causal training alone; leave it at 0",
        options.fim.rate);
  }
  if (objective == Objective::kSpanCorruption && options.pack != Pack::kStream) {
    throw ConfigError("[data.pack] span corruption takes windows of the plain stream; set \"stream\"");
  }
  check_objective(options.objective, length);
  return row_shape(options.objective, length);
}

std::vector<SampleSource::Source> SampleSource::make_sources(const std::vector<SampleSourceSpec>& specs,
                                                             const SampleOptions& options,
                                                             const RowShape& shape) {
  if (specs.empty()) throw ConfigError("[data] names no source; give data.train or a [[data.source]]");
  std::vector<Source> sources;
  for (size_t k = 0; k < specs.size(); ++k) {
    const int64_t tokens = specs[k].corpus.tokens();
    // The first source keeps the run's seed; the others get their own order.
    const uint64_t seed = k == 0 ? options.seed : hash64(&k, sizeof k, options.seed);
    Source source{specs[k].name, specs[k].corpus, (tokens - shape.look_ahead) / shape.window, seed,
                  std::nullopt};
    if (options.pack == Pack::kBestFit) {
      source.plan.emplace(source.corpus.document_ends(), shape.window);
      source.windows = source.plan->rows();
    }
    if (tokens < 1 || source.windows < 1) {
      throw ConfigError(
          "[data] source \"{}\" has {} tokens; one sample of training.sequence_length = {} needs {}; add "
          "text or "
          "shorten the sequence",
          source.name, tokens, options.sequence_length,
          options.pack == Pack::kBestFit ? 2 : shape.window + shape.look_ahead);
    }
    sources.push_back(std::move(source));
  }
  return sources;
}

Mixture SampleSource::make_mixture(const std::vector<SampleSourceSpec>& specs,
                                   const std::vector<Source>& sources, const SampleOptions& options,
                                   const RowShape& shape) {
  MixturePhase initial;
  std::vector<int64_t> limits;
  for (size_t k = 0; k < specs.size(); ++k) {
    initial.weights.push_back(specs[k].weight);
    const int64_t epochs = specs[k].max_epochs > 0 ? specs[k].max_epochs : options.epochs;
    const bool bounded = epochs > 0 && epochs < Mixture::kUnbounded / sources[k].windows;
    limits.push_back(bounded ? epochs * sources[k].windows : Mixture::kUnbounded);
    if (specs[k].max_tokens > 0) {
      const int64_t windows = std::max<int64_t>(1, specs[k].max_tokens / shape.window);
      limits.back() = std::min(limits.back(), windows);
    }
  }
  check_weights(initial.weights, specs.size(), "data.source");
  std::vector<MixturePhase> phases{initial};
  for (const MixturePhase& phase : options.phases) {
    check_weights(phase.weights, specs.size(), "data.phase");
    if (phase.first_sample == 0 && phases.size() == 1) {
      phases[0] = phase;
      continue;
    }
    if (phase.first_sample <= phases.back().first_sample) {
      throw ConfigError(
          "[data.phase] starts at sample {}, not after the one before ({}); sort the phases by from_step",
          phase.first_sample, phases.back().first_sample);
    }
    phases.push_back(phase);
  }
  return {phases, limits};
}

SampleSource::SampleSource(const std::vector<SampleSourceSpec>& specs, SampleOptions options)
    : options_(std::move(options)),
      shape_(checked_shape(options_)),
      sources_(make_sources(specs, options_, shape_)),
      skip_(options_.skip),
      mixture_(make_mixture(specs, sources_, options_, shape_)),
      total_(mixture_.total()) {
  if (total_ != Mixture::kUnbounded) total_ = skip_.trained_before(total_);
}

double SampleSource::padding(int64_t source) const {
  const auto& plan = sources_[static_cast<size_t>(source)].plan;
  return plan ? plan->padding() : 0.0;
}

int64_t SampleSource::samples_of(int64_t source, int64_t trained) const {
  trained = std::min(trained, total_);
  return trained > 0 ? mixture_.given(source, skip_.global_of(trained - 1) + 1) : 0;
}

double SampleSource::epochs(int64_t source, int64_t trained) const {
  return static_cast<double>(samples_of(source, trained)) / static_cast<double>(samples_per_epoch(source));
}

double SampleSource::share(int64_t source, int64_t trained) const {
  int64_t all = 0;
  for (size_t k = 0; k < sources_.size(); ++k) all += samples_of(static_cast<int64_t>(k), trained);
  return all > 0 ? static_cast<double>(samples_of(source, trained)) / static_cast<double>(all) : 0.0;
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
  int64_t counted = 0;
  for (int64_t i = 0; i < sequences; ++i) {
    const Batch row = row_of(out, shape_, i);
    if (first + i >= total_) {
      fill_padding(shape_, 0, 0, row);
      continue;
    }
    const Place at = place(first + i);
    const Source& source = sources_[static_cast<size_t>(at.source)];
    RowDraws draws(options_.seed, at.global_sample);
    counted += source.plan ? fill_packed(source, at, draws, row, scratch)
                           : fill_window(source, at, draws, row, scratch);
  }
  return counted;
}

int64_t SampleSource::fill_window(const Source& source, const Place& at, RowDraws& draws, const Batch& row,
                                  BatchScratch& scratch) const {
  const int64_t begin = at.window * shape_.window, n = shape_.window + shape_.look_ahead;
  scratch.ids.resize(static_cast<size_t>(n));
  scratch.starts.resize(static_cast<size_t>(n));
  int32_t* ids = scratch.ids.data();
  source.corpus.read(begin, n, ids);
  const bool documents = options_.pack == Pack::kDocuments;
  if (documents || options_.fim.rate > 0) {
    source.corpus.mark_document_starts(begin, n, ids, scratch.starts.data());
  }
  if (options_.fim.rate > 0) {
    int64_t piece = 0;
    for (int64_t j = 1; j <= n; ++j) {
      if (j < n && scratch.starts[static_cast<size_t>(j)] == 0) continue;
      move_middle(source, begin + piece, at.epoch, j - piece, ids + piece, scratch);
      piece = j;
    }
  }
  const uint8_t* starts = documents ? scratch.starts.data() : nullptr;
  return fill_objective(options_.objective, shape_, ids, starts, n, 0, draws, scratch.lengths, row);
}

void SampleSource::move_middle(const Source& source, int64_t begin, int64_t epoch, int64_t n, int32_t* ids,
                               BatchScratch& scratch) const {
  constexpr uint32_t kStream = 0x66696d;  // "fim"
  fill_in_the_middle(ids, n, options_.fim, {source.seed, kStream}, static_cast<uint64_t>(begin),
                     static_cast<uint32_t>(epoch), scratch.text);
}

// One row of packed documents.
int64_t SampleSource::fill_packed(const Source& source, const Place& at, RowDraws& draws, const Batch& row,
                                  BatchScratch& scratch) const {
  const bool causal = options_.objective.kind == Objective::kCausal;
  scratch.ids.resize(static_cast<size_t>(shape_.window + shape_.look_ahead));
  int32_t* ids = scratch.ids.data();
  int64_t counted = 0;
  int64_t place = 0;
  for (const BestFitPlan::Piece& piece : source.plan->row(at.window)) {
    const int64_t known = piece.length + (piece.more ? shape_.look_ahead : 0);
    source.corpus.read(piece.begin, known, ids);
    if (options_.fim.rate > 0) move_middle(source, piece.begin, at.epoch, known, ids, scratch);
    const Batch part{row.tokens + place, row.targets + place, row.positions + place, row.kv_begin + place};
    if (causal) {
      for (int64_t j = 0; j < piece.length; ++j) {
        part.tokens[j] = ids[j];
        part.targets[j] = j + 1 < known ? ids[j + 1] : -1;
      }
      counted += known - 1;
    } else {
      counted += fill_masked(ids, piece.length, options_.objective, draws, part);
    }
    for (int64_t j = 0; j < piece.length; ++j) {
      part.positions[j] = static_cast<int32_t>(j);
      part.kv_begin[j] = static_cast<int32_t>(place);
    }
    place += piece.length;
  }
  fill_padding(shape_, place, 0, row);
  return counted;
}

}  // namespace strata::data
