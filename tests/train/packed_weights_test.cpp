// Weights published in blockwise fp8 and in MXFP4, compared with the unpacking in transformers
// (tools/golden/make_packed_golden.py).
#include "checkpoint/packed_weights.h"
#include "fixtures/golden_model.h"

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

INSTANTIATE_TEST_SUITE_P(Formats, PackedWeights, testing::Values("deepseek-v3-fp8", "gpt-oss-mxfp4"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace strata::training
