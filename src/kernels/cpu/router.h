// Selection of experts for tokens, and the losses that balance their load, as ops/router defines them.
// Logits, scores and weights are fp32. The bits of sums over tokens do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

enum class RouterScore : uint8_t { kSoftmax, kSigmoid };

struct RouteShape {
  int64_t tokens = 0;
  int64_t experts = 1;
  int64_t k = 1;
  RouterScore score = RouterScore::kSoftmax;
  bool normalize = false;
  float normalize_eps = 0;
  float scale = 1;
  int64_t groups = 1, kept_groups = 1;
  enum class GroupScore : uint8_t { kBest, kBestTwo, kSum } group_score = GroupScore::kBest;
  bool force_balanced = false;
  int64_t hash_stream = 0;
};

// ids[N, k] and weights[N, k] from logits[N, experts]; bias[experts] and tokens[N] may be null. A token with
// a non-finite logit gets NaN as its weights, so that the loss shows it; its ids are in range and distinct:
// the first available experts where no score decides.
int64_t route_scratch_bytes(const RouteShape& shape);
void route(const RouteShape& shape, int32_t* ids, float* weights, const float* logits, const float* bias,
           const int32_t* tokens, void* scratch);
int64_t route_backward_scratch_bytes(const RouteShape& shape);
void route_backward(const RouteShape& shape, float* d_logits, const float* d_weights, const float* logits,
                    const int32_t* ids, void* scratch);

// scores[N, experts]; NaN for tokens with a non-finite logit. Backward: the gradient of the logits from that
// of the scores.
void router_scores(int64_t tokens, int64_t experts, RouterScore score, float* scores, const float* logits);
void router_scores_backward(int64_t tokens, int64_t experts, RouterScore score, float* d_logits,
                            const float* d_scores, const float* logits);

// y[rows, columns] = x · weights[rows].
void scale_rows(int64_t rows, int64_t columns, void* y, const void* x, const float* weights, DType dtype);
void scale_rows_backward(int64_t rows, int64_t columns, void* dx, float* d_weights, const void* dy,
                         const void* x, const float* weights, DType dtype);

// probabilities[groups, experts] and counts[groups, experts] for groups of `rows` tokens.
struct RouterSumsShape {
  int64_t groups = 1, rows = 0;
  int64_t experts = 1;
  int64_t k = 1;
  RouterScore score = RouterScore::kSoftmax;
  int64_t sequence = 1, idle = 0;  // the last `idle` tokens of each `sequence` tokens are excluded
  bool counts(int64_t token) const { return token % sequence < sequence - idle; }
};
int64_t router_sums_scratch_bytes(const RouterSumsShape& shape);
void router_sums(const RouterSumsShape& shape, float* probabilities, float* counts, const float* logits,
                 const int32_t* ids, void* scratch);
void router_sums_backward(const RouterSumsShape& shape, float* d_logits, const float* d_probabilities,
                          const float* logits);

// Each group adds coefficient · experts / (k T C) · Σ counts · probabilities, times its number of targets, to
// the loss; its counts add up to k C.
struct BalanceShape {
  int64_t groups = 1, rows = 0;  // rows: targets per group
  int64_t tokens = 0;            // T
  int64_t experts = 1;
  int64_t k = 1;
  double coefficient = 0;
  bool same_counts = false;  // counts[1, experts], for all groups
};
void balance_loss(const BalanceShape& shape, double* sum, const float* probabilities, const float* counts,
                  const int32_t* targets, bool accumulate);
void balance_loss_backward(const BalanceShape& shape, float* d_probabilities, const float* counts,
                           const int32_t* targets);

// Adds coefficient · (log Σ exp logits)² for each token with a target. With `rows`, sequences of `rows`
// tokens with `targets` targets each: every token has the weight (valid targets of its sequence) / rows.
struct RouterZShape {
  int64_t tokens = 0, experts = 1;
  double coefficient = 0;
  int64_t rows = 0, targets = 0;
};
int64_t router_z_scratch_bytes(const RouterZShape& shape);
void router_z_loss(const RouterZShape& shape, double* sum, const float* logits, const int32_t* targets,
                   bool accumulate, void* scratch);
void router_z_loss_backward(const RouterZShape& shape, float* d_logits, const float* logits,
                            const int32_t* targets);

}  // namespace strata::cpu
