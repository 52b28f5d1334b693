// The costs that balance the stages of a pipeline.
#include "config/pipeline.h"

#include <gtest/gtest.h>

#include <numeric>

namespace strata::config {
namespace {

// The sum over all parts equals the FLOPs per token, except for the small share of the routers; it includes
// only the experts that a token passes.
TEST(CostsOfParts, SumToTheWholeModel) {
  constexpr int64_t kLength = 1024;
  for (const char* name : {"llama3-29m", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "glm-4.5"}) {
    const models::ModelConfig model = models::preset(name);
    const parallel::PartCosts costs = costs_of_parts(model, kLength);
    const double parts = std::accumulate(costs.layers.begin(), costs.layers.end(), costs.head);
    const double whole = models::training_flops_per_token(model, kLength);
    EXPECT_LE(parts, whole * (1 + 1e-9)) << name;
    EXPECT_GE(parts, whole * 0.97) << name;
  }
}

// A leading dense layer of DeepSeek-V3 is as wide as nine experts.
TEST(CostsOfParts, ALayerWithExpertsCostsTheExpertsOfAToken) {
  const parallel::PartCosts costs = costs_of_parts(models::preset("deepseek-v3"), 1024);
  EXPECT_NEAR(costs.layers.back() / costs.layers.front(), 1, 0.01);
}

}  // namespace
}  // namespace strata::config
