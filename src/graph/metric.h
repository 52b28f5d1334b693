// Kinds of the numbers that a program exchanges with its user in every step.
#pragma once

#include <cstdint>
#include <string_view>

namespace strata::graph {

// The code that builds such a value lists it in the graph (Graph::set_metric); its readers look it up by kind
// and index. Accumulators over the micro-batches of a step, unless another use is stated.
enum class MetricKind : uint8_t {
  // Metrics of a loss; index 0: the main one, k: that of the module k that predicts further tokens.
  kLossSum,      // f64[1], over the tokens with a target
  kTokenCount,   // i64[1], these tokens
  kTokenLoss,    // f32[N], of each token of a micro-batch
  kTokenGreedy,  // i32[N], whether its target is the most probable token
  kLossTerms,    // i64[1], of all ranks in a step; the host writes it before the step
  // Auxiliary losses of models with experts, including their coefficients.
  kBalanceLossSum,  // f64[1], in terms of the main loss
  kRouterZLossSum,  // f64[1], in terms of the main loss
  // Metrics of a layer with experts; index: the layer.
  kRouterSquares,  // f64[1], squares of log sum exp of the router's logits
  kExpertTokens,   // i64[experts], token-expert pairs that the router asked for
  kExpertKept,     // i64[experts], those of them that were not dropped
  kExpertRounds,   // i64[1], passes after the first ones, where ranks share experts
  // Metrics of an update, not accumulated.
  kHyper,      // u8, its constants and learning rate (optim::UpdateHyper); the host writes it before the step
  kUpdates,    // i64[1], how many were made: device state
  kGradNorm,   // f32[1]
  kParamNorm,  // f32[1]
  kGuardHistory,  // u8, what steps are compared with (optim::GuardHistory): device state
  kLossScale,     // f32[1], what losses are multiplied by before gradients: device state of runs in fp16
  kDecision,      // u8, whether the update was made and why (optim::GuardDecision)
  kScoreClip,     // f64[stages, 3], of heads whose scores are limited (optim::ScoreSummary)
  // What a rank holds, for the host to add up (program/statistics.h).
  kStatisticsMask,  // i64[1], bits of the statistics that are on; the host writes it before the step
  kStatistics,      // f64[kStatisticsNumbers]; index: that in Program::statistics
  kWeightsDigest,   // i64[1], of the bits of this rank's weights after the update
  // Where other ranks hold the same:
  kGradientsDigest,    // i64[1], of its gradients' sums over the ranks
  kUsedWeightsDigest,  // i64[1], of its weights before the update
};
std::string_view name_of(MetricKind kind);
// Counts of a layer's router, which are added up over ranks once in a step.
constexpr bool is_router_count(MetricKind kind) {
  return kind >= MetricKind::kRouterSquares && kind <= MetricKind::kExpertRounds;
}

}  // namespace strata::graph
