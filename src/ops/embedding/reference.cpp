#include "ops/reference.h"
#include "base/error.h"
#include "ops/embedding/embedding.h"

namespace strata::reference {
namespace {

// The index of an id's row among `rows`, or in the parts that begin at `starts` if there are any; -1: none.
int64_t row_of_id(int64_t id, const Array& starts, int64_t rows) {
  if (!starts.present()) return id;
  const int64_t parts = starts.shape[0], size = rows / parts;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t row = id - starts.index_at(part);
    if (row >= 0 && row < size) return part * size + row;
  }
  return -1;
}

}  // namespace

template <>
void compute(const Arrays<ops::Embedding>& at) {
  const Array &tokens = at.in.tokens, &table = at.in.table, &positions = at.in.positions;
  const int64_t dim = table.shape[1];
  for (int64_t r = 0; r < tokens.shape[0]; ++r) {
    const int64_t token = tokens.index_at(r), row = row_of_id(token, at.in.vocab_start, table.shape[0]);
    STRATA_CHECK(token >= 0 && row < table.shape[0], "[embedding] token {} of {}", token, table.shape[0]);
    for (int64_t c = 0; c < dim; ++c) {
      const double position =
          positions.present() ? at.in.position_table.at(positions.index_at(r) * dim + c) : 0;
      const double entry = row < 0 ? 0 : table.at(row * dim + c);
      at.out.x.put(r * dim + c, at.attrs.scale * entry + position);
    }
  }
}

// Rows are added in order and in fp32, as the table's own type has it.
template <>
void compute(const Arrays<ops::EmbeddingGrad>& at) {
  const Array &dy = at.in.dy, &ids = at.in.ids, &table = at.out.dtable;
  const int64_t dim = dy.shape[1];
  for (int64_t i = 0; i < table.shape.elements() && !table.accumulate; ++i) table.put(i, 0);
  for (int64_t r = 0; r < dy.shape[0]; ++r) {
    const int64_t row = row_of_id(ids.index_at(r), at.in.vocab_start, table.shape[0]);
    if (ids.index_at(r) == at.attrs.padding_id || row < 0) continue;
    for (int64_t c = 0; c < dim; ++c) {
      const int64_t to = row * dim + c;
      table.put(to, table.at(to) + at.attrs.scale * dy.at(r * dim + c));
    }
  }
}

}  // namespace strata::reference
