#include "optim/scalars/scalars.h"

#include "base/parallel.h"
#include "optim/reference.h"

namespace strata::reference {
namespace {

static_assert(sizeof(UpdateScalars) <= optim::kScalarBytes, "the scalars fit their place");

double sum_of_all(const std::vector<Array>& partials) {
  double sum = 0;
  for (const Array& one : partials) {
    for (int64_t i = 0; i < one.shape.elements(); ++i) sum += one.at(i);
  }
  return sum;
}

}  // namespace

template <>
void compute(const Arrays<optim::SumOfSquares>& at) {
  const Array& x = at.in.x;
  parallel_for(at.out.partials.shape.elements(), [&](int64_t block) {
    const int64_t end = std::min(x.shape.elements(), (block + 1) * optim::kNormBlock);
    double sum = 0;
    for (int64_t i = block * optim::kNormBlock; i < end; ++i) sum += x.at(i) * x.at(i);
    at.out.partials.put(block, sum);
  });
}

template <>
void compute(const Arrays<optim::SumOfPartials>& at) {
  at.out.sum.put(0, sum_of_all(at.in.partials));
}

template <>
void compute(const Arrays<optim::RootOfSum>& at) {
  at.out.norm.put(0, std::sqrt(sum_of_all(at.in.partials)));
}

template <>
void compute(const Arrays<optim::StepScalars>& at) {
  optim::UpdateHyper hyper;
  std::memcpy(&hyper, at.in.hyper.data, sizeof hyper);
  const int64_t count = at.in.token_count.index_at(0);
  int64_t updates = at.in.updates.index_at(0);
  // Gradients are sums over tokens. A step without a valid target has no gradient.
  const double mean = count > 0 ? 1.0 / static_cast<double>(count) : 0.0;
  const bool is_scaled = at.in.loss_scale.present();
  const double unscaled_mean = is_scaled ? mean / at.in.loss_scale.at(0) : mean;
  const double norm = std::sqrt(sum_of_all(at.in.partials)) * unscaled_mean;
  optim::GuardHistory history;
  std::memcpy(&history, at.in.history.data, sizeof history);
  const auto decide = is_scaled ? optim::decide_scaled : optim::decide;
  const optim::GuardDecision decision =
      decide(hyper.rules, at.in.loss_sum.at(0) * mean, norm, count > 0, hyper.max_grad_norm, history);
  if (decision.skip == 0) ++updates;
  const UpdateScalars scalars{.lr = hyper.lr,
                              .grad_scale = static_cast<float>(unscaled_mean * decision.clip),
                              .skip = decision.skip,
                              .update = updates};
  std::memcpy(at.out.scalars.data, &scalars, sizeof scalars);
  UpdateScalars embedding = scalars;
  embedding.grad_scale *= hyper.embedding_scale;
  std::memcpy(at.out.embedding_scalars.data, &embedding, sizeof embedding);
  std::memcpy(at.out.history.data, &history, sizeof history);
  std::memcpy(at.out.decision.data, &decision, sizeof decision);
  at.out.norm.put(0, norm);
  std::memcpy(at.out.updates.data, &updates, sizeof updates);
  if (is_scaled) at.out.loss_scale.put(0, history.loss_scale.scale);
}

}  // namespace strata::reference
