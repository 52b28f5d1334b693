#include "data/samples/sample_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"

namespace strata::data {
namespace {

using enum Column;

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
    throw ConfigError("[data.fim_rate] is {}: fill-in-the-middle needs the causal objective. Set it to 0",
                      options.fim.rate);
  }
  if (objective == Objective::kSpanCorruption && options.pack != Pack::kStream) {
    throw ConfigError("[data.pack] span corruption takes windows of the plain stream; set \"stream\"");
  }
  check_objective(options.objective, length);
  return row_shape(options.objective, length);
}

std::vector<SampleSource::Source> SampleSource::make_sources(
    const std::vector<SampleSourceSpec>& specs) const {
  if (specs.empty()) throw ConfigError("[data] names no source; give data.train or a [[data.source]]");
  std::vector<Source> sources;
  for (size_t k = 0; k < specs.size(); ++k) {
    const int64_t tokens = specs[k].corpus.tokens();
    // The first source keeps the run's seed; the others get their own order.
    const uint64_t seed = k == 0 ? options_.seed : hash64(&k, sizeof k, options_.seed);
    Source source{.name = specs[k].name,
                  .corpus = specs[k].corpus,
                  .windows = (tokens - shape_.look_ahead) / shape_.window,
                  .seed = seed,
                  .plan = std::nullopt};
    if (options_.pack == Pack::kBestFit) {
      source.plan.emplace(source.corpus.document_ends(), shape_.window);
      source.windows = source.plan->rows();
    }
    if (tokens < 1 || source.windows < 1) {
      throw ConfigError(
          "[data] source \"{}\" has {} tokens; one sample of training.sequence_length = {} needs {}; add "
          "text or "
          "shorten the sequence",
          source.name, tokens, options_.sequence_length,
          options_.pack == Pack::kBestFit ? 2 : shape_.window + shape_.look_ahead);
    }
    for (const SourcePosition& at : options_.origin.sources) {
      if (at.name == source.name) go_on(source, at);
    }
    sources.push_back(std::move(source));
  }
  return sources;
}

EpochLayout SampleSource::layout_of(const Source& source) const {
  return {.window = shape_.window,
          .look_ahead = shape_.look_ahead,
          .shuffle = options_.shuffle,
          .packed = source.plan.has_value(),
          .seed = source.seed};
}

void SampleSource::go_on(Source& source, const SourcePosition& at) const {
  source.read = at.read;
  source.first_epoch = at.epoch;
  if (at.offset == 0) return;
  if (at.tokens != source.corpus.tokens()) {
    // Rows of another text: the rest of the epoch is unknown.
    ++source.first_epoch;
  } else if (at.layout == layout_of(source) && at.offset % shape_.window == 0) {
    source.begun = at.offset / shape_.window;
  } else {
    source.rest.emplace(source.corpus, at, shape_.window);
    source.rest_layout = at.layout;
  }
}

int64_t SampleSource::Source::rows_until(int64_t epoch) const {
  const int64_t whole = epoch - first_epoch - (rest ? 1 : 0);
  return std::max<int64_t>(0, epoch > first_epoch ? rest_rows() + whole * windows - begun : 0);
}

Mixture SampleSource::make_mixture(const std::vector<SampleSourceSpec>& specs) {
  MixturePhase initial;
  std::vector<int64_t> limits;
  for (size_t k = 0; k < specs.size(); ++k) {
    const Source& source = sources_[k];
    initial.weights.push_back(specs[k].weight);
    const int64_t epochs = specs[k].max_epochs > 0 ? specs[k].max_epochs : options_.epochs;
    const bool bounded = epochs > 0 && epochs < Mixture::kUnbounded / source.windows;
    limits.push_back(bounded ? source.rows_until(epochs) : Mixture::kUnbounded);
    if (specs[k].max_tokens > 0) {
      const int64_t windows = std::max<int64_t>(1, specs[k].max_tokens / shape_.window);
      limits.back() = std::min(limits.back(), std::max<int64_t>(0, windows - source.read / shape_.window));
    }
  }
  check_weights(initial.weights, specs.size(), "data.source");
  std::vector<MixturePhase> phases{initial};
  for (MixturePhase phase : options_.phases) {
    check_weights(phase.weights, specs.size(), "data.phase");
    // If several phases had started at the origin, the last of them applies there.
    const bool begun = options_.origin.sample > 0 && phase.first_sample <= options_.origin.sample;
    phase.first_sample = std::max<int64_t>(0, phase.first_sample - options_.origin.sample);
    if (begun || (phase.first_sample == 0 && phases.size() == 1)) {
      phases = {phase};
      continue;
    }
    if (phase.first_sample <= phases.back().first_sample) {
      throw ConfigError(
          "[data.phase] starts at sample {}, not after the previous one ({}); sort the phases by from_step",
          phase.first_sample + options_.origin.sample, phases.back().first_sample + options_.origin.sample);
    }
    phases.push_back(phase);
  }
  for (size_t k = 0; k < limits.size(); ++k) {
    order_ += fmt::format("{} {} {} {} {}\n", sources_[k].name, sources_[k].corpus.tokens(),
                          sources_[k].windows, sources_[k].seed, limits[k]);
  }
  for (const MixturePhase& phase : phases)
    order_ += fmt::format("{}: {}\n", phase.first_sample, fmt::join(phase.weights, " "));
  return {phases, limits};
}

SampleSource::SampleSource(const std::vector<SampleSourceSpec>& specs, SampleOptions options)
    : options_(std::move(options)),
      shape_(checked_shape(options_)),
      sources_(make_sources(specs)),
      skip_(options_.skip),
      mixture_(make_mixture(specs)),
      total_(mixture_.total()) {
  double weights = 0, filled = 0;
  for (size_t k = 0; k < specs.size(); ++k) {
    weights += specs[k].weight;
    filled += specs[k].weight * (1 - padding(static_cast<int64_t>(k)));
  }
  filled_ = filled / weights;
  if (total_ != Mixture::kUnbounded) total_ = skip_.trained_before(options_.origin.sample + total_);
}

std::string SampleSource::fingerprint() const {
  return to_hex(hash64(fmt::format("{} {} {} {}\n{}", shape_.window, shape_.look_ahead, options_.shuffle,
                                   options_.pack == Pack::kBestFit, order_)));
}

double SampleSource::padding(int64_t source) const {
  const auto& plan = sources_[static_cast<size_t>(source)].plan;
  return plan ? plan->padding() : 0.0;
}

int64_t SampleSource::tokens(int64_t first, int64_t sequences) const {
  const int64_t rows = std::clamp<int64_t>(total_ - first, 0, sequences);
  const auto is_full = [](const Source& source) { return !source.plan && !source.rest; };
  if (std::all_of(sources_.begin(), sources_.end(), is_full)) return rows * options_.sequence_length;
  int64_t places = 0;
  std::vector<BestFitPlan::Piece> pieces;
  for (int64_t i = 0; i < rows; ++i) {
    text_of(place(first + i), pieces);
    for (const BestFitPlan::Piece& piece : pieces) places += piece.length;
  }
  // A window of span corruption is longer than its encoder's row.
  return places * options_.sequence_length / shape_.window;
}

bool SampleSource::has_targets() const {
  HostBatch batch;
  batch.resize(shape_, 1);
  const Batch row = batch.view();
  BatchScratch scratch;
  for (int64_t k = 0; k < std::ssize(sources_); ++k) {
    const Source& source = sources_[static_cast<size_t>(k)];
    for (int64_t window = 0; window < source.windows; ++window) {
      RowDraws draws(options_.seed, window);
      const int64_t targets = source.plan
                                  ? fill_pieces(source, 0, source.plan->row(window), draws, row, scratch)
                                  : fill_window(source, {k, 0, window, window}, draws, row, scratch);
      if (targets > 0) return true;
    }
  }
  return false;
}

int64_t SampleSource::given(int64_t source, int64_t trained) const {
  trained = std::min(trained, total_);
  const int64_t end = trained > 0 ? skip_.global_of(trained - 1) + 1 : 0;
  return end > options_.origin.sample ? mixture_.given(source, end - options_.origin.sample) : 0;
}

SampleSource::EpochRow SampleSource::epoch_row(const Source& source, int64_t index) {
  if (index < source.rest_rows()) return {source.first_epoch, index, true};
  index += source.begun - source.rest_rows();
  return {source.first_epoch + (source.rest ? 1 : 0) + index / source.windows, index % source.windows, false};
}

SourcePosition SampleSource::position(int64_t source, int64_t given) const {
  const Source& of = sources_[static_cast<size_t>(source)];
  const EpochRow next = epoch_row(of, given);
  return {.name = of.name,
          .tokens = of.corpus.tokens(),
          .layout = next.rest ? of.rest_layout : layout_of(of),
          .epoch = next.epoch,
          .offset = next.rest ? of.rest->offset(next.row) : next.row * shape_.window,
          .read = of.read + given * shape_.window};
}

std::vector<SourcePosition> SampleSource::positions(int64_t sample) const {
  const int64_t here = std::max<int64_t>(0, sample - options_.origin.sample);
  std::vector<SourcePosition> out;
  for (int64_t k = 0; k < std::ssize(sources_); ++k)
    out.push_back(position(k, mixture_.given(k, std::min(here, mixture_.total()))));
  return out;
}

double SampleSource::epochs(int64_t source, int64_t trained) const {
  const Source& of = sources_[static_cast<size_t>(source)];
  const SourcePosition at = position(source, given(source, trained));
  const bool rest = of.rest && at.epoch == of.first_epoch;
  const auto places = static_cast<double>(rest ? of.rest->epoch_places() : of.windows * shape_.window);
  return static_cast<double>(at.epoch) + static_cast<double>(at.offset) / places;
}

double SampleSource::share(int64_t source, int64_t trained) const {
  int64_t all = 0;
  for (int64_t k = 0; k < std::ssize(sources_); ++k) all += position(k, given(k, trained)).read;
  const int64_t own = position(source, given(source, trained)).read;
  return all > 0 ? static_cast<double>(own) / static_cast<double>(all) : 0.0;
}

int64_t SampleSource::samples_per_epoch() const {
  int64_t sum = 0;
  for (const Source& source : sources_) sum += source.windows;
  return sum;
}

SampleSource::Place SampleSource::place(int64_t sample) const {
  const int64_t global = skip_.global_of(sample);
  const auto [k, index] = mixture_(global - options_.origin.sample);
  const Source& source = sources_[static_cast<size_t>(k)];
  const EpochRow at = epoch_row(source, index);
  int64_t window = at.row;
  if (options_.shuffle && !at.rest) {
    const Permutation order(static_cast<uint64_t>(source.windows), source.seed,
                            static_cast<uint64_t>(at.epoch));
    window = static_cast<int64_t>(order(static_cast<uint64_t>(window)));
  }
  return {k, at.epoch, window, global, at.rest};
}

void SampleSource::text_of(const Place& at, std::vector<BestFitPlan::Piece>& out) const {
  const Source& source = sources_[static_cast<size_t>(at.source)];
  if (at.rest) {
    source.rest->row(at.window, out);
  } else if (source.plan) {
    const auto row = source.plan->row(at.window);
    out.assign(row.begin(), row.end());
  } else {
    out.assign(1, {at.window * shape_.window, static_cast<int32_t>(shape_.window), shape_.look_ahead > 0});
  }
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
    if (at.rest) {
      counted += fill_rest(source, at, draws, row, scratch);
    } else if (source.plan) {
      counted += fill_pieces(source, at.epoch, source.plan->row(at.window), draws, row, scratch);
    } else {
      counted += fill_window(source, at, draws, row, scratch);
    }
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

int64_t SampleSource::fill_rest(const Source& source, const Place& at, RowDraws& draws, const Batch& row,
                                BatchScratch& scratch) const {
  source.rest->row(at.window, scratch.pieces);
  if (options_.objective.kind == Objective::kSpanCorruption) {
    std::vector<int32_t> ids;
    for (const BestFitPlan::Piece& piece : scratch.pieces) {
      ids.resize(ids.size() + static_cast<size_t>(piece.length));
      source.corpus.read(piece.begin, piece.length, &ids[ids.size() - static_cast<size_t>(piece.length)]);
    }
    return fill_objective(options_.objective, shape_, ids.data(), nullptr, std::ssize(ids), 0, draws,
                          scratch.lengths, row);
  }
  if (options_.pack == Pack::kStream && options_.fim.rate == 0)
    return fill_pieces(source, at.epoch, scratch.pieces, draws, row, scratch);
  scratch.documents.clear();
  for (const BestFitPlan::Piece& piece : scratch.pieces) {
    const int64_t known = piece.length + (piece.more ? 1 : 0);
    scratch.ids.resize(static_cast<size_t>(known));
    scratch.starts.resize(static_cast<size_t>(known));
    source.corpus.read(piece.begin, known, scratch.ids.data());
    source.corpus.mark_document_starts(piece.begin, known, scratch.ids.data(), scratch.starts.data());
    int64_t first = 0;
    for (int64_t j = 1; j <= piece.length; ++j) {
      const bool starts = j < known && scratch.starts[static_cast<size_t>(j)] != 0;
      if (j < piece.length && !starts) continue;
      scratch.documents.push_back(
          {piece.begin + first, static_cast<int32_t>(j - first), j < known && !starts});
      first = j;
    }
  }
  return fill_pieces(source, at.epoch, scratch.documents, draws, row, scratch);
}

int64_t SampleSource::fill_pieces(const Source& source, int64_t epoch,
                                  std::span<const BestFitPlan::Piece> pieces, RowDraws& draws,
                                  const Batch& row, BatchScratch& scratch) const {
  const bool causal = options_.objective.kind == Objective::kCausal;
  scratch.ids.resize(static_cast<size_t>(shape_.window + shape_.look_ahead));
  int32_t* ids = scratch.ids.data();
  int64_t counted = 0;
  int64_t place = 0;
  for (const BestFitPlan::Piece& piece : pieces) {
    const int64_t known = piece.length + (piece.more ? shape_.look_ahead : 0);
    source.corpus.read(piece.begin, known, ids);
    if (options_.fim.rate > 0) move_middle(source, piece.begin, epoch, known, ids, scratch);
    Batch part;
    for (const Column column : {kTokens, kTargets, kPositions, kKvBegin}) part[column] = row[column] + place;
    if (causal) {
      for (int64_t j = 0; j < piece.length; ++j) {
        part[kTokens][j] = ids[j];
        part[kTargets][j] = j + 1 < known ? ids[j + 1] : -1;
      }
      counted += known - 1;
    } else {
      counted += fill_masked(ids, piece.length, options_.objective, draws, part);
    }
    for (int64_t j = 0; j < piece.length; ++j) {
      part[kPositions][j] = static_cast<int32_t>(j);
      part[kKvBegin][j] = static_cast<int32_t>(place);
    }
    place += piece.length;
  }
  fill_padding(shape_, place, 0, row);
  return counted;
}

}  // namespace strata::data
