#include "program/row_copies.h"

#include <algorithm>

#include "base/error.h"

namespace strata::program {

RowCopies::RowCopies(const Program& program, const Ranks& ranks)
    : sequences_(program.request.sequences),
      places_{program.request.sequence_length, program.request.encoder_length} {
  int64_t longest = 0;
  for (const ColumnInfo& each : kColumns) {
    const graph::ValueId input = program.graph.column(each.column);
    if (input == graph::kNone) continue;
    Part& part = parts_.emplace_back(Part{.column = each.column, .held = {}});
    const int64_t places = places_.of(each.column);
    longest = std::max(longest, sequences_ * places);
    if (program.graph.placement(input, graph::Axis::kContext) == graph::Placement::replicated()) continue;
    part.held = graph::held_of({{sequences_ * places}, ranks.mesh().size(graph::Axis::kContext), 0, places},
                               ranks.coordinates()[graph::Axis::kContext]);
  }
  rows_.resize(static_cast<size_t>(longest));
  held_.resize(static_cast<size_t>(longest));
}

void RowCopies::copy(const BatchRows& batch, int64_t first,
                     FunctionRef<void(Column, const int32_t*, int64_t)> take) {
  for (const Part& part : parts_) {
    const int64_t places = batch.places.of(part.column), capacity = places_.of(part.column);
    STRATA_CHECK(places <= capacity, "{} places of {} for {}", places, info(part.column).name, capacity);
    const int32_t* rows = batch.columns[part.column] + first * places;
    int64_t count = sequences_ * capacity;
    if (places < capacity) {
      for (int64_t row = 0; row < sequences_; ++row) {
        int32_t* const to = rows_.data() + row * capacity;
        std::copy_n(rows + row * places, places, to);
        for (int64_t place = places; place < capacity; ++place)
          to[place] = info(part.column).padding_at(place);
      }
      rows = rows_.data();
    }
    if (part.held) {
      int32_t* to = held_.data();
      for (const graph::HeldSpan& span : *part.held)
        to = std::copy(rows + span.whole.begin, rows + span.whole.end, to);
      rows = held_.data();
      count = to - held_.data();
    }
    take(part.column, rows, count);
  }
}

}  // namespace strata::program
