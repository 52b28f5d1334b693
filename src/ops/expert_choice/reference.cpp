#include "ops/expert_choice/expert_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/reference.h"
#include "ops/router/scores.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::ExpertChoice>& at) {
  const ops::ExpertChoiceAttrs& attrs = at.attrs;
  const Array& logits = at.in.logits;
  const int64_t experts = logits.shape[1];
  std::vector<Numbers> scores;
  for (int64_t token = 0; token < logits.shape[0]; ++token) {
    scores.push_back(scores_of(logits.row(token), attrs.score));
    for (double& score : scores.back()) score += poison_of(logits.row(token));
  }
  int64_t slot = 0;
  for (int64_t first = 0; first < logits.shape[0]; first += attrs.rows) {
    for (int64_t e = 0; e < experts; ++e) {
      Numbers by;  // in fp32, as the device compares them; NaN before all others
      for (int64_t token = first; token < first + attrs.rows; ++token) {
        const auto score = static_cast<float>(scores[static_cast<size_t>(token)][static_cast<size_t>(e)]);
        by.push_back(std::isnan(score) ? std::numeric_limits<double>::infinity() : double{score});
      }
      std::vector<int64_t> chosen = ranking(by);
      chosen.resize(static_cast<size_t>(attrs.capacity));
      std::sort(chosen.begin(), chosen.end());
      for (const int64_t token : chosen) {
        at.out.tokens.put(slot, static_cast<double>(token));
        at.out.experts.put(slot, static_cast<double>(e));
        at.out.weights.put(slot,
                           attrs.scale * scores[static_cast<size_t>(first + token)][static_cast<size_t>(e)]);
        ++slot;
      }
    }
  }
}

template <>
void compute(const Arrays<ops::ExpertChoiceGrad>& at) {
  const ops::ExpertChoiceAttrs& attrs = at.attrs;
  const Array &given = at.in.dweights, &logits = at.in.logits, &tokens = at.in.tokens;
  const int64_t experts = logits.shape[1], of_group = experts * attrs.capacity;
  for (int64_t token = 0; token < logits.shape[0]; ++token) {
    Numbers of_scores(static_cast<size_t>(experts));
    const int64_t group = token / attrs.rows;
    for (int64_t slot = group * of_group; slot < (group + 1) * of_group; ++slot) {
      if (tokens.index_at(slot) != token % attrs.rows) continue;
      of_scores[static_cast<size_t>(slot % of_group / attrs.capacity)] += attrs.scale * given.at(slot);
    }
    put_row(at.out.dlogits, token,
            through_scores(scores_of(logits.row(token), attrs.score), of_scores, attrs.score));
  }
}

namespace {

// The row of a place's token.
int64_t row_of_slot(const ops::GroupRowsAttrs& attrs, const Array& tokens, int64_t slot) {
  return slot / attrs.slots * attrs.rows + tokens.index_at(slot);
}

}  // namespace

template <>
void compute(const Arrays<ops::GatherRows>& at) {
  const Array &x = at.in.x, &tokens = at.in.tokens;
  const int64_t width = x.shape[1];
  for (int64_t slot = 0; slot < tokens.shape[0]; ++slot) {
    const int64_t row = row_of_slot(at.attrs, tokens, slot);
    for (int64_t c = 0; c < width; ++c) at.out.y.put(slot * width + c, x.at(row * width + c));
  }
}

template <>
void compute(const Arrays<ops::ScatterRows>& at) {
  const Array &x = at.in.x, &tokens = at.in.tokens;
  const int64_t width = x.shape[1];
  Numbers sums(static_cast<size_t>(at.out.y.shape.elements()));
  for (int64_t slot = 0; slot < tokens.shape[0]; ++slot) {
    const int64_t row = row_of_slot(at.attrs, tokens, slot);
    for (int64_t c = 0; c < width; ++c) sums[static_cast<size_t>(row * width + c)] += x.at(slot * width + c);
  }
  for (size_t i = 0; i < sums.size(); ++i) at.out.y.put(static_cast<int64_t>(i), sums[i]);
}

}  // namespace strata::reference
