#include "optim/adafactor/adafactor.h"

#include "device/gpu/gpu.h"

namespace strata::device {
namespace {

// A matrix, or a vector as one row.
struct Factored {
  gpu::AdafactorArgs args{};
  gpu::AdafactorPlan plan;
  gpu::KernelLaunch squares;
  GpuScratch scratch;
  int64_t first, parts_at, rows_at, weights_at, partials_at, updates_at;

  Factored(const optim::UpdateRule& rule, int64_t rows, int64_t columns, int64_t first_element)
      : plan(gpu::adafactor(rows, columns)),
        squares(gpu::sum_of_squares(rows * columns)),
        first(first_element) {
    const auto& constants = rule.optimizer.as<optim::Adafactor>();
    args.rows = rows;
    args.columns = columns;
    args.part_count = plan.part_count;
    args.beta2_decay = constants.beta2_decay;
    args.eps1 = constants.eps1;
    args.eps2 = constants.eps2;
    args.clip_threshold = constants.clip_threshold;
    args.weight_decay = static_cast<float>(rule.weight_decay);
    args.lr_scale = static_cast<float>(rule.lr_scale);
    parts_at = scratch.take(plan.part_count * columns * size_of(DType::kF32));
    rows_at = scratch.take(size_of(DType::kF64));
    weights_at = scratch.take(size_of(DType::kF64));
    partials_at = scratch.take(std::max<int64_t>(rows, squares.grid_x) * size_of(DType::kF64));
    updates_at = scratch.take(size_of(DType::kF64));
  }

  template <typename Op>
  void run(const Operands<Op>& at, float* row, float* column) const {
    const auto double_at = [&](int64_t place) { return reinterpret_cast<double*>(at.scratch + place); };
    gpu::AdafactorArgs now = args;
    now.master = at.out.parameter + first;
    now.row = row;
    now.column = column;
    now.grad = at.in.gradient + first;
    now.scalars = update_scalars_at(at.in.scalars);
    now.parts = reinterpret_cast<float*>(at.scratch + parts_at);
    now.of_rows = double_at(rows_at);
    now.weights = double_at(weights_at);
    now.partials = double_at(partials_at);
    now.updates = double_at(updates_at);
    const auto add = [&](double* sum, int64_t count) {
      start(at.launch, gpu::reduce_sum(), gpu::ReduceArgs{.out = sum, .partials = now.partials, .n = count});
    };
    if (row != nullptr) {
      start(at.launch, plan.row, now);
      start(at.launch, plan.rows, now);
    }
    start(at.launch, plan.column_parts, now);
    start(at.launch, plan.columns, now);
    start(at.launch, squares,
          gpu::SquaresArgs{.partials = now.partials, .x = now.master, .n = now.rows * now.columns});
    add(now.weights, squares.grid_x);
    start(at.launch, plan.updates, now);
    add(now.updates, now.rows);
    start(at.launch, plan.apply, now);
  }
};

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<optim::AdafactorUpdate>& node) {
  const optim::UpdateElements own(node.attrs, node.in.parameter->shape);
  const Factored factored(node.attrs.rule, own.rows, own.columns, own.first);
  return node.kernel(
      [factored](const Operands<optim::AdafactorUpdate>& at) { factored.run(at, at.out.row, at.out.column); },
      factored.scratch.bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<optim::AdafactorVectorUpdate>& node) {
  const optim::UpdateElements own(node.attrs, node.in.parameter->shape);
  const Factored factored(node.attrs.rule, 1, own.count, own.first);
  return node.kernel(
      [factored](const Operands<optim::AdafactorVectorUpdate>& at) {
        factored.run(at, nullptr, at.out.variance);
      },
      factored.scratch.bytes());
}

}  // namespace strata::device
