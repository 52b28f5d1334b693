#include "checkpoint/tensor_io.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "base/random.h"
#include "checkpoint/tensor_files.h"
#include "fixtures/scratch_folder.h"

namespace strata::checkpoint {
namespace {

std::vector<float> random_floats(int64_t n, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(n));
  fill_normal(values.data(), n, 1.0f, {seed, 1});
  return values;
}

TEST(TensorIo, WritesTheBytesOfTheReferenceWriter) {
  const Path golden = std::string(STRATA_TEST_DATA) + "/checkpoint/mixed.safetensors";
  const SafetensorsFile file(golden);
  std::vector<std::vector<std::byte>> memory;
  std::vector<TensorView> views;
  for (const auto& tensor : file.tensors()) {
    memory.emplace_back(tensor.bytes + 1);
    file.read(tensor, 0, memory.back().data(), tensor.bytes);
    views.push_back({tensor.name, tensor.shape, *tensor.dtype, in_memory(memory.back().data())});
  }
  ScratchFolder folder;
  const auto stored =
      write_tensor_file(posix_file_system(), folder / "ours.safetensors", views, std::nullopt);
  EXPECT_EQ(read_file(folder / "ours.safetensors"), read_file(golden));
  EXPECT_EQ(stored.checksum, file.header().checksum);
  for (size_t i = 0; i < views.size(); ++i)
    EXPECT_EQ(stored.tensors[i].checksums,
              file.tensors()[i].bytes > 0
                  ? std::vector<uint64_t>{hash64(memory[i].data(), file.tensors()[i].bytes)}
                  : std::vector<uint64_t>{})
        << views[i].name;
}

// All float types, both layouts, sizes around the edges of tiles and chunks: reading returns an element-wise
// conversion of the values written.
TEST(TensorIo, ConvertsAndTransposes) {
  ScratchFolder folder;
  const Path path = folder / "a.safetensors";
  for (const Shape& shape : {Shape{0, 3}, Shape{1, 1}, Shape{3, 5}, Shape{33, 65}, Shape{1, 1'200'001},
                             Shape{700'001, 1}, Shape{517, 2311}}) {
    const auto values = random_floats(shape.elements(), 7);
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const bool transposed : {false, true}) {
        const std::vector<TensorView> views{{"w", shape, DType::kF32, in_memory(values.data()), transposed}};
        const auto stored = write_tensor_file(posix_file_system(), path, views, dtype);
        const SafetensorsFile file(path);
        const TensorInfo& info = *file.find("w");
        EXPECT_EQ(info.dtype, dtype);
        EXPECT_EQ(scan_tensor(file, info, stored.chunk_bytes).checksums, stored.tensors[0].checksums);

        std::vector<float> back(values.size(), -1);
        const TensorChecksums checksums{stored.chunk_bytes, stored.tensors[0].checksums};
        read_tensor(file, info, {"w", shape, DType::kF32, in_memory(back.data()), transposed},
                    {.check_finite = true, .checksums = &checksums});
        std::vector<uint16_t> rounded(values.size());
        std::vector<float> expected = values;
        if (dtype != DType::kF32) {
          convert(rounded.data(), dtype, values.data(), DType::kF32, shape.elements());
          convert(expected.data(), DType::kF32, rounded.data(), dtype, shape.elements());
        }
        EXPECT_EQ(back, expected) << shape.str() << " " << name_of(dtype) << " " << transposed;

        // The layout of the file itself.
        std::vector<float> plain(values.size());
        read_tensor(file, info, {"w", shape, DType::kF32, in_memory(plain.data()), false});
        for (int64_t i = 0; i < shape[0]; i += 1 + shape[0] / 7) {
          for (int64_t j = 0; j < shape[1]; j += 1 + shape[1] / 7) {
            const int64_t at = transposed ? j * shape[0] + i : i * shape[1] + j;
            ASSERT_EQ(plain[static_cast<size_t>(i * shape[1] + j)], expected[static_cast<size_t>(at)]);
          }
        }
      }
    }
  }
}

// Parts of equal and unequal size, matrices and biases, chunks that end within a row: the file has the rows
// of memory, group by group.
TEST(TensorIo, Interleaves) {
  ScratchFolder folder;
  const Path path = folder / "a.safetensors";
  struct Case {
    Interleave interleave;
    Shape shape;
  };
  for (const auto& one :
       std::vector<Case>{{{{2, 2, 2}}, {18, 5}},  // three heads of q; k; v
                         {{{4, 1, 1}}, {12}},     // four query heads to a key-value head, a bias
                         {{{3}}, {9, 2}},         // one part: the same order
                         {{{3, 5}}, {0, 7}},
                         {{{2, 1}}, {6, 600'007}},  // rows longer than a chunk
                         {{{64, 64, 64}}, {1536, 517}}}) {
    const Interleave& interleave = one.interleave;
    const Shape& shape = one.shape;
    const auto values = random_floats(shape.elements(), 9);
    const int64_t columns = shape.rank() == 2 ? shape[1] : 1;
    int64_t groups = shape[0] / interleave.group_rows();
    // The definition: for each group, its rows of each part.
    std::vector<float> in_file;
    for (int64_t group = 0; group < groups; ++group) {
      int64_t part_begin = 0;
      for (const int64_t rows : interleave.parts) {
        const auto* begin = values.data() + (part_begin + group * rows) * columns;
        in_file.insert(in_file.end(), begin, begin + rows * columns);
        part_begin += groups * rows;
      }
    }
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const std::vector<TensorView> views{
          {"w", shape, DType::kF32, in_memory(values.data()), false, interleave}};
      const auto stored = write_tensor_file(posix_file_system(), path, views, dtype);
      const SafetensorsFile file(path);
      std::vector<uint16_t> rounded(values.size());
      const auto expected = [&](std::vector<float> floats) {
        if (dtype != DType::kF32) {
          convert(rounded.data(), dtype, floats.data(), DType::kF32, shape.elements());
          convert(floats.data(), DType::kF32, rounded.data(), dtype, shape.elements());
        }
        return floats;
      };
      std::vector<float> plain(values.size(), -1), back(values.size(), -1);
      read_tensor(file, *file.find("w"), {"w", shape, DType::kF32, in_memory(plain.data())});
      EXPECT_EQ(plain, expected(in_file)) << shape.str() << " " << name_of(dtype);
      const TensorChecksums checksums{stored.chunk_bytes, stored.tensors[0].checksums};
      read_tensor(file, *file.find("w"), {"w", shape, DType::kF32, in_memory(back.data()), false, interleave},
                  {.checksums = &checksums});
      EXPECT_EQ(back, expected(values)) << shape.str() << " " << name_of(dtype);
    }
  }
  std::vector<float> seven(7);
  const std::vector<TensorView> ragged{{"w", {7}, DType::kF32, in_memory(seven.data()), false, {{2, 1}}}};
  EXPECT_THROW(write_tensor_file(posix_file_system(), path, ragged, DType::kF32), InternalError);
}

TEST(TensorIo, ReadsConv1dWeightsOfTheReference) {
  const SafetensorsFile file(std::string(STRATA_TEST_DATA) + "/checkpoint/conv1d.safetensors");
  std::vector<float> memory(15);
  read_tensor(file, *file.find("weight"), {"weight", {3, 5}, DType::kF32, in_memory(memory.data()), true});
  for (size_t r = 0; r < 3; ++r)
    for (size_t c = 0; c < 5; ++c) EXPECT_EQ(memory[c * 3 + r], static_cast<float>(10 * r + c));
}

TEST(TensorIo, DenormalsSurviveConversionOnThreadsThatFlushThem) {
  parallel_for(4, [](int64_t) {});  // sets flush-to-zero on this thread too
  const std::vector<float> tiny{1e-40f, -1e-39f, 0x1p-133f};
  ScratchFolder folder;
  const std::vector<TensorView> views{{"w", {3}, DType::kF32, in_memory(tiny.data())}};
  write_tensor_file(posix_file_system(), folder / "a.safetensors", views, DType::kBF16);
  const SafetensorsFile file(folder / "a.safetensors");
  std::vector<uint32_t> back(3);
  read_tensor(file, *file.find("w"), {"w", {3}, DType::kF32, in_memory(back.data())});
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(back[i] & 0x7fffffffu, 0u) << i;
  EXPECT_EQ(back[2], std::bit_cast<uint32_t>(0x1p-133f));
}

TEST(TensorIo, RefusesMismatches) {
  ScratchFolder folder;
  const std::vector<float> values{1, NAN, 3};
  const std::vector<TensorView> views{{"w", {3}, DType::kF32, in_memory(values.data())}};
  write_tensor_file(posix_file_system(), folder / "a.safetensors", views, DType::kBF16);
  const SafetensorsFile file(folder / "a.safetensors");
  std::vector<float> memory(4);
  EXPECT_THROW(read_tensor(file, *file.find("w"), {"w", {4}, DType::kF32, in_memory(memory.data())}),
               DataError);
  EXPECT_THROW(read_tensor(file, *file.find("w"), {"w", {3}, DType::kI32, in_memory(memory.data())}),
               DataError);
  try {
    read_tensor(file, *file.find("w"), {"w", {3}, DType::kF32, in_memory(memory.data())},
                {.check_finite = true});
    ADD_FAILURE() << "a NaN was accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("element 1"), std::string::npos) << error.what();
  }
  EXPECT_THROW(SafetensorsFile(folder / "absent.safetensors"), ConfigError);
}

}  // namespace
}  // namespace strata::checkpoint
