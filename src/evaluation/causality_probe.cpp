#include "evaluation/causality_probe.h"

#include <algorithm>
#include <numeric>

#include "data/samples/rows.h"

namespace strata::evaluation {
namespace {

constexpr int64_t kDocuments = 3;  // in a sequence

// Begins of the documents in a row of `length` positions, followed by its end.
std::vector<int64_t> document_bounds(int64_t length, int64_t documents, data::RowDraws& draws) {
  std::vector<int64_t> bounds{0, length};
  while (std::ssize(bounds) <= std::min(documents, length)) {
    const int64_t bound = 1 + draws.below(length - 1);
    if (std::find(bounds.begin(), bounds.end(), bound) == bounds.end()) bounds.push_back(bound);
  }
  std::sort(bounds.begin(), bounds.end());
  return bounds;
}

void fill_encoder(const ProbeShape& shape, const std::vector<int64_t>& bounds, data::RowDraws& draws,
                  const data::Batch& row) {
  const std::vector<int64_t> sources =
      document_bounds(shape.row.encoder_length, std::ssize(bounds) - 1, draws);
  for (size_t d = 0; d + 1 < bounds.size(); ++d) {
    const size_t source = std::min(d, sources.size() - 2);
    std::fill(row[Column::kCrossKvBegin] + bounds[d], row[Column::kCrossKvBegin] + bounds[d + 1],
              static_cast<int32_t>(sources[source]));
  }
  for (size_t d = 0; d + 1 < sources.size(); ++d) {
    for (int64_t i = sources[d]; i < sources[d + 1]; ++i) {
      row[Column::kEncoderTokens][i] = static_cast<int32_t>(draws.below(shape.vocabulary));
      row[Column::kEncoderKvBegin][i] = static_cast<int32_t>(sources[d]);
    }
  }
}

}  // namespace

ProbeShape probe_shape(const program::ProgramSet& set, const program::Program& program, bool documents) {
  const program::Request& request = program.request;
  return {.row = {.window = request.sequence_length,
                  .look_ahead = 1,
                  .tokens = request.sequence_length,
                  .encoder_length = request.encoder_length},
          .sequences = request.sequences * set.options.mesh.batch_ranks(),
          .micro_batches = request.micro_batches,
          .vocabulary = set.options.model.vocab_size,
          .documents = documents};
}

std::vector<int64_t> probe_positions(int64_t length, int64_t count, uint64_t seed) {
  if (length < 2) return {0};
  std::vector<int64_t> positions;
  const auto add = [&](int64_t place) {
    const bool is_new = std::find(positions.begin(), positions.end(), place) == positions.end();
    if (place >= 1 && place < length && is_new && std::ssize(positions) < count) positions.push_back(place);
  };
  for (const int64_t place : {length / 2, length - 1, int64_t{1}}) add(place);
  for (int64_t tile = 8; tile < length && tile <= 4096; tile *= 2) {
    for (const int64_t place : {tile, tile - 1, tile + 1}) add(place);
  }
  data::RowDraws draws(seed, -1);
  count = std::min(count, length - 1);
  while (std::ssize(positions) < count) add(1 + draws.below(length - 1));
  return positions;
}

Probe make_probe(const ProbeShape& shape, const std::vector<int64_t>& positions, int64_t first,
                 uint64_t seed) {
  Probe probe;
  probe.before.resize(shape.row, shape.rows());
  const int64_t length = shape.row.tokens;
  probe.may_move.assign(static_cast<size_t>(shape.rows() * length), 0);
  const data::Batch all = probe.before.view();
  std::vector<int32_t> changed;
  for (int64_t s = 0; s < shape.rows(); ++s) {
    data::RowDraws draws(seed, first + s);
    const data::Batch row = data::row_of(all, shape.row, s);
    const std::vector<int64_t> bounds = document_bounds(length, shape.documents ? kDocuments : 1, draws);
    const int64_t from = positions[static_cast<size_t>((first + s) % std::ssize(positions))];
    const int64_t to = *std::upper_bound(bounds.begin(), bounds.end(), from);
    for (int64_t i = 0; i < length; ++i) {
      const bool may_move = i >= from && i < to;
      const auto begin = static_cast<int32_t>(*std::prev(std::upper_bound(bounds.begin(), bounds.end(), i)));
      row[Column::kTokens][i] = static_cast<int32_t>(draws.below(shape.vocabulary));
      row[Column::kTargets][i] = may_move ? -1 : static_cast<int32_t>(draws.below(shape.vocabulary));
      row[Column::kPositions][i] = static_cast<int32_t>(i) - begin;
      row[Column::kKvBegin][i] = begin;
      const auto other = static_cast<int32_t>(
          (row[Column::kTokens][i] + 1 + draws.below(shape.vocabulary - 1)) % shape.vocabulary);
      changed.push_back(may_move ? other : row[Column::kTokens][i]);
      probe.may_move[static_cast<size_t>(s * length + i)] = may_move;
    }
    probe.changes.push_back({from, to});
    if (shape.row.encoder_length > 0) fill_encoder(shape, bounds, draws, row);
  }
  probe.after = probe.before;
  probe.after[Column::kTokens] = std::move(changed);
  return probe;
}

}  // namespace strata::evaluation
