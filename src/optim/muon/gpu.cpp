#include "optim/muon/muon.h"

#include <algorithm>

#include "device/gpu/gpu.h"

namespace strata::device {
namespace {

constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;

// The orthogonalization of a matrix, without transposing it: x xᵀ on the left of a wide one, xᵀ x on the right of a tall
// one.
struct NewtonSchulz {
  int64_t rows, columns, side, steps;
  bool tall;
  GpuGemm gram, square, product;
  GpuScratch scratch;
  int64_t x_at, next_at, gram_at, square_at, partials_at, sum_at, parts_at;

  static GpuGemm gemm(gpu::GemmLayout layout, int64_t m, int64_t n, int64_t k,
                      const hardware::DeviceSpec& device) {
    return {{.layout = layout,
             .dtype = DType::kF32,
             .out_dtype = DType::kF32,
             .m = m,
             .n = n,
             .k = k,
             .a_stride = layout == gpu::GemmLayout::kTN ? m : k,
             .b_stride = layout == gpu::GemmLayout::kNT ? k : n,
             .c_stride = n},
            device};
  }

  NewtonSchulz(int64_t of_rows, int64_t of_columns, int64_t times, const hardware::DeviceSpec& device)
      : rows(of_rows),
        columns(of_columns),
        side(std::min(of_rows, of_columns)),
        steps(times),
        tall(of_rows > of_columns),
        gram(gemm(tall ? gpu::GemmLayout::kTN : gpu::GemmLayout::kNT, side, side, std::max(rows, columns),
                  device)),
        square(gemm(gpu::GemmLayout::kNN, side, side, side, device)),
        product(gemm(gpu::GemmLayout::kNN, rows, columns, side, device)) {
    const int64_t matrix = rows * columns * size_of(DType::kF32), small = side * side * size_of(DType::kF32);
    x_at = scratch.take(matrix);
    next_at = scratch.take(matrix);
    gram_at = scratch.take(small);
    square_at = scratch.take(small);
    partials_at = scratch.take(gpu::blocks_of(rows * columns, gpu::kNormBlock) * size_of(DType::kF64));
    sum_at = scratch.take(size_of(DType::kF64));
    parts_at =
        scratch.take(std::max({gram.scratch_bytes(), square.scratch_bytes(), product.scratch_bytes()}));
  }

  // From the matrix at x_at; returns where the result is.
  float* run(const Launch& launch, std::byte* memory) const {
    const auto floats = [&](int64_t at) { return reinterpret_cast<float*>(memory + at); };
    float *x = floats(x_at),
          *next = floats(next_at), *const a = floats(gram_at), *const b = floats(square_at);
    auto *const partials = reinterpret_cast<double*>(memory + partials_at), *const sum =
                                                                                reinterpret_cast<double*>(
                                                                                    memory + sum_at);
    std::byte* const parts = memory + parts_at;
    const int64_t n = rows * columns;
    const gpu::KernelLaunch squares = gpu::sum_of_squares(n);
    start(launch, squares, gpu::SquaresArgs{.partials = partials, .x = x, .n = n});
    start(launch, gpu::reduce_sum(),
          gpu::ReduceArgs{.out = sum, .partials = partials, .n = static_cast<int64_t>(squares.grid_x)});
    gpu::MuonArgs args{};
    args.x = x;
    args.n = n;
    args.squares = sum;
    start(launch, gpu::muon("scale", n), args);
    // x (3.4445 + polynomial) saves one product of the whole matrix.
    args.x = a;
    args.other = b;
    args.n = side * side;
    args.side = side;
    args.a = kA;
    args.b = kB;
    args.c = kC;
    for (int64_t step = 0; step < steps; ++step) {
      gram.run(launch, x, x, a, false, parts);
      square.run(launch, a, a, b, false, parts);
      start(launch, gpu::muon("polynomial", args.n), args);
      product.run(launch, tall ? x : a, tall ? a : x, next, false, parts);
      std::swap(x, next);
    }
    return x;
  }
};

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<optim::MuonUpdate>& node) {
  const optim::UpdateElements own(node.attrs, node.in.parameter->shape);
  const optim::UpdateRule& rule = node.attrs.rule;
  const auto& muon = rule.optimizer.as<optim::Muon>();
  gpu::MuonArgs args{};
  args.n = own.count;
  args.momentum = muon.momentum;
  args.nesterov = muon.nesterov ? 1 : 0;
  args.weight_decay = static_cast<float>(rule.weight_decay);
  args.lr_scale = static_cast<float>(rule.lr_scale);
  const NewtonSchulz orthogonal(own.rows, own.columns, muon.steps, node.device);
  return node.kernel(
      [own, args, orthogonal](const Operands<optim::MuonUpdate>& at) {
        gpu::MuonArgs now = args;
        now.master = at.out.parameter + own.first;
        now.m = at.out.momentum + own.state_first;
        now.grad = at.in.gradient + own.first;
        now.scalars = update_scalars_at(at.in.scalars);
        now.x = reinterpret_cast<float*>(at.scratch + orthogonal.x_at);
        start(at.launch, gpu::muon("momentum", now.n), now);
        now.x = orthogonal.run(at.launch, at.scratch);
        start(at.launch, gpu::muon("apply", now.n), now);
      },
      orthogonal.scratch.bytes());
}

}  // namespace strata::device
