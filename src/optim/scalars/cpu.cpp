#include "optim/scalars/scalars.h"

#include <cmath>
#include <cstring>

#include "optim/cpu.h"

namespace strata::device {
namespace {

static_assert(optim::kNormBlock == cpu::kNormBlock,
              "a partial sum must cover the same number of elements in plan and kernel");
static_assert(sizeof(UpdateScalars) <= optim::kScalarBytes, "the kernels' scalars fit their place");

// Partial sums of squares, one list a tensor, added in order.
struct PartialsPlan {
  explicit PartialsPlan(const std::vector<graph::Ref>& partials) {
    for (const graph::Ref& one : partials) counts.push_back(one->shape.elements());
  }
  double total(const Pointers<const double>& partials) const {
    double sum = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      double part = 0;
      cpu::reduce_sum(partials[i], counts[i], &part);
      sum += part;
    }
    return sum;
  }
  std::vector<int64_t> counts;
};

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<optim::SumOfSquares>& node) {
  return node.kernel([n = node.in.x->shape.elements()](const Operands<optim::SumOfSquares>& at) {
    cpu::sum_of_squares_partials(at.in.x, n, at.out.partials);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<optim::SumOfPartials>& node) {
  return node.kernel([plan = PartialsPlan(node.in.partials)](const Operands<optim::SumOfPartials>& at) {
    *at.out.sum = plan.total(at.in.partials);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<optim::RootOfSum>& node) {
  return node.kernel([plan = PartialsPlan(node.in.partials)](const Operands<optim::RootOfSum>& at) {
    *at.out.norm = static_cast<float>(std::sqrt(plan.total(at.in.partials)));
  });
}

template <>
BoundKernel bind(Cpu, const Bind<optim::StepScalars>& node) {
  return node.kernel([plan = PartialsPlan(node.in.partials)](const Operands<optim::StepScalars>& at) {
    optim::UpdateHyper hyper;
    std::memcpy(&hyper, at.in.hyper, sizeof hyper);
    const int64_t count = *at.in.token_count;
    // Gradients are sums over tokens. A step without a valid target has no gradient: it is skipped.
    const double mean = count > 0 ? 1.0 / static_cast<double>(count) : 0.0;
    const bool is_scaled = at.in.loss_scale != nullptr;
    const double unscaled_mean = is_scaled ? mean / static_cast<double>(*at.in.loss_scale) : mean;
    const double norm = std::sqrt(plan.total(at.in.partials)) * unscaled_mean;
    optim::GuardHistory history;
    std::memcpy(&history, at.in.history, sizeof history);
    const auto decide = is_scaled ? optim::decide_scaled : optim::decide;
    const optim::GuardDecision decision =
        decide(hyper.rules, *at.in.loss_sum * mean, norm, count > 0, hyper.max_grad_norm, history);
    const bool skip = decision.skip != 0;
    const UpdateScalars scalars{.lr = hyper.lr,
                                .grad_scale = static_cast<float>(decision.clip * unscaled_mean),
                                .skip = skip,
                                .update = *at.in.updates + (skip ? 0 : 1)};
    std::memcpy(at.out.scalars, &scalars, sizeof scalars);
    UpdateScalars embedding = scalars;
    embedding.grad_scale *= hyper.embedding_scale;
    std::memcpy(at.out.embedding_scalars, &embedding, sizeof embedding);
    std::memcpy(at.out.history, &history, sizeof history);
    std::memcpy(at.out.decision, &decision, sizeof decision);
    *at.out.norm = static_cast<float>(norm);
    *at.out.updates = scalars.update;
    if (is_scaled) *at.out.loss_scale = history.loss_scale.scale;
  });
}

}  // namespace strata::device
