// Weights in fp8 and MXFP4 blocks: the bytes that the formats define, written in any parts, and read again.
#include "checkpoint/packed_write.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "checkpoint/packed_weights.h"
#include "checkpoint/tensor_files.h"
#include "fixtures/scratch_folder.h"
#include "quantize/formats.h"

namespace strata::checkpoint {
namespace {

// Spread over many magnitudes, with a block of zeros, one outlier and ties.
std::vector<float> numbers(int64_t count) {
  std::vector<float> out;
  uint32_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    const float unit = static_cast<float>(state >> 8) / 8388608.0f - 1;
    out.push_back(unit * std::ldexp(1.0f, -static_cast<int>(i / 97 % 7)));
  }
  out.front() = 900;
  return out;
}

TensorView view_of(const std::string& name, const Shape& shape, const std::vector<float>& values) {
  return {.name = name, .shape = shape, .memory_dtype = DType::kF32, .storage = in_memory(values.data())};
}

template <typename T>
std::vector<T> content(const TensorView& view) {
  std::vector<T> out(static_cast<size_t>(bytes_of(view.memory_dtype, view.shape.elements())) / sizeof(T));
  view.storage->read(0, out.data(), static_cast<int64_t>(out.size() * sizeof(T)));
  return out;
}

// The nearest of all values of the format; of two the one with the even code.
uint8_t nearest_e4m3(float x) {
  const auto& values = quantize::values_of(quantize::Format::kE4M3);
  int best = 0;
  for (int code = 0; code < 127; ++code) {
    const float off = std::abs(values[static_cast<size_t>(code)] - std::abs(x)),
                least = std::abs(values[static_cast<size_t>(best)] - std::abs(x));
    if (off < least || (off == least && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best | (std::signbit(x) ? 128 : 0));
}

TEST(Fp8Blocks, HaveTheBytesOfTheFormat) {
  constexpr int64_t kRows = 150, kColumns = 300;
  std::vector<float> weights = numbers(kRows * kColumns);
  for (int64_t i = 128; i < kRows; ++i)
    for (int64_t j = 256; j < kColumns; ++j) weights[static_cast<size_t>(i * kColumns + j)] = 0;
  const auto packed = in_fp8_blocks(view_of("w", {kRows, kColumns}, weights));
  ASSERT_EQ(packed.size(), 2U);
  EXPECT_EQ(packed[0].name, "w");
  EXPECT_EQ(packed[1].name, "w_scale_inv");
  EXPECT_EQ(packed[0].stored_dtype(DType::kBF16), DType::kE4M3);
  EXPECT_EQ(packed[1].stored_dtype(DType::kBF16), DType::kF32);
  ASSERT_EQ(packed[1].shape, (Shape{2, 3}));
  const auto codes = content<uint8_t>(packed[0]);
  const auto scales = content<float>(packed[1]);
  for (int64_t bi = 0; bi < 2; ++bi) {
    for (int64_t bj = 0; bj < 3; ++bj) {
      float greatest = 0;
      const auto each = [&](auto visit) {
        for (int64_t i = 128 * bi; i < std::min(kRows, 128 * bi + 128); ++i)
          for (int64_t j = 128 * bj; j < std::min(kColumns, 128 * bj + 128); ++j)
            visit(static_cast<size_t>(i * kColumns + j));
      };
      each([&](size_t at) { greatest = std::max(greatest, std::abs(weights[at])); });
      const float scale = std::max(greatest, 1e-4f) / 448.0f;
      EXPECT_EQ(scales[static_cast<size_t>(3 * bi + bj)], scale) << bi << " " << bj;
      each([&](size_t at) { ASSERT_EQ(codes[at], nearest_e4m3(weights[at] / scale)) << at; });
    }
  }
  // In parts that begin and end anywhere.
  for (int64_t first = 0, size = 1; first < std::ssize(codes); first += size, size = size * 3 % 40009 + 1) {
    const int64_t count = std::min(size, std::ssize(codes) - first);
    std::vector<uint8_t> part(static_cast<size_t>(count));
    packed[0].storage->read(first, part.data(), count);
    ASSERT_TRUE(std::equal(part.begin(), part.end(), codes.begin() + first)) << first;
  }
}

TEST(Fp8Blocks, AreTheSameFromBf16) {
  std::vector<float> weights = numbers(64 * 40);
  std::vector<BF16> halves;
  for (float& weight : weights) {
    halves.emplace_back(weight);
    weight = static_cast<float>(halves.back());
  }
  TensorView half = view_of("w", {64, 40}, weights);
  half.memory_dtype = DType::kBF16;
  half.storage = in_memory(halves.data());
  EXPECT_EQ(content<uint8_t>(in_fp8_blocks(half)[0]),
            content<uint8_t>(in_fp8_blocks(view_of("w", {64, 40}, weights))[0]));
}

// By default of empty tensors: mismatches are reported before any tensor is read.
std::string file_of(const std::string& header, const std::string& data = {}) {
  std::string head = header;
  head.resize((head.size() + 7) / 8 * 8, ' ');
  const uint64_t length = head.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + head + data;
}

class PackedFiles : public testing::Test {
 protected:
  Path file() const { return folder_ / "model.safetensors"; }
  // The named tensor, unpacked.
  std::vector<float> unpacked(const std::string& name) const {
    TensorSource source = open_tensor_file(file());
    unpack_weights(source);
    const auto& entry = source.tensors.at(name);
    std::vector<float> out(static_cast<size_t>(entry.tensor->shape.elements()));
    entry.file->read(*entry.tensor, 0, out.data(), out.size() * sizeof(float));
    return out;
  }
  std::string error_of(const std::string& name) const {
    try {
      unpacked(name);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }
  void write(const std::vector<TensorView>& tensors) const {
    write_tensor_file(posix_file_system(), file(), tensors, DType::kBF16);
  }

  ScratchFolder folder_;
};

TEST_F(PackedFiles, Fp8BlocksAreReadAgain) {
  const std::vector<float> weights = numbers(200 * 140);
  const auto packed = in_fp8_blocks(view_of("w", {200, 140}, weights));
  write(packed);
  const auto found = unpacked("w");
  const auto scales = content<float>(packed[1]);
  for (size_t i = 0; i < weights.size(); ++i) {
    const float scale = scales[i / 140 / 128 * 2 + i % 140 / 128];
    // Half a unit of three digits, or of the least numbers.
    ASSERT_LE(std::abs(found[i] - weights[i]), std::max(std::abs(weights[i]) / 16, scale * 0x1p-10f)) << i;
  }
  // Values that have a code come back unchanged.
  const auto again = in_fp8_blocks(view_of("w", {200, 140}, found));
  const auto first = content<uint8_t>(packed[0]), second = content<uint8_t>(again[0]);
  EXPECT_EQ(first, second);
}

TEST_F(PackedFiles, Mxfp4BlocksAreReadAgain) {
  constexpr int64_t kExperts = 3, kInputs = 64, kOutputs = 5;
  const std::vector<float> weights = numbers(kExperts * kInputs * kOutputs);
  const auto packed = in_mxfp4_blocks(view_of("w", {kExperts, kInputs, kOutputs}, weights));
  EXPECT_EQ(packed[0].shape, (Shape{kExperts, kOutputs, 2, 16}));
  EXPECT_EQ(packed[1].shape, (Shape{kExperts, kOutputs, 2}));
  write(packed);
  const auto found = unpacked("w");
  ASSERT_EQ(found.size(), weights.size());
  const auto scales = content<uint8_t>(packed[1]);
  for (int64_t e = 0; e < kExperts; ++e) {
    for (int64_t o = 0; o < kOutputs; ++o) {
      for (int64_t g = 0; g < 2; ++g) {
        float greatest = 0;
        for (int64_t i = 32 * g; i < 32 * g + 32; ++i)
          greatest =
              std::max(greatest, std::abs(weights[static_cast<size_t>((e * kInputs + i) * kOutputs + o)]));
        const int exponent = std::ilogb(greatest) - 2;
        EXPECT_EQ(scales[static_cast<size_t>((e * kOutputs + o) * 2 + g)], exponent + 127);
        for (int64_t i = 32 * g; i < 32 * g + 32; ++i) {
          const auto at = static_cast<size_t>((e * kInputs + i) * kOutputs + o);
          // 6 is the largest of values below 8; elsewhere half a unit of one digit.
          const float scale = std::ldexp(1.0f, exponent), size = std::abs(weights[at]) / scale;
          const float most = size > 6 ? size - 6 : size > 4 ? 1.0f : size > 2 ? 0.5f : 0.25f;
          ASSERT_LE(std::abs(found[at] - weights[at]), most * scale) << at;
        }
      }
    }
  }
  const auto again = in_mxfp4_blocks(view_of("w", {kExperts, kInputs, kOutputs}, found));
  write(again);
  EXPECT_EQ(unpacked("w"), found);
}

// Of compressed-tensors: one scale a tensor or one a row, in any float type.
TEST_F(PackedFiles, OneScaleOrOneARow) {
  const std::vector<uint8_t> codes{0x38, 0xb8, 0x40, 0x7e, 0x01, 0x00};  // 1, -1, 2, 448, 2^-9, 0
  const std::vector<float> values{1, -1, 2, 448, 0x1p-9f, 0};
  const TensorView weight{
      .name = "w", .shape = {2, 3}, .memory_dtype = DType::kE4M3, .storage = in_memory(codes.data())};
  const BF16 one[] = {BF16(0.5f)};
  write({weight, {.name = "w_scale", .shape = {1}, .memory_dtype = DType::kBF16, .storage = in_memory(one)}});
  std::vector<float> wanted;
  for (const float value : values) wanted.push_back(0.5f * value);
  EXPECT_EQ(unpacked("w"), wanted);
  const std::vector<float> rows{2, 4};
  write({weight,
         {.name = "w_scale",
          .shape = {2, 1},
          .memory_dtype = DType::kF32,
          .storage = in_memory(rows.data()),
          .keeps_dtype = true}});
  EXPECT_EQ(unpacked("w"), (std::vector<float>{2, -2, 4, 1792, 0x1p-7f, 0}));
  write(
      {weight,
       {.name = "w_scale", .shape = {3}, .memory_dtype = DType::kF32, .storage = in_memory(values.data())}});
  EXPECT_NE(error_of("w").find("one scale, or one for each row"), std::string::npos) << error_of("w");
}

TEST_F(PackedFiles, RejectScalesOfNoQuantiser) {
  const std::vector<uint8_t> codes(130, 0x38);
  const TensorView weight{
      .name = "w", .shape = {130, 1}, .memory_dtype = DType::kE4M3, .storage = in_memory(codes.data())};
  for (const float scale :
       {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const std::vector<float> scales{1, scale};
    write({weight,
           {.name = "w_scale_inv",
            .shape = {2, 1},
            .memory_dtype = DType::kF32,
            .storage = in_memory(scales.data()),
            .keeps_dtype = true}});
    EXPECT_NE(error_of("w").find("at element 1; expected a scale above 0"), std::string::npos)
        << error_of("w");
    write({weight,
           {.name = "w_scale",
            .shape = {1},
            .memory_dtype = DType::kF32,
            .storage = in_memory(&scales[1]),
            .keeps_dtype = true}});
    EXPECT_NE(error_of("w").find("at element 0; expected a scale above 0"), std::string::npos)
        << error_of("w");
  }
  const std::vector<uint8_t> blocks(32, 0x11), exponents{127, 255};
  write({{.name = "w_blocks",
          .shape = {1, 2, 1, 16},
          .memory_dtype = DType::kU8,
          .storage = in_memory(blocks.data())},
         {.name = "w_scales",
          .shape = {1, 2, 1},
          .memory_dtype = DType::kU8,
          .storage = in_memory(exponents.data())}});
  EXPECT_NE(error_of("w").find("has scale 255 (NaN) for expert 0 at element 1"), std::string::npos)
      << error_of("w");
}

TEST_F(PackedFiles, MismatchedTensorsAreNamed) {
  const std::pair<const char*, const char*> files[] = {
      {R"({"w":{"dtype":"F8_E4M3","shape":[0,300],"data_offsets":[0,0]},
           "w_scale_inv":{"dtype":"F32","shape":[0,2],"data_offsets":[0,0]}})",
       "'w' F8_E4M3 [0, 300] and 'w_scale_inv' F32 [0, 2] do not match"},
      {R"({"w":{"dtype":"I8","shape":[0,300],"data_offsets":[0,0]},
           "w_scale_inv":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]}})",
       "'w' I8"},
      {R"({"w":{"dtype":"F8_E4M3","shape":[0,300],"data_offsets":[0,0]},
           "w_scale_inv":{"dtype":"BF16","shape":[0,3],"data_offsets":[0,0]}})",
       "'w_scale_inv' BF16 [0, 3] do not match"},
      {R"({"w":{"dtype":"F8_E4M3","shape":[0],"data_offsets":[0,0]},
           "w_scale_inv":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
       "'w' F8_E4M3 [0] and"},
      {R"({"w":{"dtype":"F8_E4M3","shape":[0,300],"data_offsets":[0,0]},
           "w_scale":{"dtype":"I32","shape":[0,1],"data_offsets":[0,0]}})",
       "'w_scale' I32 [0, 1] do not match"},
      {R"({"w":{"dtype":"F8_E4M3FNUZ","shape":[0,300],"data_offsets":[0,0]},
           "w_scale":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
       "'w' F8_E4M3FNUZ [0, 300] and 'w_scale' F32 [0] do not match"},
      {R"({"w_blocks":{"dtype":"U8","shape":[0,4,2,16],"data_offsets":[0,0]},
           "w_scales":{"dtype":"U8","shape":[0,4,3],"data_offsets":[0,0]}})",
       "'w_scales' U8 [0, 4, 3] do not match"},
      {R"({"w_blocks":{"dtype":"U8","shape":[0,4,2,8],"data_offsets":[0,0]},
           "w_scales":{"dtype":"U8","shape":[0,4,2],"data_offsets":[0,0]}})",
       "'w_blocks' U8 [0, 4, 2, 8]"},
      {R"({"w_blocks":{"dtype":"U8","shape":[1099511627776,0,1099511627776,16],"data_offsets":[0,0]},
           "w_scales":{"dtype":"U8","shape":[1099511627776,0,1099511627776],"data_offsets":[0,0]}})",
       "'w_scales' U8 [1099511627776, 0, 1099511627776] do not match"},
      {R"({"w":{"dtype":"F8_E4M3","shape":[0,9223372036854775807],"data_offsets":[0,0]},
           "w_scale_inv":{"dtype":"F32","shape":[0,1],"data_offsets":[0,0]}})",
       "'w' F8_E4M3 [0, 9223372036854775807]"},
      {R"({"w_blocks":{"dtype":"F4","shape":[0,4,2,16],"data_offsets":[0,0]},
           "w_scales":{"dtype":"F8_E8M0","shape":[0,4,2],"data_offsets":[0,0]}})",
       "'w_scales' F8_E8M0"},
      {R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},
           "w_blocks":{"dtype":"U8","shape":[0,4,2,16],"data_offsets":[0,0]},
           "w_scales":{"dtype":"U8","shape":[0,4,2],"data_offsets":[0,0]}})",
       "contains 'w' both plain and in blocks"}};
  for (const auto& [header, message] : files) {
    std::ofstream(file(), std::ios::binary) << file_of(header);
    EXPECT_NE(error_of("w").find(message), std::string::npos) << header << "\n" << error_of("w");
  }
}

// Codes of 1, -1, the greatest number and the least, of the OCP specification and of Noune et al. 2022, table 1.
TEST_F(PackedFiles, EightBitFloatsByTheirNames) {
  struct Case {
    const char* dtype;
    std::array<uint8_t, 4> codes;
    float greatest, least;
  };
  for (const Case& each : {Case{"F8_E4M3", {0x38, 0xb8, 0x7e, 0x01}, 448, 0x1p-9f},
                           Case{"F8_E5M2", {0x3c, 0xbc, 0x7b, 0x01}, 57344, 0x1p-16f},
                           Case{"F8_E4M3FNUZ", {0x40, 0xc0, 0x7f, 0x01}, 240, 0x1p-10f},
                           Case{"F8_E5M2FNUZ", {0x40, 0xc0, 0x7f, 0x01}, 57344, 0x1p-17f}}) {
    SCOPED_TRACE(each.dtype);
    const float scale = 0.5f;
    std::string data(reinterpret_cast<const char*>(&scale), sizeof scale);
    data.append(each.codes.begin(), each.codes.end());
    for (const auto& [ending, shape] : {std::pair("_scale_inv", "[1,1]"), std::pair("_scale", "[]")}) {
      const std::string header = fmt::format(
          R"({{"w":{{"dtype":"{}","shape":[2,2],"data_offsets":[4,8]}},"w{}":{{"dtype":"F32","shape":{},"data_offsets":[0,4]}}}})",
          each.dtype, ending, shape);
      std::ofstream(file(), std::ios::binary) << file_of(header, data);
      EXPECT_EQ(unpacked("w"), (std::vector<float>{0.5f, -0.5f, each.greatest / 2, each.least / 2}));
    }
  }
}

// Types of codes in files.
TEST_F(PackedFiles, CodesAreStoredAsTheyAre) {
  const std::vector<uint8_t> bytes{1, 2, 3, 4, 5, 6};
  std::vector<TensorView> tensors;
  for (const DType dtype : {DType::kE4M3, DType::kE5M2, DType::kE8M0})
    tensors.push_back({.name = std::string(name_of(dtype)),
                       .shape = {2, 3},
                       .memory_dtype = dtype,
                       .storage = in_memory(bytes.data())});
  write(tensors);
  const TensorSource source = open_tensor_file(file());
  for (const TensorView& tensor : tensors) {
    const auto& entry = source.tensors.at(tensor.name);
    EXPECT_EQ(entry.tensor->dtype, tensor.memory_dtype);
    EXPECT_EQ(entry.tensor->dtype_name, safetensors_name_of(tensor.memory_dtype));
    std::vector<uint8_t> found(bytes.size());
    entry.file->read(*entry.tensor, 0, found.data(), found.size());
    EXPECT_EQ(found, bytes) << tensor.name;
    EXPECT_EQ(scan_tensor(*entry.file, *entry.tensor).first_not_finite, -1);
  }
}

}  // namespace
}  // namespace strata::checkpoint
