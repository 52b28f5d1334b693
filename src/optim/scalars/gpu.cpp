#include "optim/scalars/scalars.h"

#include <algorithm>

#include "device/gpu/gpu.h"

namespace strata::device {
namespace {

static_assert(optim::kNormBlock == gpu::kNormBlock,
              "a partial sum covers the elements that its kernel takes");
static_assert(sizeof(gpu::GpuUpdateScalars) <= optim::kScalarBytes, "the kernels' scalars fit their place");

// Partial sums, one list a tensor, added in order.
struct Partials {
  explicit Partials(const std::vector<graph::Ref>& lists) {
    for (const graph::Ref& one : lists) counts.push_back(static_cast<int32_t>(one->shape.elements()));
  }
  void add(const Launch& launch, const Pointers<const double>& lists, double* sum) const {
    for (size_t begin = 0; begin == 0 || begin < counts.size(); begin += gpu::kMostLists) {
      gpu::PartialsArgs args{};
      args.sum = sum;
      args.accumulate = begin > 0 ? 1 : 0;
      for (size_t i = begin; i < std::min<size_t>(counts.size(), begin + gpu::kMostLists); ++i) {
        args.partials[args.lists] = lists[i];
        args.counts[args.lists++] = counts[i];
      }
      start(launch, gpu::sum_partials(), args);
    }
  }
  std::vector<int32_t> counts;
};

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<optim::SumOfSquares>& node) {
  const int64_t n = node.in.x->shape.elements();
  return node.kernel([n, kernel = gpu::sum_of_squares(n)](const Operands<optim::SumOfSquares>& at) {
    start(at.launch, kernel, gpu::SquaresArgs{.partials = at.out.partials, .x = at.in.x, .n = n});
  });
}

template <>
BoundKernel bind(Gpu, const Bind<optim::SumOfPartials>& node) {
  return node.kernel([partials = Partials(node.in.partials)](const Operands<optim::SumOfPartials>& at) {
    partials.add(at.launch, at.in.partials, at.out.sum);
  });
}

template <>
BoundKernel bind(Gpu, const Bind<optim::RootOfSum>& node) {
  return node.kernel(
      [partials = Partials(node.in.partials)](const Operands<optim::RootOfSum>& at) {
        auto* const sum = reinterpret_cast<double*>(at.scratch);
        partials.add(at.launch, at.in.partials, sum);
        start(at.launch, gpu::root_of_sum(), gpu::RootArgs{.norm = at.out.norm, .sum = sum});
      },
      sizeof(double));
}

template <>
BoundKernel bind(Gpu, const Bind<optim::StepScalars>& node) {
  if (node.in.loss_scale) not_yet("update_scalars", "of a scaled loss");
  GpuScratch scratch;
  const int64_t sum_at = scratch.take(sizeof(double)),
                workspace_at = scratch.take(gpu::kStepScalarsWorkspace);
  return node.kernel(
      [partials = Partials(node.in.partials), sum_at, workspace_at](const Operands<optim::StepScalars>& at) {
        auto* const sum = reinterpret_cast<double*>(at.scratch + sum_at);
        partials.add(at.launch, at.in.partials, sum);
        start(at.launch, gpu::step_scalars(),
              gpu::StepScalarsArgs{.hyper = at.in.hyper,
                                   .token_count = at.in.token_count,
                                   .loss_sum = at.in.loss_sum,
                                   .updates = at.in.updates,
                                   .history = at.in.history,
                                   .squares = sum,
                                   .scalars = at.out.scalars,
                                   .embedding_scalars = at.out.embedding_scalars,
                                   .norm = at.out.norm,
                                   .updates_out = at.out.updates,
                                   .history_out = at.out.history,
                                   .decision = at.out.decision,
                                   .workspace = reinterpret_cast<double*>(at.scratch + workspace_at)});
      },
      scratch.bytes());
}

}  // namespace strata::device
