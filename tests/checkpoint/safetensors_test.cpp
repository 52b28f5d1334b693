#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "fixtures/scratch_folder.h"

namespace strata::checkpoint {
namespace {

std::string golden(const std::string& name) {
  return read_file(std::string(STRATA_TEST_DATA) + "/checkpoint/" + name);
}

std::string file_with(const std::string& header, size_t data_bytes, size_t claimed = std::string::npos) {
  const uint64_t length = claimed == std::string::npos ? header.size() : claimed;
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  return file + header + std::string(data_bytes, 'x');
}

SafetensorsHeader parse(const std::string& file) {
  return read_safetensors_header(file.size(), "memory", [&](uint64_t offset, void* out, size_t size) {
    ASSERT_LE(offset + size, file.size());
    std::memcpy(out, file.data() + offset, size);
  });
}

// The error message; empty if the file is accepted.
std::string refusal(const std::string& file) {
  try {
    parse(file);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

const std::string kTensor = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";

TEST(Safetensors, EmptyFileHasTheDocumentedBytes) {
  const std::string expected("\x08\0\0\0\0\0\0\0{}      ", 16);
  EXPECT_EQ(golden("empty.safetensors"), expected);
  EXPECT_EQ(plan_safetensors({}, {}).head, expected);
  EXPECT_TRUE(parse(expected).tensors.empty());
}

TEST(Safetensors, ReadsTheReferenceWriter) {
  const auto header = parse(golden("mixed.safetensors"));
  ASSERT_EQ(header.tensors.size(), 13u);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  const SafetensorsFile file(std::string(STRATA_TEST_DATA) + "/checkpoint/mixed.safetensors");
  const TensorInfo* scalar = file.find("scalar");
  ASSERT_NE(scalar, nullptr);
  EXPECT_EQ(scalar->shape.rank(), 0);
  float value = 0;
  file.read(*scalar, 0, &value, sizeof value);
  EXPECT_EQ(value, 2.5f);
  EXPECT_EQ(file.find("empty")->shape, Shape({0, 4}));
  EXPECT_EQ(file.find("layer.bf16")->dtype, DType::kBF16);
  EXPECT_EQ(file.find("layer.bf16")->shape, Shape({2, 3}));
  EXPECT_NE(file.find("quote\"\\\xc3\xbc\n"), nullptr);
  EXPECT_EQ(file.find("layer"), nullptr);
  int64_t numbers[6];
  file.read(*file.find("layer.i64"), 0, numbers, sizeof numbers);
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(numbers[i], i);
}

TEST(Safetensors, PlansTheHeaderOfTheReferenceWriter) {
  const std::string expected = golden("mixed.safetensors");
  const auto header = parse(expected);
  std::vector<TensorSpec> specs;
  for (const auto& tensor : header.tensors) specs.push_back({tensor.name, *tensor.dtype, tensor.shape});
  std::reverse(specs.begin(), specs.end());  // the order of the specs does not matter
  const auto plan = plan_safetensors(specs);
  EXPECT_EQ(plan.head, expected.substr(0, header.data_offset));
  EXPECT_EQ(plan.file_bytes, expected.size());
}

TEST(Safetensors, RefusesInvalidFiles) {
  struct Row {
    std::string file, message;
  };
  const std::string one = R"({"a":)" + kTensor + "}";
  const auto entry = [](const std::string& body, size_t bytes) {
    return file_with(R"({"a":{)" + body + "}}", bytes);
  };
  const std::vector<Row> rows{
      {"", "0 bytes"},
      {"1234567", "7 bytes"},
      {file_with("{}", 0, 100'000'001), "at most 100000000"},
      {file_with("{}", 0, 3), "a header of 3 bytes in a file of 10"},
      {file_with("{}", 0, ~uint64_t{0} - 1), "at most"},
      {std::string(64, '\0'), "does not begin with '{'"},
      {file_with(" {}", 0), "does not begin with '{'"},
      {file_with("[]", 0), "does not begin with '{'"},
      {file_with("\xef\xbb\xbf{}", 0), "does not begin with '{'"},
      {file_with(std::string("{}\0", 3), 0), "zero byte"},
      {file_with("{} x", 0), "not valid JSON"},
      {file_with("{\"\xff\":" + kTensor + "}", 4), "not valid JSON"},
      {file_with("{", 0), "not valid JSON"},
      {file_with(one, 3), "truncated"},
      {file_with(one, 5), "describes 4"},
      {file_with(R"({"a":)" + kTensor + R"(,"a":)" + kTensor + "}", 4), "'a' appears twice"},
      {file_with(R"({"__metadata__":{},"__metadata__":{}})", 0), "appears twice"},
      {file_with(R"({"__metadata__":{"x":"1","x":"2"}})", 0), "the key 'x' twice"},
      {file_with(R"({"__metadata__":{"x":1}})", 0), "only strings"},
      {file_with(R"({"__metadata__":{"shape":[1]}})", 0), "only strings"},
      {file_with(R"({"__metadata__":{"x":{}}})", 0), "only strings"},
      {file_with(R"({"__metadata__":null})", 0), "expected"},
      {file_with(R"({"a":3})", 0), "expected a tensor entry"},
      {file_with(R"({"a":[]})", 0), "expected a tensor entry"},
      {entry(R"("dtype":"U8","shape":[4])", 4), "lacks data_offsets"},
      {entry(R"("dtype":"U8","data_offsets":[0,4])", 4), "lacks shape"},
      {entry(R"("shape":[4],"data_offsets":[0,4])", 4), "lacks dtype"},
      {entry(R"("dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4])", 4), "twice"},
      {entry(R"("dtype":"u8","shape":[4],"data_offsets":[0,4])", 4), "unknown dtype 'u8'"},
      {entry(R"("dtype":"F8","shape":[4],"data_offsets":[0,4])", 4), "unknown dtype"},
      {entry(R"("dtype":8,"shape":[4],"data_offsets":[0,4])", 4), "'dtype' of 'a'"},
      {entry(R"("dtype":"U8","shape":[-4],"data_offsets":[0,4])", 4), "negative"},
      {entry(R"("dtype":"U8","shape":[4.0],"data_offsets":[0,4])", 4), "'shape' of 'a'"},
      {entry(R"("dtype":"U8","shape":["4"],"data_offsets":[0,4])", 4), "'shape' of 'a'"},
      {entry(R"("dtype":"U8","shape":[[4]],"data_offsets":[0,4])", 4), "'shape' of 'a'"},
      {entry(R"("dtype":"U8","shape":4,"data_offsets":[0,4])", 4), "'shape' of 'a'"},
      {entry(R"("dtype":"U8","shape":[5],"data_offsets":[0,4])", 4), "needs 5 bytes"},
      {entry(R"("dtype":"U8","shape":[4],"data_offsets":[0,4,4])", 4), "3 data_offsets"},
      {entry(R"("dtype":"U8","shape":[4],"data_offsets":[4,0])", 4), "ends before it begins"},
      {entry(R"("dtype":"U8","shape":[4],"data_offsets":[1,5])", 5), "gap"},
      {entry(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,4])", 4), "too large"},
      {entry(R"("dtype":"F64","shape":[4611686018427387904,8],"data_offsets":[0,0])", 0), "overflows"},
      {entry(R"("dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,4])", 4), "'shape' of 'a'"},
      {entry(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])", 1), "whole byte"},
      {entry(R"("dtype":"U8","shape":[1,1,1,1,1,1,4],"data_offsets":[0,4])", 4), "7 dimensions"},
      {entry(R"("extra":[[[1]]],"dtype":"U8","shape":[4],"data_offsets":[0,4])", 4), "deeper"},
      {file_with("{\"" + std::string(5000, 'n') + "\":" + kTensor + "}", 4), "5000 bytes"},
      {file_with(R"({"a":)" + kTensor + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6),
       "overlaps"},
      {file_with(R"({"a":)" + kTensor + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", 9),
       "gap"},
  };
  for (const auto& row : rows) {
    const std::string message = refusal(row.file);
    EXPECT_NE(message.find(row.message), std::string::npos)
        << "expected: " << row.message << "\nmessage: " << message << "\nfile: " << row.file.substr(0, 200);
    EXPECT_EQ(message.rfind("[memory] ", 0), 0u);
  }
}

TEST(Safetensors, AcceptsValidFiles) {
  EXPECT_EQ(refusal(file_with("{}", 0)), "");
  EXPECT_EQ(refusal(file_with("{}\n ", 0)), "");
  EXPECT_EQ(refusal(file_with(R"({"a":)" + kTensor + "}", 4)), "");
  // Unknown fields, an order other than that of the bytes, empty tensors between others, a dtype that Strata
  // does not have.
  EXPECT_EQ(refusal(file_with(R"({"a":{"crc32c":[7],"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4)),
            "");
  const auto header =
      parse(file_with(R"({"b":{"dtype":"F8_E4M3FNUZ","shape":[2],"data_offsets":[4,6]},"a":)" + kTensor +
                          R"(,"z":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}})",
                      6));
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].name, "z");
  EXPECT_EQ(header.tensors[2].name, "b");
  EXPECT_FALSE(header.tensors[2].dtype.has_value());
  EXPECT_EQ(header.tensors[2].bytes, 2u);
}

TEST(Safetensors, RefusesToWriteInvalidFiles) {
  const std::vector<TensorSpec> twice{{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}};
  EXPECT_THROW(plan_safetensors(twice), InternalError);
  const std::vector<TensorSpec> bad_name{{"\xff", DType::kF32, {1}}};
  EXPECT_THROW(plan_safetensors(bad_name), InternalError);
}

TEST(ShardIndex, ReadsWhatItWrites) {
  const std::map<std::string, std::string> file_of{{"a", "model-00001-of-00002.safetensors"},
                                                   {"b", "model-00002-of-00002.safetensors"}};
  const auto index = parse_shard_index(format_shard_index(file_of, 12), "memory");
  EXPECT_EQ(index.file_of, file_of);
  EXPECT_EQ(index.files.size(), 2u);
}

TEST(ShardIndex, RefusesPathsOutsideTheFolder) {
  const auto index_to = [](const std::string& file) { return R"({"weight_map":{"a":")" + file + R"("}})"; };
  for (const char* file : {"../model.safetensors", "/etc/x.safetensors", "a/b.safetensors", ".safetensors",
                           "", "model.bin", "m\\u0000.safetensors"}) {
    EXPECT_THROW(parse_shard_index(index_to(file), "memory"), DataError) << file;
  }
  for (const char* text :
       {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})", R"({"weight_map":{"a":1}})",
        R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})"}) {
    EXPECT_THROW(parse_shard_index(text, "memory"), DataError) << text;
  }
}

}  // namespace
}  // namespace strata::checkpoint
