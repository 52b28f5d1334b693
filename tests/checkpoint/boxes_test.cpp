// Every layout's boxes make the file, and the file makes every layout's boxes: as pure data, over a table of
// meshes, placements and orders of files.
#include "checkpoint/boxes.h"

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

// A tensor of a file, rows [first_row, first_row + order.rows) of a value.
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
          {"transposed in pairs", {24, 12, true, {{1, 1}}}, 24, 0},
          {"blocks", {24, 12, true, {}, 3}, 24, 0},
          {"blocks in pairs", {24, 12, true, {{1, 1}}, 2}, 24, 0, {12, 12}},
          {"a vector of blocks", {24, 1, false, {{1, 1}}, 3}, 24, 0}};
}

// What each rank holds, and whom it gets what it lacks from.
struct Layout {
  std::string name;
  std::vector<Box> boxes;                     // by rank
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
    layout.boxes.push_back(split.box(rank));
    layout.servers.push_back(split.servers_of(rank));
  }
  return layout;
}

// Rows in uneven shards with padding behind each, so that the last ones are short or empty.
Layout padded(int64_t ranks, int64_t share, const Tensor& tensor) {
  Layout layout{"padded " + std::to_string(ranks) + " by " + std::to_string(share), {}, {}};
  std::vector<int64_t> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    Box box{{}, {{0, tensor.order.columns, 0}}, tensor.order.columns + 2};
    const int64_t begin = std::min(rank * share, tensor.order.rows),
                  end = std::min(begin + share, tensor.order.rows);
    if (begin < end) box.rows.push_back({begin, end, rank % 2});
    layout.boxes.push_back(std::move(box));
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

// The file, by the definition of each order.
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

// A rank's memory, element by element; 0 where nothing lies.
std::vector<int> memory_of(const FileOrder& order, const Box& box) {
  int64_t rows = 0;
  for (const Held& held : box.rows) rows = std::max(rows, held.at + held.end - held.begin);
  std::vector<int> memory(static_cast<size_t>(rows * box.pitch), 0);
  for (const Held& row : box.rows)
    for (int64_t r = row.begin; r < row.end; ++r)
      for (const Held& column : box.columns)
        for (int64_t c = column.begin; c < column.end; ++c)
          memory[static_cast<size_t>((row.at + r - row.begin) * box.pitch + column.at + c - column.begin)] =
              value_of(order, r, c);
  return memory;
}

template <typename Each>
void each_element(const FileOrder& order, const Box& box, int64_t first, int64_t count, Each each) {
  for_each_patch(order, box, first, count, [&](const Patch& patch) {
    for (int64_t row = 0; row < patch.rows; ++row)
      for (int64_t column = 0; column < patch.columns; ++column) {
        const int64_t in_file = patch.in_file + row * patch.file_pitch + column;
        const int64_t in_memory = order.transposed ? patch.in_memory + column * patch.memory_pitch + row
                                                   : patch.in_memory + row * patch.memory_pitch + column;
        ASSERT_TRUE(first <= in_file && in_file < first + count);
        each(static_cast<size_t>(in_file), static_cast<size_t>(in_memory));
      }
  });
}

TEST(Boxes, EveryLayoutIsReadFromWhatEveryOtherWrites) {
  for (const Tensor& tensor : tensors()) {
    const FileOrder& order = tensor.order;
    const auto file = file_of(order);
    const auto elements = static_cast<int64_t>(file.size());
    const auto table = layouts(tensor);
    for (const Layout& from : table) {
      for (const Layout& to : table) {
        SCOPED_TRACE(std::string(tensor.name) + ": from " + from.name + " to " + to.name);
        // Chunks that end within rows, each by another writer.
        const int64_t chunk = 1 + elements / 7;
        std::vector<std::vector<int>> read;
        for (const Box& box : to.boxes) read.emplace_back(memory_of(order, box).size(), 0);
        for (int64_t first = 0, writer = 0; first < elements; first += chunk, ++writer) {
          const int64_t count = std::min(chunk, elements - first);
          const auto ranks = static_cast<int64_t>(from.boxes.size());
          std::vector<int> written(file.size(), 0);
          for (const int64_t giver : from.servers[static_cast<size_t>(writer % ranks)]) {
            const Box& box = from.boxes[static_cast<size_t>(giver)];
            const auto memory = memory_of(order, box);
            each_element(order, box, first, count, [&](size_t in_file, size_t in_memory) {
              ASSERT_EQ(written[in_file], 0) << "given twice";
              written[in_file] = memory[in_memory];
            });
          }
          for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(first + count); ++i)
            ASSERT_EQ(written[i], file[i]) << i;
          for (size_t rank = 0; rank < to.boxes.size(); ++rank)
            each_element(order, to.boxes[rank], first, count,
                         [&](size_t in_file, size_t in_memory) { read[rank][in_memory] = written[in_file]; });
        }
        for (size_t rank = 0; rank < to.boxes.size(); ++rank)
          EXPECT_EQ(read[rank], memory_of(order, to.boxes[rank])) << rank;
      }
    }
  }
}

TEST(Boxes, HoldWhatTheMeshSays) {
  const Tensor fused{"fused", {12, 12}, 48, 24, {24, 12, 12}};
  const auto shards = layout_of("", Mesh::of(1, 2, 1, 1), {{Axis::kShard, kRows}}, fused);
  // A rank has a half of each segment; the second one's lies behind that of the first.
  EXPECT_EQ(shards.boxes[0], (Box{{{0, 6, 12}}, {{0, 12, 0}}, 12}));
  EXPECT_EQ(shards.boxes[1], (Box{{{6, 12, 12}}, {{0, 12, 0}}, 12}));
  const Tensor all{"all", {48, 12}, 48, 0, {24, 12, 12}};
  const auto both =
      layout_of("", Mesh::of(1, 2, 1, 3), {{Axis::kShard, kRows}, {Axis::kTensor, kColumns}}, all);
  EXPECT_EQ(both.boxes[4], (Box{{{12, 24, 0}, {30, 36, 12}, {42, 48, 18}}, {{4, 8, 0}}, 4}));
  EXPECT_EQ(both.boxes[4].elements(), 24 * 4);
}

TEST(Boxes, OfReplicasTheOneBesideTheWriterGives) {
  const Tensor plain{"plain", {24, 12}, 24, 0};
  const auto hybrid = layout_of("", Mesh::of(2, 2, 1, 1), {{Axis::kShard, kRows}}, plain);
  EXPECT_EQ(hybrid.servers[1], (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(hybrid.servers[2], (std::vector<int64_t>{2, 3}));
  const auto replicas = layout_of("", Mesh::of(4, 1, 1, 1), {}, plain);
  EXPECT_EQ(replicas.servers[3], (std::vector<int64_t>{3})) << "what it holds itself nobody sends";
}

TEST(Boxes, WholeOnesAreOnePatch) {
  const FileOrder order{1000, 64};
  std::vector<Patch> patches;
  for_each_patch(order, whole_box(order), 64, 640, [&](const Patch& patch) { patches.push_back(patch); });
  EXPECT_EQ(patches, (std::vector<Patch>{{10, 64, 64, 64, 64, 64}}));
  EXPECT_EQ(elements_in({0, 64}, whole_box({0, 64}), 0, 0), 0);
}

}  // namespace
}  // namespace strata::checkpoint
