#include "checkpoint/tensor_shard.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace strata::checkpoint {
namespace {

// A dimension of a value on a rank. Only held_dimensions() reads placements.
struct HeldDimension {
  std::vector<HeldRange> ranges;
  int64_t extent = 0;
};

std::vector<HeldDimension> held_dimensions(const graph::Value& value, const graph::Mesh& mesh,
                                           const graph::Coordinates& coordinates) {
  std::vector<HeldDimension> dims;
  const bool is_local = value.sharding.global_shape.rank() > 0;
  for (const auto& spans : graph::held_spans(value, mesh, coordinates)) {
    const auto dim = static_cast<int>(dims.size());
    HeldDimension& held = dims.emplace_back();
    for (const graph::HeldSpan& span : spans) {
      const bool joins = !held.ranges.empty() && held.ranges.back().end == span.whole.begin &&
                         held.ranges.back().at + held.ranges.back().end - held.ranges.back().begin == span.at;
      if (joins) {
        held.ranges.back().end = span.whole.end;
      } else {
        held.ranges.push_back({span.whole.begin, span.whole.end, span.at});
      }
    }
    const auto parts =
        is_local ? std::vector<int64_t>{value.shape[dim]} : graph::parts_on_rank(value, dim, mesh);
    held.extent = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  }
  return dims;
}

const Shape& global_shape(const graph::Value& value) {
  return value.sharding.global_shape.rank() > 0 ? value.sharding.global_shape : value.shape;
}

// Calls `each` with the held parts of [begin, end).
void intersect(const std::vector<HeldRange>& ranges, int64_t begin, int64_t end,
               FunctionRef<void(const HeldRange&)> each) {
  for (const HeldRange& range : ranges) {
    if (range.begin >= end) break;
    const int64_t from = std::max(begin, range.begin), to = std::min(end, range.end);
    if (from < to) each({from, to, range.at + from - range.begin});
  }
}

// Rows [row, row + rows) by columns [column, column + columns) of the file.
struct Rectangle {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
};

// The run of rows that begins at `file_row`, as far as row `end`.
RowRun run_in(const FileOrder& order, int64_t file_row, int64_t end) {
  RowRun run =
      order.part.whole() ? run_at(order.interleave, order.rows, file_row) : run_at(order.part, file_row);
  run.rows = std::min(run.rows, end - file_row);
  return run;
}

void regions_of(const FileOrder& order, const TensorShard& shard, const Rectangle& at,
                FunctionRef<void(const Region&)> each) {
  const int64_t file_pitch = order.file_columns();
  // Rows [row, row + rows) of memory, which begin at row `file_row` of the file.
  const auto plain = [&](int64_t row, int64_t rows, int64_t file_row) {
    intersect(shard.rows, row, row + rows, [&](const HeldRange& held) {
      intersect(shard.columns, at.column, at.column + at.columns, [&](const HeldRange& across) {
        each({.rows = held.end - held.begin,
              .columns = across.end - across.begin,
              .in_file = (file_row + held.begin - row) * file_pitch + across.begin,
              .file_pitch = file_pitch,
              .in_memory = held.at * shard.pitch + across.at,
              .memory_pitch = shard.pitch});
      });
    });
  };
  if (order.transposed) {
    for (int64_t column = at.column; column < at.column + at.columns;) {
      const RowRun run = run_in(order, column, at.column + at.columns);
      const int64_t begin = column;
      column += run.rows;
      if (run.memory_row < 0) continue;
      intersect(shard.columns, at.row, at.row + at.rows, [&](const HeldRange& held) {
        intersect(shard.rows, run.memory_row, run.memory_row + run.rows, [&](const HeldRange& across) {
          each({.rows = held.end - held.begin,
                .columns = across.end - across.begin,
                .in_file = held.begin * file_pitch + begin + across.begin - run.memory_row,
                .file_pitch = file_pitch,
                .in_memory = across.at * shard.pitch + held.at,
                .memory_pitch = shard.pitch});
        });
      });
    }
  } else if (order.interleave.none() && order.part.whole()) {
    plain(at.row, at.rows, at.row);
  } else {
    for (int64_t row = at.row; row < at.row + at.rows;) {
      const RowRun run = run_in(order, row, at.row + at.rows);
      if (run.memory_row >= 0) plain(run.memory_row, run.rows, row);
      row += run.rows;
    }
  }
}

}  // namespace

int64_t TensorShard::elements() const {
  const auto count = [](const std::vector<HeldRange>& ranges) {
    int64_t indices = 0;
    for (const HeldRange& range : ranges) indices += range.end - range.begin;
    return indices;
  };
  return count(rows) * count(columns);
}

TensorShard whole_shard(const FileOrder& order) {
  return {{{0, order.rows, 0}}, {{0, order.columns, 0}}, order.columns};
}

namespace {

// The part of a shard in rows [first, first + rows), with row indices relative to `first`.
TensorShard rows_of(const TensorShard& shard, int64_t first, int64_t rows) {
  TensorShard part{{}, shard.columns, shard.pitch};
  intersect(shard.rows, first, first + rows, [&](const HeldRange& held) {
    part.rows.push_back({held.begin - first, held.end - first, held.at});
  });
  return part;
}

}  // namespace

void for_each_region(const FileOrder& order, const TensorShard& shard, int64_t first, int64_t count,
                     FunctionRef<void(const Region&)> each) {
  if (order.blocks > 1) {
    const FileOrder of_block = order.of_block();
    const int64_t elements = of_block.rows * of_block.columns, last = first + count;
    for (int64_t block = first / std::max<int64_t>(elements, 1); block * elements < last; ++block) {
      const int64_t begin = std::max(first, block * elements), end = std::min(last, (block + 1) * elements);
      const TensorShard part = rows_of(shard, block * of_block.rows, of_block.rows);
      for_each_region(of_block, part, begin - block * elements, end - begin, [&](Region region) {
        region.in_file += block * elements;
        each(region);
      });
    }
    return;
  }
  const int64_t columns = order.file_columns(), end = first + count;
  // The rest of a row, whole rows, the beginning of a row.
  while (first < end) {
    const int64_t row = first / columns, column = first % columns;
    const int64_t whole = column == 0 ? (end - first) / columns : 0;
    const int64_t width = whole > 0 ? columns : std::min(columns - column, end - first);
    const Rectangle at{row, std::max<int64_t>(whole, 1), column, width};
    regions_of(order, shard, at, each);
    first += at.rows * at.columns;
  }
}

int64_t elements_in(const FileOrder& order, const TensorShard& shard, int64_t first, int64_t count) {
  int64_t elements = 0;
  for_each_region(order, shard, first, count,
                  [&](const Region& region) { elements += region.rows * region.columns; });
  return elements;
}

Split Split::of(const graph::Value& value, const graph::Mesh& mesh, int64_t first_row, int64_t rows,
                std::vector<int32_t> holders) {
  const Shape& shape = global_shape(value);
  int64_t inner = 1;  // elements per index of the second dimension
  for (int dim = 2; dim < shape.rank(); ++dim) inner *= shape[dim];
  Split split;
  split.mesh_ = mesh;
  split.holders_ = std::move(holders);
  for (const graph::Axis axis : graph::kAllAxes) {
    const graph::Placement placement = value.placements[axis];
    if (placement.kind != graph::Placement::Kind::kSharded || mesh.size(axis) == 1) continue;
    STRATA_CHECK(placement.dim < 2, "{} {} is sharded along dimension {}; only the first two can be saved",
                 value.name, shape.str(), placement.dim);
    (placement.dim == 0 ? split.rows_ : split.columns_).axes.push_back(axis);
  }
  const auto fill = [&](DimensionSplit& dimension, size_t dim) {
    graph::Coordinates coordinates;
    size_t parts = 1;
    for (const graph::Axis axis : dimension.axes) parts *= static_cast<size_t>(mesh.size(axis));
    for (size_t i = 0; i < parts; ++i) {
      size_t rest = i;
      for (size_t k = dimension.axes.size(); k-- > 0;) {
        const auto size = static_cast<size_t>(mesh.size(dimension.axes[k]));
        coordinates[dimension.axes[k]] = static_cast<int32_t>(rest % size);
        rest /= size;
      }
      const auto dims = held_dimensions(value, mesh, coordinates);
      DimensionShard& part = dimension.shards.emplace_back();
      if (dim >= dims.size()) {
        part = {{{0, 1, 0}}, 1};
      } else if (dim == 0) {
        intersect(dims[0].ranges, first_row, first_row + rows, [&](const HeldRange& held) {
          part.ranges.push_back({held.begin - first_row, held.end - first_row, held.at});
        });
        part.extent = dims[0].extent;
      } else {
        for (const HeldRange& held : dims[1].ranges)
          part.ranges.push_back({held.begin * inner, held.end * inner, held.at * inner});
        part.extent = dims[1].extent * inner;
      }
    }
  };
  fill(split.rows_, 0);
  fill(split.columns_, 1);
  return split;
}

size_t Split::shard_index(const DimensionSplit& dimension, const graph::Coordinates& coordinates) const {
  size_t part = 0;
  for (const graph::Axis axis : dimension.axes)
    part = part * static_cast<size_t>(mesh_.size(axis)) + static_cast<size_t>(coordinates[axis]);
  return part;
}

bool Split::splits(graph::Axis axis) const {
  const auto among = [axis](const std::vector<graph::Axis>& axes) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  };
  return among(rows_.axes) || among(columns_.axes);
}

TensorShard Split::shard(int64_t rank) const {
  const auto coordinates = mesh_.coordinates(rank);
  const int32_t stage = coordinates[graph::Axis::kPipeline];
  if (!holders_.empty() && holder_for(stage) != stage) return {};
  const DimensionShard& rows = rows_.shards[shard_index(rows_, coordinates)];
  const DimensionShard& columns = columns_.shards[shard_index(columns_, coordinates)];
  return {rows.ranges, columns.ranges, columns.extent};
}

bool Split::serves(int64_t rank, int64_t reader) const {
  const auto mine = mesh_.coordinates(rank), theirs = mesh_.coordinates(reader);
  for (const graph::Axis axis : graph::kAllAxes) {
    const bool by_holder = axis == graph::Axis::kPipeline && !holders_.empty();
    const int32_t wanted = by_holder ? holder_for(theirs[axis]) : theirs[axis];
    if (mine[axis] != wanted && !splits(axis)) return false;
  }
  return true;
}

int32_t Split::holder_for(int32_t stage) const {
  const bool has_it = std::find(holders_.begin(), holders_.end(), stage) != holders_.end();
  return has_it ? stage : holders_.front();
}

std::vector<int64_t> Split::servers_of(int64_t reader) const {
  std::vector<int64_t> servers;
  for (int64_t rank = 0; rank < mesh_.ranks(); ++rank) {
    if (serves(rank, reader)) servers.push_back(rank);
  }
  return servers;
}

}  // namespace strata::checkpoint
