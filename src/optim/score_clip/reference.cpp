#include "optim/score_clip/score_clip.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "optim/reference.h"

namespace strata::reference {
namespace {

bool is_step_skipped(const Array& decision) {
  optim::GuardDecision made;
  std::memcpy(&made, decision.data, sizeof made);
  return made.skip != 0;
}

std::vector<double> greatest_by_head(const Array& scores) {
  std::vector<double> greatest(static_cast<size_t>(scores.shape[1]),
                               -std::numeric_limits<double>::infinity());
  for (int64_t i = 0; i < scores.shape.elements(); ++i) {
    double& most = greatest[static_cast<size_t>(i % scores.shape[1])];
    most = std::max(most, scores.at(i));
  }
  return greatest;
}

}  // namespace

template <>
void compute(const Arrays<optim::ScoreFactors>& at) {
  using Share = optim::ScoreClip::Share;
  std::vector<double> gamma, least(static_cast<size_t>(at.attrs.kv_heads), 1.0);
  for (const double greatest : greatest_by_head(at.in.scores)) {
    const bool clips = std::isfinite(greatest) && greatest > at.attrs.limit;
    gamma.push_back(clips && !is_step_skipped(at.in.decision) ? at.attrs.limit / greatest : 1);
  }
  const size_t group = gamma.size() / least.size();
  for (size_t head = 0; head < gamma.size(); ++head)
    least[head / group] = std::min(least[head / group], gamma[head]);
  int64_t row = 0;
  for (const optim::ScoreClip::Heads& heads : at.attrs.rows) {
    for (size_t head = 0; head < static_cast<size_t>(heads.count); ++head) {
      for (const optim::ScoreClip::Run& run : heads.runs) {
        double factor = 1;
        if (run.share == Share::kKey) factor = std::sqrt(least[head]);
        if (run.share == Share::kQuery) factor = std::min(1.0, gamma[head] / std::sqrt(least[head / group]));
        if (run.share == Share::kAll) factor = gamma[head];
        for (int64_t end = row + run.rows; row < end; ++row) at.out.factors.put(row, factor);
      }
    }
  }
}

template <>
void compute(const Arrays<optim::ScaleRows>& at) {
  const Array& parameter = at.in.parameter;
  const int64_t columns = parameter.shape.elements() / parameter.shape[0];
  for (int64_t i = 0; i < parameter.shape.elements(); ++i)
    at.out.parameter.put(i, parameter.at(i) * at.in.factors.at(i / columns));
}

template <>
void compute(const Arrays<optim::ScoreSummary>& at) {
  std::vector<double> all;
  for (const Array& scores : at.in.scores) {
    const std::vector<double> some = greatest_by_head(scores);
    all.insert(all.end(), some.begin(), some.end());
  }
  double clipped = 0, most = -std::numeric_limits<double>::infinity();
  for (const double one : all) {
    most = std::max(most, one);
    if (std::isfinite(one) && one > at.attrs.limit) ++clipped;
  }
  for (int64_t i = 0; i < at.out.summary.shape.elements(); ++i) at.out.summary.put(i, 0);
  const int64_t own = optim::kScoreColumns * place_in(at.in.rank, graph::Axis::kPipeline, at.attrs.stages);
  at.out.summary.put(own + optim::kScoreHeads, static_cast<double>(all.size()));
  at.out.summary.put(own + optim::kGreatestScore, all.empty() ? 0 : most);
  at.out.summary.put(own + optim::kClippedHeads, is_step_skipped(at.in.decision) ? 0 : clipped);
}

}  // namespace strata::reference
