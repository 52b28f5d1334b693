// Assembles files from the shards of every layout and reads them into those of every other layout, for a
// table of meshes, placements and file orders.
#include "checkpoint/tensor_shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace strata::checkpoint {
namespace {

using graph::Axis;
using graph::Mesh;
using graph::Placement;

constexpr Placement kRows = Placement::sharded(0);
constexpr Placement kColumns = Placement::sharded(1);

// A tensor of a file: rows [first_row, first_row + order.rows) of a value.
struct Tensor {
  const char* name;
  FileOrder order;
  int64_t value_rows = 0, first_row = 0;
  std::vector<int64_t> segments = {};
};

std::vector<Tensor> tensors() {
  return {{"plain", {24, 12}, 24, 0},
          {"transposed", {24, 12, true}, 24, 0},
          {"fused", {12, 12}, 48, 24, {24, 12, 12}},
          {"fused and transposed", {12, 12, true}, 48, 36, {24, 12, 12}},
          {"interleaved", {24, 12, false, {{4, 1, 1}}}, 24, 0, {12, 12}},
          {"interleaved unevenly", {24, 12, false, {{2, 4}}}, 24, 0},
          {"a vector", {24, 1}, 24, 0},
          {"rows of one element", {24, 1, true}, 24, 0},
          {"transposed, interleaved", {24, 12, true, {{1, 1}}}, 24, 0},
          {"blocks", {24, 12, true, {}, 3}, 24, 0},
          {"interleaved blocks", {24, 12, true, {{1, 1}}, 2}, 24, 0, {12, 12}},
          {"a vector of blocks", {24, 1, false, {{1, 1}}, 3}, 24, 0}};
}

// The shard of each rank, and the ranks that send it the others.
struct Layout {
  std::string name;
  std::vector<TensorShard> shards;            // by rank
  std::vector<std::vector<int64_t>> servers;  // by rank
};

Layout layout_of(const std::string& name, const Mesh& mesh, const graph::Placements& placements,
                 const Tensor& tensor) {
  graph::Value value;
  value.name = tensor.name;
  value.shape = {tensor.value_rows, tensor.order.columns};
  value.placements = placements;
  value.segments = tensor.segments;
  value.segments_along = 0;
  const Split split = Split::of(value, mesh, tensor.first_row, tensor.order.rows);
  Layout layout{name, {}, {}};
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    layout.shards.push_back(split.shard(rank));
    layout.servers.push_back(split.servers_of(rank));
  }
  return layout;
}

// Uneven shards of rows, padded; the last ones are short or empty.
Layout padded(int64_t ranks, int64_t share, const Tensor& tensor) {
  Layout layout{"padded " + std::to_string(ranks) + " by " + std::to_string(share), {}, {}};
  std::vector<int64_t> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    TensorShard shard{{}, {{0, tensor.order.columns, 0}}, tensor.order.columns + 2};
    const int64_t begin = std::min(rank * share, tensor.order.rows),
                  end = std::min(begin + share, tensor.order.rows);
    if (begin < end) shard.rows.push_back({begin, end, rank % 2});
    layout.shards.push_back(std::move(shard));
    layout.servers.push_back(all);
  }
  return layout;
}

std::vector<Layout> layouts(const Tensor& tensor) {
  const bool matrix = tensor.order.columns > 1;
  std::vector<Layout> table{
      layout_of("one", Mesh::of_one(), {}, tensor),
      layout_of("replicate 2", Mesh::of(2, 1, 1, 1), {}, tensor),
      layout_of("shard 2", Mesh::of(1, 2, 1, 1), {{Axis::kShard, kRows}}, tensor),
      layout_of("shard 3", Mesh::of(1, 3, 1, 1), {{Axis::kShard, kRows}}, tensor),
      layout_of("shard 4", Mesh::of(1, 4, 1, 1), {{Axis::kShard, kRows}}, tensor),
      layout_of("replicate 2 shard 2", Mesh::of(2, 2, 1, 1), {{Axis::kShard, kRows}}, tensor),
      layout_of("shard 2 tensor 2", Mesh::of(1, 2, 1, 2), {{Axis::kShard, kRows}, {Axis::kTensor, kRows}},
                tensor),
      padded(2, 13, tensor),
      padded(3, 9, tensor),
      padded(4, 12, tensor)};
  if (matrix) {
    table.push_back(layout_of("tensor 3", Mesh::of(1, 1, 1, 3), {{Axis::kTensor, kColumns}}, tensor));
    table.push_back(layout_of("shard 2 by 2", Mesh::of(1, 2, 1, 2),
                              {{Axis::kShard, kRows}, {Axis::kTensor, kColumns}}, tensor));
    table.push_back(
        layout_of("replicate 2 columns 2", Mesh::of(2, 1, 1, 2), {{Axis::kTensor, kColumns}}, tensor));
  }
  return table;
}

int value_of(const FileOrder& order, int64_t row, int64_t column) {
  return static_cast<int>(row * order.columns + column) + 1;
}

// The elements of the file, by the definition of each order.
std::vector<int> file_of(const FileOrder& order) {
  std::vector<int> file;
  if (order.blocks > 1) {
    const FileOrder one = order.of_block();
    for (int64_t block = 0; block < order.blocks; ++block)
      for (const int value : file_of(one))
        file.push_back(value + static_cast<int>(block * one.rows * one.columns));
    return file;
  }
  std::vector<int64_t> rows(static_cast<size_t>(order.rows));
  std::iota(rows.begin(), rows.end(), 0);
  if (!order.interleave.none()) {
    rows.clear();
    const int64_t groups = order.rows / order.interleave.group_rows();
    for (int64_t group = 0; group < groups; ++group) {
      int64_t part = 0;
      for (const int64_t count : order.interleave.parts) {
        for (int64_t row = 0; row < count; ++row) rows.push_back(part + group * count + row);
        part += groups * count;
      }
    }
  }
  if (order.transposed) {
    for (int64_t column = 0; column < order.columns; ++column)
      for (const int64_t row : rows) file.push_back(value_of(order, row, column));
    return file;
  }
  for (const int64_t row : rows)
    for (int64_t column = 0; column < order.columns; ++column) file.push_back(value_of(order, row, column));
  return file;
}

// The elements of a rank's memory; 0 for padding.
std::vector<int> memory_of(const FileOrder& order, const TensorShard& shard) {
  int64_t rows = 0;
  for (const HeldRange& held : shard.rows) rows = std::max(rows, held.at + held.end - held.begin);
  std::vector<int> memory(static_cast<size_t>(rows * shard.pitch), 0);
  for (const HeldRange& row : shard.rows)
    for (int64_t r = row.begin; r < row.end; ++r)
      for (const HeldRange& column : shard.columns)
        for (int64_t c = column.begin; c < column.end; ++c)
          memory[static_cast<size_t>((row.at + r - row.begin) * shard.pitch + column.at + c - column.begin)] =
              value_of(order, r, c);
  return memory;
}

template <typename Each>
void each_element(const FileOrder& order, const TensorShard& shard, int64_t first, int64_t count, Each each) {
  for_each_region(order, shard, first, count, [&](const Region& region) {
    for (int64_t row = 0; row < region.rows; ++row)
      for (int64_t column = 0; column < region.columns; ++column) {
        const int64_t in_file = region.in_file + row * region.file_pitch + column;
        const int64_t in_memory = order.transposed ? region.in_memory + column * region.memory_pitch + row
                                                   : region.in_memory + row * region.memory_pitch + column;
        ASSERT_TRUE(first <= in_file && in_file < first + count);
        each(static_cast<size_t>(in_file), static_cast<size_t>(in_memory));
      }
  });
}

TEST(TensorShard, EveryLayoutReadsTheFilesOfEveryOther) {
  for (const Tensor& tensor : tensors()) {
    const FileOrder& order = tensor.order;
    const auto file = file_of(order);
    const auto elements = static_cast<int64_t>(file.size());
    const auto table = layouts(tensor);
    for (const Layout& from : table) {
      for (const Layout& to : table) {
        SCOPED_TRACE(std::string(tensor.name) + ": from " + from.name + " to " + to.name);
        // Chunks that end within rows, each with another writer.
        const int64_t chunk = 1 + elements / 7;
        std::vector<std::vector<int>> read;
        for (const TensorShard& shard : to.shards) read.emplace_back(memory_of(order, shard).size(), 0);
        for (int64_t first = 0, writer = 0; first < elements; first += chunk, ++writer) {
          const int64_t count = std::min(chunk, elements - first);
          const auto ranks = static_cast<int64_t>(from.shards.size());
          std::vector<int> written(file.size(), 0);
          for (const int64_t sender : from.servers[static_cast<size_t>(writer % ranks)]) {
            const TensorShard& shard = from.shards[static_cast<size_t>(sender)];
            const auto memory = memory_of(order, shard);
            each_element(order, shard, first, count, [&](size_t in_file, size_t in_memory) {
              ASSERT_EQ(written[in_file], 0) << "sent twice";
              written[in_file] = memory[in_memory];
            });
          }
          for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(first + count); ++i)
            ASSERT_EQ(written[i], file[i]) << i;
          for (size_t rank = 0; rank < to.shards.size(); ++rank)
            each_element(order, to.shards[rank], first, count,
                         [&](size_t in_file, size_t in_memory) { read[rank][in_memory] = written[in_file]; });
        }
        for (size_t rank = 0; rank < to.shards.size(); ++rank)
          EXPECT_EQ(read[rank], memory_of(order, to.shards[rank])) << rank;
      }
    }
  }
}

TEST(TensorShard, MatchesThePlacements) {
  const Tensor fused{"fused", {12, 12}, 48, 24, {24, 12, 12}};
  const auto halves = layout_of("", Mesh::of(1, 2, 1, 1), {{Axis::kShard, kRows}}, fused);
  // A rank holds half of each segment; the half of the second segment follows that of the first.
  EXPECT_EQ(halves.shards[0], (TensorShard{{{0, 6, 12}}, {{0, 12, 0}}, 12}));
  EXPECT_EQ(halves.shards[1], (TensorShard{{{6, 12, 12}}, {{0, 12, 0}}, 12}));
  const Tensor all{"all", {48, 12}, 48, 0, {24, 12, 12}};
  const auto both =
      layout_of("", Mesh::of(1, 2, 1, 3), {{Axis::kShard, kRows}, {Axis::kTensor, kColumns}}, all);
  EXPECT_EQ(both.shards[4], (TensorShard{{{12, 24, 0}, {30, 36, 12}, {42, 48, 18}}, {{4, 8, 0}}, 4}));
  EXPECT_EQ(both.shards[4].elements(), 24 * 4);
}

TEST(TensorShard, TheNearestReplicaSends) {
  const Tensor plain{"plain", {24, 12}, 24, 0};
  const auto hybrid = layout_of("", Mesh::of(2, 2, 1, 1), {{Axis::kShard, kRows}}, plain);
  EXPECT_EQ(hybrid.servers[1], (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(hybrid.servers[2], (std::vector<int64_t>{2, 3}));
  const auto replicas = layout_of("", Mesh::of(4, 1, 1, 1), {}, plain);
  EXPECT_EQ(replicas.servers[3], (std::vector<int64_t>{3})) << "a rank receives nothing that it holds";
}

TEST(TensorShard, WholeRowsAreOneRegion) {
  const FileOrder order{1000, 64};
  std::vector<Region> regions;
  for_each_region(order, whole_shard(order), 64, 640,
                  [&](const Region& region) { regions.push_back(region); });
  EXPECT_EQ(regions, (std::vector<Region>{{10, 64, 64, 64, 64, 64}}));
  EXPECT_EQ(elements_in({0, 64}, whole_shard({0, 64}), 0, 0), 0);
}

}  // namespace
}  // namespace strata::checkpoint
