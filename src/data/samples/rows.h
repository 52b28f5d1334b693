// The rows of a batch, one objective each: what training and evaluation make of tokens that were read.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "data/samples/objective.h"
#include "tensor/batch_column.h"

namespace strata::data {

// The target of a batch: by column, [sequences, places]. nullptr for columns that the objective does not
// have, and for those that objectives do not fill.
using Batch = PerColumn<int32_t*>;
constexpr RowPlaces places_of(const RowShape& shape) {
  return {shape.tokens, shape.encoder_length};
}
Batch row_of(const Batch& batch, const RowShape& shape, int64_t row);

// As Batch; columns that the objective lacks are empty. `samples` are filled by the loader.
struct HostBatch {
  PerColumn<std::vector<int32_t>> columns;
  int64_t first_sample = 0;
  int64_t sequences = 0;
  int64_t counted_targets = 0;
  int64_t pieces = 1;  // equal sequences that each row was cut into

  std::vector<int32_t>& operator[](Column column) { return columns[column]; }
  const std::vector<int32_t>& operator[](Column column) const { return columns[column]; }
  void resize(const RowShape& shape, int64_t rows);
  // For objectives to fill.
  Batch view();
  // Cuts each row, of `shape`, into equal sequences that do not attend to each other: each is a row of its
  // own, in the same place. Targets stay. For objectives without an encoder.
  void cut(const RowShape& shape, int64_t pieces);
  // For programs to read, with the sequences as rows.
  BatchRows rows(const RowShape& shape) const;
};

// Random numbers of one row: a pure function of the seed and the row's number.
class RowDraws {
 public:
  RowDraws(uint64_t seed, int64_t row) : seed_(seed), row_(static_cast<uint64_t>(row)) {}
  uint32_t next() {
    if (at_ % 4 == 0) bits_ = philox({seed_, kStream}, row_, at_ / 4);
    return bits_[at_++ % 4];
  }
  bool with_chance(double share) { return static_cast<double>(next()) * 0x1p-32 < share; }
  int64_t below(int64_t n) {
    return static_cast<int64_t>(static_cast<uint64_t>(next()) * static_cast<uint64_t>(n) >> 32);
  }

 private:
  static constexpr uint32_t kStream = 0x6d61736b;  // "mask"
  uint64_t seed_, row_;
  uint32_t at_ = 0;
  std::array<uint32_t, 4> bits_{};
};

// Fills a row from ids[0, n): a window and its look-ahead, or the remainder of them at the end of a text;
// other places are padding. With documents, starts[0, n) marks the first token of each. Targets before row
// place `count_from` do not count (causal only). `lengths` is reused. Returns the number of targets that
// count.
int64_t fill_objective(const ObjectiveOptions& options, const RowShape& shape, const int32_t* ids,
                       const uint8_t* starts, int64_t n, int64_t count_from, RowDraws& draws,
                       std::vector<int32_t>& lengths, const Batch& row);

// Masks ids[0, n): writes tokens and targets of the first n places. Returns the number of targets.
int64_t fill_masked(const int32_t* ids, int64_t n, const ObjectiveOptions& options, RowDraws& draws,
                    const Batch& row);

// Fills places [from, shape.tokens), and with them [encoder_from, shape.encoder_length) of the encoder's row,
// with padding: token 0, no target, and each attends only to itself.
void fill_padding(const RowShape& shape, int64_t from, int64_t encoder_from, const Batch& row);

}  // namespace strata::data
