#include "optim/score_clip/score_clip.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "optim/cpu.h"

namespace strata::device {
namespace {

bool skips_update(const uint8_t* decision) {
  optim::GuardDecision made;
  std::memcpy(&made, decision, sizeof made);
  return made.skip != 0;
}

// What ranks have found of one block.
struct ScoresFound {
  const float* data = nullptr;
  int64_t parts = 0, heads = 0;

  float greatest(int64_t head) const {
    float most = -std::numeric_limits<float>::infinity();
    for (int64_t part = 0; part < parts; ++part) most = std::max(most, data[part * heads + head]);
    return most;
  }
  // The least factor of the query heads [first, end).
  double least_factor(double limit, int64_t first, int64_t end) const {
    double least = 1;
    for (int64_t head = first; head < end; ++head)
      least = std::min(least, optim::head_factor(limit, greatest(head)));
    return least;
  }
};

void write_factors(const ScoresFound& scores, const optim::ScoreFactorsAttrs& attrs, float* to) {
  const int64_t group = scores.heads / attrs.kv_heads;
  for (const optim::ScoreClip::Heads& heads : attrs.rows) {
    const int64_t readers = scores.heads / heads.count;  // query heads of one of these
    for (int64_t head = 0; head < heads.count; ++head) {
      const int64_t first = head * readers, keys = first / group;
      const double own = scores.least_factor(attrs.limit, first, first + readers);
      const double least = scores.least_factor(attrs.limit, keys * group, (keys + 1) * group);
      for (const optim::ScoreClip::Run& run : heads.runs) {
        std::fill_n(to, run.rows, static_cast<float>(optim::share_factor(run.share, own, least)));
        to += run.rows;
      }
    }
  }
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<optim::ScoreFactors>& node) {
  const Shape& scores = node.in.scores->shape;
  return node.kernel([parts = scores[0], heads = scores[1], rows = node.out.factors->shape[0],
                      attrs = node.attrs](const Operands<optim::ScoreFactors>& at) {
    if (skips_update(at.in.decision)) {
      std::fill_n(at.out.factors, rows, 1.0f);
    } else {
      write_factors({at.in.scores, parts, heads}, attrs, at.out.factors);
    }
  });
}

template <>
BoundKernel bind(Cpu, const Bind<optim::ScaleRows>& node) {
  const Shape& shape = node.in.parameter->shape;
  const int64_t columns = shape.rank() == 2 ? shape[1] : 1;
  return node.kernel([rows = shape[0], columns](const Operands<optim::ScaleRows>& at) {
    cpu::scale_rows(
        at.in.parameter, rows, columns, [&](int64_t row) { return at.in.factors[row]; }, at.out.parameter);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<optim::ScoreSummary>& node) {
  std::vector<Shape> shapes;
  for (const graph::Ref& scores : node.in.scores) shapes.push_back(scores->shape);
  return node.kernel([shapes = std::move(shapes),
                      attrs = node.attrs](const Operands<optim::ScoreSummary>& at) {
    double* const summary = at.out.summary;
    std::fill_n(summary, attrs.stages * optim::kScoreColumns, 0.0);
    double* const own =
        summary + optim::kScoreColumns * graph::place_in(at.in.rank, graph::Axis::kPipeline, attrs.stages);
    const bool is_skipped = skips_update(at.in.decision);
    double most = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < shapes.size(); ++i) {
      const ScoresFound found{at.in.scores[i], shapes[i][0], shapes[i][1]};
      for (int64_t head = 0; head < found.heads; ++head) {
        const double greatest = found.greatest(head);
        most = std::max(most, greatest);
        if (!is_skipped && optim::head_factor(attrs.limit, greatest) < 1) own[optim::kClippedHeads] += 1;
      }
      own[optim::kScoreHeads] += static_cast<double>(found.heads);
    }
    if (own[optim::kScoreHeads] > 0) own[optim::kGreatestScore] = most;
  });
}

}  // namespace strata::device
