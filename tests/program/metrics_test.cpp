// Metrics of a program, looked up by kind and index.
#include "program/metrics.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "fixtures/tiny_program.h"

namespace strata::program {
namespace {

using graph::MetricKind;

TEST(Metrics, AreFoundByKindAndLayer) {
  CompileOptions options = tiny_options("llama3-5m");
  models::Experts& experts = options.model.experts;
  experts = {.count = 4, .intermediate_size = 24, .first = 1, .dense = {}};
  experts.route.k = 2;
  experts.balance_coefficient = 0.1;
  const Request request = tiny_request();
  TinyRun run(compile({request}, options));
  run.step();
  const auto metric = [&](MetricKind kind, int32_t index = 0) {
    return Metric(run.executor, 0, kind, index);
  };
  EXPECT_EQ(metric(MetricKind::kLossSum).read<double>(), run.executor.read<double>("loss_sum"));
  EXPECT_EQ(metric(MetricKind::kGradNorm).read<float>(), run.executor.read<float>("grad_norm"));
  EXPECT_TRUE(metric(MetricKind::kLossSum).is_reported());
  const auto tokens = metric(MetricKind::kTokenCount).read_reported<int64_t>();
  EXPECT_EQ(tokens, request.sequences * request.sequence_length);
  for (int32_t layer = 1; layer < options.model.layers; ++layer) {
    const auto counts = metric(MetricKind::kExpertTokens, layer).read_all<int64_t>();
    ASSERT_EQ(std::ssize(counts), experts.count) << layer;
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), tokens * experts.route.k) << layer;
    EXPECT_GT(metric(MetricKind::kRouterSquares, layer).read<double>(), 0) << layer;
  }
  EXPECT_GT(metric(MetricKind::kBalanceLossSum).read<double>(), 0);
  for (const Metric& absent : {metric(MetricKind::kExpertTokens, 0), metric(MetricKind::kLossSum, 1),
                               metric(MetricKind::kRouterZLossSum), Metric()}) {
    EXPECT_FALSE(absent.is_here());
    EXPECT_EQ(absent.read_reported<double>(), 0);
    EXPECT_THROW(absent.read<double>(), InternalError);
  }
}

}  // namespace
}  // namespace strata::program
