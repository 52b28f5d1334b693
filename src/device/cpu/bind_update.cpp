#include <cmath>
#include <cstring>

#include "device/cpu/bind.h"
#include "kernels/cpu/optimizer.h"
#include "optim/adamw.h"

namespace strata::device::cpu_bind {
namespace {

static_assert(optim::kNormBlock == cpu::kNormBlock,
              "a partial sum covers as many elements in plan and kernel");
static_assert(sizeof(cpu::AdamWScalars) <= optim::kScalarBytes, "the kernels' scalars fit their place");

// Partial sums of squares, one list a tensor, added in order.
struct PartialsPlan {
  std::vector<int64_t> counts;
  int first_operand;

  double total(std::byte* const* p) const {
    double sum = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      double part = 0;
      cpu::reduce_sum(reinterpret_cast<const double*>(p[first_operand + static_cast<int>(i)]), counts[i],
                      &part);
      sum += part;
    }
    return sum;
  }
};

PartialsPlan partials_plan(const graph::NodeView& view, int first) {
  PartialsPlan plan{{}, first};
  for (int i = first; i < static_cast<int>(view.node.inputs.size()); ++i)
    plan.counts.push_back(view.in(i).shape.elements());
  return plan;
}

using AdamWPlan = std::vector<optim::UpdatePart>;

// (x) → partials
BoundKernel sum_of_squares(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::sum_of_squares_partials(f32(p[0]), plan_of<int64_t>(plan), reinterpret_cast<double*>(p[1]));
      },
      request.view.in(0).shape.elements());
}

// (hyper, token count, partials…) → scalars, norm
BoundKernel update_scalars(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<PartialsPlan>(held);
        optim::UpdateHyper hyper;
        std::memcpy(&hyper, p[0], sizeof hyper);
        int64_t count = 0;
        std::memcpy(&count, p[1], sizeof count);
        const int outputs = plan.first_operand + static_cast<int>(plan.counts.size());
        // Gradients are sums over tokens. A step without a valid target has no gradient: it is skipped.
        const double mean = count > 0 ? 1.0 / static_cast<double>(count) : 0.0;
        const double norm = std::sqrt(plan.total(p)) * mean;
        // As torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)).
        const double clip =
            hyper.max_grad_norm > 0 ? std::min(1.0, hyper.max_grad_norm / (norm + 1e-6)) : 1.0;
        const cpu::AdamWScalars scalars{.lr = hyper.lr,
                                        .beta1 = hyper.beta1,
                                        .beta2 = hyper.beta2,
                                        .eps = hyper.eps,
                                        .bias_correction1 = hyper.bias_correction1,
                                        .bias_correction2 = hyper.bias_correction2,
                                        .grad_scale = static_cast<float>(clip * mean),
                                        .skip = count == 0 || !std::isfinite(norm)};
        std::memcpy(p[outputs], &scalars, sizeof scalars);
        *f32(p[outputs + 1]) = static_cast<float>(norm);
      },
      partials_plan(request.view, 2));
}

// (partials…) → norm
BoundKernel root_of_sum(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<PartialsPlan>(held);
        *f32(p[plan.counts.size()]) = static_cast<float>(std::sqrt(plan.total(p)));
      },
      partials_plan(request.view, 0));
}

// (master, m, v, grad, scalars) → master, m, v, in place
BoundKernel adamw(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        int64_t first = 0;
        for (const optim::UpdatePart& part : plan_of<AdamWPlan>(held)) {
          cpu::adamw_update(part.elements, f32(p[0]) + first, f32(p[1]) + first, f32(p[2]) + first,
                            f32(p[3]) + first, reinterpret_cast<const cpu::AdamWScalars*>(p[4]),
                            static_cast<float>(part.weight_decay), static_cast<float>(part.lr_scale),
                            nullptr);
          first += part.elements;
        }
      },
      optim::update_parts(request.view.attrs<optim::AdamWAttrs>(), request.view.in(0).shape));
}

}  // namespace

std::span<const Binding> update_bindings() {
  static const Binding kTable[] = {
      {&optim::kSumOfSquares, sum_of_squares},
      {&optim::kUpdateScalars, update_scalars},
      {&optim::kRootOfSum, root_of_sum},
      {&optim::kAdamW, adamw},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
