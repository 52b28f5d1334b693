// The measurements of one training step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/ramp.h"
#include "optim/guard.h"
#include "train/expert_load.h"
#include "train/layer_statistics.h"
#include "train/rank_report.h"

namespace strata::training {

// Names and values of evaluations: "eval/valid/loss", …
using EvaluationResults = std::vector<std::pair<std::string, double>>;

// The scores of all heads of a model whose updates limit them.
struct AttentionScores {
  double greatest = 0;
  int64_t clipped = 0;  // heads whose queries and keys the update has scaled down
};

// Losses and norms are over all ranks, and the same on every rank.
struct StepRecord {
  int64_t step = 0;
  int64_t tokens = 0;  // since the start of the run, without padding
  int64_t first_sample = 0;
  std::optional<double> loss;  // nullopt: no token of the step has a target
  double grad_norm = 0, param_norm = 0, lr = 0;
  optim::GuardDecision decision;  // whether the update was made
  double step_seconds = 0, data_wait_seconds = 0, checkpoint_seconds = 0, copy_seconds = 0;
  std::vector<RankReport> ranks;  // of all ranks, if there are several
  double flops = 0;               // in the step
  double peak_flops = 0;          // measured GEMM peak; 0: not known
  int64_t step_tokens = 0;
  config::StepSize size;
  // Models with experts; the losses include their coefficients and are summed over layers.
  std::optional<ExpertLoad> experts;
  double balance_loss = 0, router_z_loss = 0;
  // Models with an indexer: its loss, summed over layers; in a warm-up the share of attention that the keys hold which it
  // would choose, a mean over layers.
  std::optional<double> indexer_loss, indexer_share;
  std::optional<AttentionScores> scores;     // with optimizer.muon.qk_clip
  std::optional<double> mtp_loss;            // models that predict further tokens; unweighted
  std::string weights_digest;                // after the update
  std::optional<StepStatistics> statistics;  // if the step measured any
  std::optional<double> noise_scale;         // in tokens; in steps that measure it
  EvaluationResults evaluations;
};

}  // namespace strata::training
