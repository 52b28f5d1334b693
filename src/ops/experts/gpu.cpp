#include "ops/experts/gpu.h"

namespace strata::device {

GpuExpertLists::GpuExpertLists(const Shape& ids, int64_t tokens, int64_t experts, GpuScratch& scratch)
    : plan_(gpu::plan_experts(ids.elements(), experts)) {
  constexpr int64_t kNumber = size_of(DType::kI32);
  const int64_t slots = ids.elements();
  counts_at_ = scratch.take(kNumber * plan_.chunks * (experts + 1));
  offsets_at_ = scratch.take(kNumber * (experts + 2));
  tiles_at_ = scratch.take(kNumber * 2 * plan_.tile_count);
  slots_at_ = scratch.take(kNumber * slots);
  tokens_at_ = scratch.take(kNumber * slots);
  sizes_.count = static_cast<int32_t>(slots);
  sizes_.experts = static_cast<int32_t>(experts);
  sizes_.per_token = static_cast<int32_t>(ids[1]);
  sizes_.token_count = static_cast<int32_t>(tokens);
  sizes_.chunks = plan_.chunks;
  sizes_.tile_count = plan_.tile_count;
}

void GpuExpertLists::leave_out(int64_t sequence, int64_t idle) {
  sizes_.sequence = static_cast<int32_t>(sequence);
  sizes_.idle = static_cast<int32_t>(idle);
}

gpu::ExpertsSortArgs GpuExpertLists::sort(const Launch& launch, const int32_t* ids,
                                          const int32_t* token_offsets, std::byte* scratch) const {
  const auto numbers = [&](int64_t at) { return reinterpret_cast<int32_t*>(scratch + at); };
  gpu::ExpertsSortArgs args = sizes_;
  args.ids = ids;
  args.token_offsets = token_offsets;
  args.counts = numbers(counts_at_);
  args.offsets = numbers(offsets_at_);
  args.tiles = numbers(tiles_at_);
  args.slots = numbers(slots_at_);
  args.tokens = numbers(tokens_at_);
  for (const gpu::KernelLaunch& kernel : plan_.sort) start(launch, kernel, args);
  return args;
}

namespace {

// Whether tensor cores multiply rows of this many elements.
bool has_vectors(DType dtype, int64_t columns) {
  return dtype == DType::kBF16 && columns % 8 == 0;
}

gpu::ExpertsArgs experts_args(const gpu::ExpertsSortArgs& lists, const void* a, const void* b, void* c,
                              int64_t m, int64_t n, int64_t k) {
  gpu::ExpertsArgs args{};
  args.gemm.a = a;
  args.gemm.b = b;
  args.gemm.c = c;
  args.gemm.c_stride = n;
  args.gemm.m = static_cast<int32_t>(m);
  args.gemm.n = static_cast<int32_t>(n);
  args.gemm.k = static_cast<int32_t>(k);
  args.gemm.splits = 1;
  args.tiles = lists.tiles;
  args.offsets = lists.offsets;
  args.experts = lists.experts;
  args.tile_count = lists.tile_count;
  return args;
}

// Matmuls of rows by their experts' matrices, or by their transposes (gradients of inputs).
class ProductOfRows {
 public:
  // `of_pairs`: a has a row per pair and the result one per token, else the other way round.
  template <typename Op>
  ProductOfRows(const Bind<Op>& node, const graph::Value& a, bool transposed, bool of_pairs)
      : lists_(node, scratch_),
        layout_(transposed ? gpu::GemmLayout::kNN : gpu::GemmLayout::kNT),
        of_pairs_(of_pairs),
        tokens_(ops::tokens_of(node)),
        k_(a.shape[1]) {
    const Shape& weight = node.in.weight->shape;
    const int64_t outputs = weight[0] / node.attrs.experts, inputs = weight[1];
    n_ = transposed ? inputs : outputs;
    expert_stride_ = outputs * inputs;
    const DType out = of_pairs ? DType::kF32 : a.dtype;
    product_ = has_vectors(a.dtype, k_) && (!transposed || has_vectors(a.dtype, n_))
                   ? gpu::experts_rows(layout_, out, lists_.plan(), n_)
                   : gpu::expert_product(layout_, a.dtype, out, lists_.plan(), n_);
    if (!of_pairs) return;
    parts_at_ = scratch_.take(ops::slots_of(node) * n_ * size_of(DType::kF32));
    sum_ = gpu::experts_sum(a.dtype, tokens_, n_);
  }
  int64_t scratch_bytes() const { return scratch_.bytes(); }

  void run(const Launch& launch, const void* a, const int32_t* ids, const int32_t* offsets,
           const void* weight, void* out, std::byte* scratch) const {
    const gpu::ExpertsSortArgs lists = lists_.sort(launch, ids, offsets, scratch);
    gpu::ExpertsArgs args = experts_args(lists, a, weight, of_pairs_ ? scratch + parts_at_ : out, 0, n_, k_);
    args.gemm.a_stride = k_;
    args.gemm.b_stride = layout_ == gpu::GemmLayout::kNT ? k_ : n_;
    args.a_rows = of_pairs_ ? lists.slots : lists.tokens;
    args.c_rows = lists.slots;
    args.expert_stride = expert_stride_;
    start(launch, product_, args);
    if (!of_pairs_) return;
    start(launch, sum_,
          gpu::ExpertsSumArgs{.out = out,
                              .parts = reinterpret_cast<const float*>(scratch + parts_at_),
                              .token_offsets = offsets,
                              .per_token = lists.per_token,
                              .columns = static_cast<int32_t>(n_)});
  }

 private:
  GpuScratch scratch_;
  GpuExpertLists lists_;
  gpu::GemmLayout layout_;
  bool of_pairs_;
  int64_t tokens_, n_ = 0, k_, expert_stride_ = 0, parts_at_ = 0;
  gpu::KernelLaunch product_, sum_;
};

template <typename Op>
BoundKernel bind_product(const Bind<Op>& node, bool of_pairs) {
  const ProductOfRows product(node, *node.in.x, false, of_pairs);
  return node.kernel(
      [product](const Operands<Op>& at) {
        product.run(at.launch, at.in.x, at.in.ids, at.in.offsets, at.in.weight, at.out.y, at.scratch);
      },
      product.scratch_bytes());
}
template <typename Op>
BoundKernel bind_grad_input(const Bind<Op>& node, bool of_pairs) {
  const ProductOfRows product(node, *node.in.dy, true, of_pairs);
  return node.kernel(
      [product](const Operands<Op>& at) {
        product.run(at.launch, at.in.dy, at.in.ids, at.in.offsets, at.in.weight, at.out.dx, at.scratch);
      },
      product.scratch_bytes());
}

// `dy_of_pairs`: dy has a row per pair and x one per token, else the other way round.
template <typename Op>
BoundKernel bind_grad_weight(const Bind<Op>& node, bool dy_of_pairs) {
  GpuScratch scratch;
  const GpuExpertLists lists(node, scratch);
  const DType dtype = node.in.dy->dtype;
  const int64_t m = node.in.dy->shape[1], n = node.in.x->shape[1], experts = node.attrs.experts;
  const gpu::KernelLaunch kernel = has_vectors(dtype, m) && has_vectors(dtype, n)
                                       ? gpu::experts_weights(experts, m, n)
                                       : gpu::expert_product_weights(dtype, experts, m, n);
  return node.kernel(
      [lists, kernel, m, n, dy_of_pairs, adds = node.adds.dw](const Operands<Op>& at) {
        const gpu::ExpertsSortArgs sorted = lists.sort(at.launch, at.in.ids, at.in.offsets, at.scratch);
        gpu::ExpertsArgs args = experts_args(sorted, at.in.dy, at.in.x, at.out.dw, m, n, 0);
        args.gemm.a_stride = m;
        args.gemm.b_stride = n;
        args.gemm.accumulate = adds ? 1 : 0;
        args.a_rows = dy_of_pairs ? sorted.slots : sorted.tokens;
        args.b_rows = dy_of_pairs ? sorted.tokens : sorted.slots;
        args.expert_stride = m * n;
        start(at.launch, kernel, args);
      },
      scratch.bytes());
}

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::ExpertsIn>& node) {
  return bind_product(node, false);
}
template <>
BoundKernel bind(Gpu, const Bind<ops::ExpertsOut>& node) {
  return bind_product(node, true);
}
template <>
BoundKernel bind(Gpu, const Bind<ops::ExpertsInGradInput>& node) {
  return bind_grad_input(node, true);
}
template <>
BoundKernel bind(Gpu, const Bind<ops::ExpertsOutGradInput>& node) {
  return bind_grad_input(node, false);
}
template <>
BoundKernel bind(Gpu, const Bind<ops::ExpertsInGradWeight>& node) {
  return bind_grad_weight(node, true);
}
template <>
BoundKernel bind(Gpu, const Bind<ops::ExpertsOutGradWeight>& node) {
  return bind_grad_weight(node, false);
}

template <>
Encodings<ops::ExpertsIn> encodings(Gpu, const graph::View<ops::ExpertsIn>& node,
                                    const hardware::DeviceSpec&) {
  return bf16_copies<ops::ExpertsIn>(node, node.in.x->dtype, {"weight"});
}
template <>
Encodings<ops::ExpertsOut> encodings(Gpu, const graph::View<ops::ExpertsOut>& node,
                                     const hardware::DeviceSpec&) {
  return bf16_copies<ops::ExpertsOut>(node, node.in.x->dtype, {"weight"});
}
template <>
Encodings<ops::ExpertsInGradInput> encodings(Gpu, const graph::View<ops::ExpertsInGradInput>& node,
                                             const hardware::DeviceSpec&) {
  return bf16_copies<ops::ExpertsInGradInput>(node, node.in.dy->dtype, {"weight"});
}
template <>
Encodings<ops::ExpertsOutGradInput> encodings(Gpu, const graph::View<ops::ExpertsOutGradInput>& node,
                                              const hardware::DeviceSpec&) {
  return bf16_copies<ops::ExpertsOutGradInput>(node, node.in.dy->dtype, {"weight"});
}

template <>
BoundKernel bind(Gpu, const Bind<ops::ExpertCounts>& node) {
  const Shape& ids = node.in.ids->shape;
  return node.kernel(
      [count = ids.elements(), per_token = ids[1], adds = node.adds.counts,
       kernel = gpu::expert_counts(node.attrs.experts)](const Operands<ops::ExpertCounts>& at) {
        start(at.launch, kernel,
              gpu::ExpertCountsArgs{.counts = at.out.counts,
                                    .ids = at.in.ids,
                                    .targets = at.in.targets,
                                    .count = count,
                                    .per_token = static_cast<int32_t>(per_token),
                                    .accumulate = adds ? 1 : 0});
      });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::RunningCounts>& node) {
  const int64_t n = node.in.counts->shape[0];
  return node.kernel([n, kernel = gpu::running_counts(n)](const Operands<ops::RunningCounts>& at) {
    start(at.launch, kernel, gpu::RunningCountsArgs{.now = at.out.now, .counts = at.in.counts, .n = n});
  });
}

}  // namespace strata::device
