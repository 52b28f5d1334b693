#include "checkpoint/boxes.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace strata::checkpoint {
namespace {

// A dimension of a value as a rank holds it: the one place that reads placements.
struct Along {
  std::vector<Held> spans;
  int64_t extent = 0;
};

std::vector<Along> held_along(const graph::Value& value, const graph::Mesh& mesh,
                              const graph::Coordinates& coordinates) {
  std::vector<Along> dims;
  const bool is_local = value.sharding.global_shape.rank() > 0;
  for (const auto& spans : graph::held_spans(value, mesh, coordinates)) {
    const auto dim = static_cast<int>(dims.size());
    Along& along = dims.emplace_back();
    for (const graph::HeldSpan& span : spans) {
      const bool joins = !along.spans.empty() && along.spans.back().end == span.whole.begin &&
                         along.spans.back().at + along.spans.back().end - along.spans.back().begin == span.at;
      if (joins) {
        along.spans.back().end = span.whole.end;
      } else {
        along.spans.push_back({span.whole.begin, span.whole.end, span.at});
      }
    }
    const auto parts =
        is_local ? std::vector<int64_t>{value.shape[dim]} : graph::parts_on_rank(value, dim, mesh);
    along.extent = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  }
  return dims;
}

const Shape& global_shape(const graph::Value& value) {
  return value.sharding.global_shape.rank() > 0 ? value.sharding.global_shape : value.shape;
}

// Where [begin, end) meets what is held.
void meet(const std::vector<Held>& spans, int64_t begin, int64_t end, FunctionRef<void(const Held&)> each) {
  for (const Held& span : spans) {
    if (span.begin >= end) break;
    const int64_t from = std::max(begin, span.begin), to = std::min(end, span.end);
    if (from < to) each({from, to, span.at + from - span.begin});
  }
}

// Rows [row, row + rows) by columns [column, column + columns) of the file.
struct Rectangle {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
};

void patches_of(const FileOrder& order, const Box& box, const Rectangle& at,
                FunctionRef<void(const Patch&)> each) {
  const int64_t file_pitch = order.file_columns();
  // In memory [row, row + rows), which begin in row `file_row` of the file.
  const auto plain = [&](int64_t row, int64_t rows, int64_t file_row) {
    meet(box.rows, row, row + rows, [&](const Held& held) {
      meet(box.columns, at.column, at.column + at.columns, [&](const Held& across) {
        each({.rows = held.end - held.begin,
              .columns = across.end - across.begin,
              .in_file = (file_row + held.begin - row) * file_pitch + across.begin,
              .file_pitch = file_pitch,
              .in_memory = held.at * box.pitch + across.at,
              .memory_pitch = box.pitch});
      });
    });
  };
  if (order.transposed) {
    for (int64_t column = at.column; column < at.column + at.columns;) {
      const RowRun run = run_at(order.interleave, order.rows, column);
      const int64_t columns = std::min(run.rows, at.column + at.columns - column);
      meet(box.columns, at.row, at.row + at.rows, [&](const Held& held) {
        meet(box.rows, run.memory_row, run.memory_row + columns, [&](const Held& across) {
          each({.rows = held.end - held.begin,
                .columns = across.end - across.begin,
                .in_file = held.begin * file_pitch + column + across.begin - run.memory_row,
                .file_pitch = file_pitch,
                .in_memory = across.at * box.pitch + held.at,
                .memory_pitch = box.pitch});
        });
      });
      column += columns;
    }
  } else if (order.interleave.none()) {
    plain(at.row, at.rows, at.row);
  } else {
    for (int64_t row = at.row; row < at.row + at.rows;) {
      const RowRun run = run_at(order.interleave, order.rows, row);
      const int64_t rows = std::min(run.rows, at.row + at.rows - row);
      plain(run.memory_row, rows, row);
      row += rows;
    }
  }
}

}  // namespace

int64_t Box::elements() const {
  const auto count = [](const std::vector<Held>& spans) {
    int64_t indices = 0;
    for (const Held& span : spans) indices += span.end - span.begin;
    return indices;
  };
  return count(rows) * count(columns);
}

Box whole_box(const FileOrder& order) {
  return {{{0, order.rows, 0}}, {{0, order.columns, 0}}, order.columns};
}

namespace {

// What a box has of rows [first, first + rows), which are counted from `first` on.
Box rows_of(const Box& box, int64_t first, int64_t rows) {
  Box part{{}, box.columns, box.pitch};
  meet(box.rows, first, first + rows, [&](const Held& held) {
    part.rows.push_back({held.begin - first, held.end - first, held.at});
  });
  return part;
}

}  // namespace

void for_each_patch(const FileOrder& order, const Box& box, int64_t first, int64_t count,
                    FunctionRef<void(const Patch&)> each) {
  if (order.blocks > 1) {
    const FileOrder of_block = order.of_block();
    const int64_t elements = of_block.rows * of_block.columns, last = first + count;
    for (int64_t block = first / std::max<int64_t>(elements, 1); block * elements < last; ++block) {
      const int64_t begin = std::max(first, block * elements), end = std::min(last, (block + 1) * elements);
      const Box part = rows_of(box, block * of_block.rows, of_block.rows);
      for_each_patch(of_block, part, begin - block * elements, end - begin, [&](Patch patch) {
        patch.in_file += block * elements;
        each(patch);
      });
    }
    return;
  }
  const int64_t columns = order.file_columns(), end = first + count;
  // A part of a row, whole rows, a part of a row.
  while (first < end) {
    const int64_t row = first / columns, column = first % columns;
    const int64_t whole = column == 0 ? (end - first) / columns : 0;
    const int64_t width = whole > 0 ? columns : std::min(columns - column, end - first);
    const Rectangle at{row, std::max<int64_t>(whole, 1), column, width};
    patches_of(order, box, at, each);
    first += at.rows * at.columns;
  }
}

int64_t elements_in(const FileOrder& order, const Box& box, int64_t first, int64_t count) {
  int64_t elements = 0;
  for_each_patch(order, box, first, count,
                 [&](const Patch& patch) { elements += patch.rows * patch.columns; });
  return elements;
}

Split Split::of(const graph::Value& value, const graph::Mesh& mesh, int64_t first_row, int64_t rows,
                std::vector<int32_t> holders) {
  const Shape& shape = global_shape(value);
  int64_t inner = 1;  // elements of what is split at most by its second dimension
  for (int dim = 2; dim < shape.rank(); ++dim) inner *= shape[dim];
  Split split;
  split.mesh_ = mesh;
  split.holders_ = std::move(holders);
  for (const graph::Axis axis : graph::kAllAxes) {
    const graph::Placement placement = value.placements[axis];
    if (placement.kind != graph::Placement::Kind::kSharded || mesh.size(axis) == 1) continue;
    STRATA_CHECK(placement.dim < 2, "{} {} is cut along dimension {}; files know rows and columns",
                 value.name, shape.str(), placement.dim);
    (placement.dim == 0 ? split.rows_ : split.columns_).axes.push_back(axis);
  }
  const auto fill = [&](Cut& cut, size_t dim) {
    graph::Coordinates coordinates;
    size_t parts = 1;
    for (const graph::Axis axis : cut.axes) parts *= static_cast<size_t>(mesh.size(axis));
    for (size_t i = 0; i < parts; ++i) {
      size_t rest = i;
      for (size_t k = cut.axes.size(); k-- > 0;) {
        const auto size = static_cast<size_t>(mesh.size(cut.axes[k]));
        coordinates[cut.axes[k]] = static_cast<int32_t>(rest % size);
        rest /= size;
      }
      const auto dims = held_along(value, mesh, coordinates);
      Part& part = cut.parts.emplace_back();
      if (dim >= dims.size()) {
        part = {{{0, 1, 0}}, 1};
      } else if (dim == 0) {
        meet(dims[0].spans, first_row, first_row + rows, [&](const Held& held) {
          part.spans.push_back({held.begin - first_row, held.end - first_row, held.at});
        });
        part.extent = dims[0].extent;
      } else {
        for (const Held& held : dims[1].spans)
          part.spans.push_back({held.begin * inner, held.end * inner, held.at * inner});
        part.extent = dims[1].extent * inner;
      }
    }
  };
  fill(split.rows_, 0);
  fill(split.columns_, 1);
  return split;
}

size_t Split::part_of(const Cut& cut, const graph::Coordinates& coordinates) const {
  size_t part = 0;
  for (const graph::Axis axis : cut.axes)
    part = part * static_cast<size_t>(mesh_.size(axis)) + static_cast<size_t>(coordinates[axis]);
  return part;
}

bool Split::cuts(graph::Axis axis) const {
  const auto among = [axis](const std::vector<graph::Axis>& axes) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  };
  return among(rows_.axes) || among(columns_.axes);
}

Box Split::box(int64_t rank) const {
  const auto coordinates = mesh_.coordinates(rank);
  const int32_t place = coordinates[graph::Axis::kPipeline];
  if (!holders_.empty() && giver_for(place) != place) return {};
  const Part& rows = rows_.parts[part_of(rows_, coordinates)];
  const Part& columns = columns_.parts[part_of(columns_, coordinates)];
  return {rows.spans, columns.spans, columns.extent};
}

bool Split::serves(int64_t rank, int64_t reader) const {
  const auto mine = mesh_.coordinates(rank), theirs = mesh_.coordinates(reader);
  for (const graph::Axis axis : graph::kAllAxes) {
    const bool gives = axis == graph::Axis::kPipeline && !holders_.empty();
    const int32_t wanted = gives ? giver_for(theirs[axis]) : theirs[axis];
    if (mine[axis] != wanted && !cuts(axis)) return false;
  }
  return true;
}

int32_t Split::giver_for(int32_t place) const {
  const bool has_it = std::find(holders_.begin(), holders_.end(), place) != holders_.end();
  return has_it ? place : holders_.front();
}

std::vector<int64_t> Split::servers_of(int64_t reader) const {
  std::vector<int64_t> servers;
  for (int64_t rank = 0; rank < mesh_.ranks(); ++rank) {
    if (serves(rank, reader)) servers.push_back(rank);
  }
  return servers;
}

}  // namespace strata::checkpoint
