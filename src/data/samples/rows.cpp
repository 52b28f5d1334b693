#include "data/samples/rows.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace strata::data {
namespace {

using enum Column;

// Devlin et al. 2019: of the chosen tokens.
constexpr double kMasked = 0.8;
constexpr double kRandom = 0.1;

// Appends the lengths of `parts` parts of n things, at least one in each; all ways to part them are equally
// likely.
void part(int64_t n, int64_t parts, RowDraws& draws, std::vector<int32_t>& lengths) {
  int64_t wanted = parts - 1;  // cuts
  int32_t length = 1;
  for (int64_t left = n - 1; left > 0; --left) {  // possible places for a cut, this one included
    if (wanted > 0 && draws.below(left) < wanted) {
      lengths.push_back(length);
      length = 0;
      --wanted;
    }
    ++length;
  }
  lengths.push_back(length);
}

int32_t* append(const int32_t* from, int64_t n, int32_t* to) {
  return std::copy(from, from + n, to);
}

// Fills the places of one document or, with `starts`, of several.
void fill_places(const uint8_t* starts, int64_t n, const Batch& row) {
  int32_t begin = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (starts != nullptr && j > 0 && starts[j] != 0) begin = static_cast<int32_t>(j);
    row[kKvBegin][j] = begin;
    row[kPositions][j] = static_cast<int32_t>(j) - begin;
  }
}

// A causal row of `length` places from length + 1 tokens.
int64_t fill_causal(const int32_t* ids, const uint8_t* starts, int64_t length, int64_t count_from,
                    const Batch& row) {
  const auto bytes = static_cast<size_t>(length) * sizeof(int32_t);
  std::memcpy(row[kTokens], ids, bytes);
  std::memcpy(row[kTargets], ids + 1, bytes);
  std::fill(row[kTargets], row[kTargets] + std::min(count_from, length), -1);
  fill_places(starts, length, row);
  int64_t counted = std::max<int64_t>(0, length - count_from);
  for (int64_t j = 0; starts != nullptr && j < length; ++j) {
    if (starts[j + 1] == 0) continue;
    counted -= row[kTargets][j] >= 0 ? 1 : 0;
    row[kTargets][j] = -1;
  }
  return counted;
}

// A row of span corruption: the places of the target and of the encoder's row that it fills.
std::pair<int64_t, int64_t> fill_spans(const int32_t* ids, int64_t n, const ObjectiveOptions& options,
                                       const RowShape& shape, RowDraws& draws, std::vector<int32_t>& lengths,
                                       const Batch& row) {
  STRATA_CHECK(n >= 2 && n <= shape.window, "{} tokens in a window of {}", n, shape.window);
  const auto [noise, spans] = span_counts(n, options.mask_rate, options.mean_span);
  lengths.clear();
  part(n - noise, spans, draws, lengths);
  part(noise, spans, draws, lengths);
  int32_t* encoder = row[kEncoderTokens];
  int32_t* target = row[kTargets];
  for (int64_t span = 0; span < spans; ++span) {
    const int32_t kept = lengths[static_cast<size_t>(span)];
    const int32_t cut = lengths[static_cast<size_t>(spans + span)];
    const int32_t sentinel = options.sentinels[static_cast<size_t>(span)];
    encoder = append(ids, kept, encoder);
    *encoder++ = sentinel;
    *target++ = sentinel;
    target = append(ids + kept, cut, target);
    ids += kept + cut;
  }
  *encoder++ = options.end_of_text;
  *target++ = options.end_of_text;
  const int64_t encoder_places = encoder - row[kEncoderTokens], targets = target - row[kTargets];
  STRATA_CHECK(encoder_places <= shape.encoder_length && targets <= shape.tokens,
               "{} and {} places of {} and {}", encoder_places, targets, shape.encoder_length, shape.tokens);
  row[kTokens][0] = options.start;
  append(row[kTargets], targets - 1, row[kTokens] + 1);
  fill_places(nullptr, targets, row);
  std::fill_n(row[kEncoderKvBegin], encoder_places, 0);
  std::fill_n(row[kCrossKvBegin], targets, 0);
  return {targets, encoder_places};
}

}  // namespace

Batch row_of(const Batch& batch, const RowShape& shape, int64_t row) {
  STRATA_CHECK(shape.encoder_length == 0 || batch[kEncoderTokens] != nullptr,
               "a batch without the column for an encoder of {} places", shape.encoder_length);
  Batch out;
  for (const ColumnInfo& column : kColumns) {
    if (int32_t* const begin = batch[column.column]; begin != nullptr)
      out[column.column] = begin + row * places_of(shape).of(column.column);
  }
  return out;
}

void HostBatch::resize(const RowShape& shape, int64_t rows) {
  pieces = 1;
  for (const ColumnInfo& column : kColumns)
    columns[column.column].resize(static_cast<size_t>(rows * places_of(shape).of(column.column)));
}

Batch HostBatch::view() {
  Batch out;
  for (const ColumnInfo& column : kColumns) {
    std::vector<int32_t>& array = columns[column.column];
    const bool is_filled = column.column != kSamples && !array.empty();
    out[column.column] = is_filled ? array.data() : nullptr;
  }
  return out;
}

void HostBatch::cut(const RowShape& shape, int64_t wanted) {
  if (wanted == 1) return;
  STRATA_CHECK(pieces == 1 && shape.encoder_length == 0 && shape.tokens % wanted == 0,
               "{} tokens of a row in {} equal sequences", shape.tokens, wanted);
  pieces = wanted;
  const int64_t length = shape.tokens / wanted;
  std::vector<int32_t>&begins = columns[kKvBegin], &positions = columns[kPositions];
  for (size_t i = 0; i < begins.size(); ++i) {
    const int64_t place = static_cast<int64_t>(i) % shape.tokens, first = place / length * length;
    begins[i] = static_cast<int32_t>(std::max<int64_t>(begins[i], first) - first);
    positions[i] = static_cast<int32_t>(place - first - begins[i]);
  }
  // Random numbers are keyed by a sequence's number.
  std::vector<int32_t>& samples = columns[kSamples];
  samples.resize(samples.size() * static_cast<size_t>(wanted));
  const auto count = static_cast<size_t>(wanted);
  for (size_t i = samples.size(); i-- > 0;) {
    const auto sample = static_cast<uint32_t>(samples[i / count]);
    samples[i] =
        static_cast<int32_t>(sample * static_cast<uint32_t>(count) + static_cast<uint32_t>(i % count));
  }
}

BatchRows HostBatch::rows(const RowShape& shape) const {
  BatchRows out{.columns = {}, .places = {shape.tokens / pieces, shape.encoder_length}};
  for (const ColumnInfo& column : kColumns) out.columns[column.column] = columns[column.column].data();
  return out;
}

int64_t fill_masked(const int32_t* ids, int64_t n, const ObjectiveOptions& options, RowDraws& draws,
                    const Batch& row) {
  const auto vocabulary = static_cast<int64_t>(options.special.size());
  int64_t counted = 0;
  for (int64_t j = 0; j < n; ++j) {
    const int32_t id = ids[j];
    row[kTokens][j] = id;
    row[kTargets][j] = -1;
    const bool special = id < vocabulary && options.special[static_cast<size_t>(id)] != 0;
    if (!draws.with_chance(options.mask_rate) || special) continue;
    row[kTargets][j] = id;
    ++counted;
    const double what = static_cast<double>(draws.next()) * 0x1p-32;
    if (what < kMasked) {
      row[kTokens][j] = options.mask;
    } else if (what < kMasked + kRandom) {
      row[kTokens][j] = static_cast<int32_t>(draws.below(vocabulary));
    }
  }
  return counted;
}

int64_t fill_objective(const ObjectiveOptions& options, const RowShape& shape, const int32_t* ids,
                       const uint8_t* starts, int64_t n, int64_t count_from, RowDraws& draws,
                       std::vector<int32_t>& lengths, const Batch& row) {
  int64_t places = n - shape.look_ahead, encoder_places = 0, counted = 0;
  switch (options.kind) {
    case Objective::kCausal:
      counted = fill_causal(ids, starts, places, count_from, row);
      break;
    case Objective::kMasked:
      counted = fill_masked(ids, places, options, draws, row);
      fill_places(starts, places, row);
      break;
    case Objective::kSpanCorruption:
      std::tie(places, encoder_places) = fill_spans(ids, n, options, shape, draws, lengths, row);
      counted = places;
      break;
  }
  fill_padding(shape, places, encoder_places, row);
  return counted;
}

void fill_padding(const RowShape& shape, int64_t from, int64_t encoder_from, const Batch& row) {
  const RowPlaces places = places_of(shape);
  for (const ColumnInfo& column : kColumns) {
    int32_t* const to = row[column.column];
    if (to == nullptr || column.places == ColumnInfo::Places::kRow) continue;
    const bool of_encoder = column.places == ColumnInfo::Places::kEncoderToken;
    for (int64_t place = of_encoder ? encoder_from : from; place < places.of(column.column); ++place)
      to[place] = column.padding_at(place);
  }
}

}  // namespace strata::data
