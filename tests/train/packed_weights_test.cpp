// Weights published in blockwise fp8 and in MXFP4, compared with the unpacking in transformers
// (tools/golden/make_packed_golden.py).
#include "checkpoint/packed_weights.h"
#include "base/error.h"
#include "fixtures/golden_model.h"
#include "fixtures/temporary_folder.h"

namespace strata::training {
namespace {

using namespace golden;

std::string folder_of(const std::string& name) {
  return std::string(STRATA_TEST_DATA) + "/checkpoint/packed/" + name;
}

class PackedWeights : public testing::TestWithParam<const char*> {};

TEST_P(PackedWeights, UnpackLikeTransformers) {
  const Golden golden(folder_of(GetParam()));
  const auto weights = checkpoint::open_weights(golden.folder, golden.model);
  int compared = 0;
  for (const auto& [name, entry] : golden.source.tensors) {
    if (!name.starts_with("weight/")) continue;
    const auto wanted = golden.floats(name);
    const auto& found = weights.entry(name.substr(7));
    ASSERT_EQ(found.tensor->shape, entry.tensor->shape) << name;
    // Chunks that begin within rows and blocks.
    constexpr size_t kChunk = 1001;
    for (size_t first = 0; first < wanted.size(); first += kChunk) {
      std::vector<float> chunk(std::min(kChunk, wanted.size() - first));
      found.file->read(*found.tensor, first * sizeof(float), chunk.data(), chunk.size() * sizeof(float));
      EXPECT_TRUE(std::equal(chunk.begin(), chunk.end(), wanted.begin() + static_cast<std::ptrdiff_t>(first)))
          << name << " from " << first;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 1);
}

TEST_P(PackedWeights, HaveTheLogitsOfTransformers) {
  EXPECT_LT(logits_error(Golden(folder_of(GetParam()))), 1e-4);
}

// A file of empty tensors: mismatches are reported before any tensor is read.
std::string file_of(const std::string& header) {
  std::string head = header;
  head.resize((head.size() + 7) / 8 * 8, ' ');
  const uint64_t length = head.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + head;
}

TEST(PackedWeightFiles, MismatchedTensorsAreNamed) {
  const std::pair<const char*, const char*> files[] = {
      {R"({"w":{"dtype":"F8_E4M3","shape":[0,300],"data_offsets":[0,0]},
           "w_scale_inv":{"dtype":"F32","shape":[0,2],"data_offsets":[0,0]}})",
       "'w' F8_E4M3 [0, 300] and 'w_scale_inv' F32 [0, 2] do not match"},
      {R"({"w":{"dtype":"F8_E5M2","shape":[0,300],"data_offsets":[0,0]},
           "w_scale_inv":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]}})",
       "'w' F8_E5M2"},
      {R"({"w_blocks":{"dtype":"U8","shape":[0,4,2,16],"data_offsets":[0,0]},
           "w_scales":{"dtype":"U8","shape":[0,4,3],"data_offsets":[0,0]}})",
       "'w_scales' U8 [0, 4, 3] do not match"},
      {R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},
           "w_blocks":{"dtype":"U8","shape":[0,4,2,16],"data_offsets":[0,0]},
           "w_scales":{"dtype":"U8","shape":[0,4,2],"data_offsets":[0,0]}})",
       "contains 'w' both plain and in blocks"}};
  for (const auto& [header, message] : files) {
    const data::TemporaryFolder scratch;
    checkpoint::TensorSource source =
        checkpoint::open_tensor_file(scratch.write("model.safetensors", file_of(header)));
    data::expect_error(ErrorKind::kData, {message}, [&] { checkpoint::unpack_weights(source); });
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, PackedWeights, testing::Values("deepseek-v3-fp8", "gpt-oss-mxfp4"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace strata::training
