#include "kernels/cpu/linear_cross_entropy.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/softmax_loss.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

// Below this many tokens a chunk's weight gradient is bound by the traffic of dW; above these bytes its
// logits leave the last-level cache.
constexpr int64_t kSmallestChunk = 512;
constexpr int64_t kLogitBytes = int64_t{32} << 20;
constexpr int64_t kRowsPerTask = 4;

int64_t choose_chunk(const LinearCrossEntropySpec& spec) {
  const int64_t row = std::max<int64_t>(spec.vocab, 1) * size_of(DType::kF32);
  const int64_t wanted =
      spec.chunk_tokens > 0 ? spec.chunk_tokens : std::max(kSmallestChunk, kLogitBytes / row);
  const int64_t chunks = std::max<int64_t>(1, (spec.tokens + wanted - 1) / wanted);
  return std::max<int64_t>(1, (spec.tokens + chunks - 1) / chunks);
}

CrossEntropyChunk plan_chunk(const LinearCrossEntropySpec& spec, int64_t tokens,
                             const hardware::DeviceSpec& device, GemmEngine engine) {
  CrossEntropyChunk chunk;
  chunk.tokens = tokens;
  GemmSpec gemm{.role = GemmRole::kForward,
                .m = tokens,
                .n = spec.vocab,
                .k = spec.width,
                .dtype = spec.dtype,
                .out_dtype = DType::kF32,
                .bias = spec.bias,
                .x_stride = spec.x_stride,
                .y_stride = spec.vocab};
  chunk.forward = plan_gemm(gemm, device, engine);
  gemm.bias = false;
  if (!spec.gradients) return chunk;
  gemm.role = GemmRole::kInputGrad;
  gemm.out_dtype = spec.dtype;
  chunk.input_grad = plan_gemm(gemm, device, engine);
  gemm.role = GemmRole::kWeightGrad;
  gemm.out_dtype = DType::kF32;
  gemm.accumulate = spec.accumulate;
  chunk.weight_grad_first = plan_gemm(gemm, device, engine);
  gemm.accumulate = true;
  chunk.weight_grad = plan_gemm(gemm, device, engine);
  return chunk;
}

int64_t scratch_of(const LinearCrossEntropySpec& spec, const CrossEntropyChunk& chunk) {
  return std::max({chunk.forward.scratch_bytes, chunk.input_grad.scratch_bytes,
                   chunk.weight_grad_first.scratch_bytes, chunk.weight_grad.scratch_bytes,
                   spec.bias && spec.gradients ? column_sums_scratch_bytes(chunk.tokens, spec.vocab) : 0});
}

void* offset(void* base, int64_t bytes) {
  return static_cast<std::byte*>(base) + bytes;
}
const void* offset(const void* base, int64_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}

}  // namespace

namespace {

// Memory for the tokens of one chunk that were gathered from all over.
struct Gathered {
  std::byte* x = nullptr;      // [chunk, x_stride]; becomes dx
  double* losses = nullptr;    // [chunk]
  int32_t* targets = nullptr;  // [chunk]
  int32_t* greedy = nullptr;   // [chunk]
  int32_t* tokens = nullptr;   // of all that have a target: where they lie
  int64_t bytes = 0;

  Gathered(const LinearCrossEntropySpec& spec, int64_t chunk, void* memory) {
    const auto take = [&](int64_t wanted) {
      std::byte* part = memory == nullptr ? nullptr : static_cast<std::byte*>(memory) + bytes;
      bytes += align_up(wanted, kBufferAlignment);
      return part;
    };
    x = take(chunk * spec.x_stride * size_of(spec.dtype));
    losses = reinterpret_cast<double*>(take(chunk * static_cast<int64_t>(sizeof(double))));
    targets = reinterpret_cast<int32_t*>(take(chunk * static_cast<int64_t>(sizeof(int32_t))));
    greedy = reinterpret_cast<int32_t*>(take(chunk * static_cast<int64_t>(sizeof(int32_t))));
    tokens = reinterpret_cast<int32_t*>(take(spec.tokens * static_cast<int64_t>(sizeof(int32_t))));
  }
};

int64_t chunks_of(int64_t tokens, int64_t chunk) {
  return (tokens + chunk - 1) / std::max<int64_t>(chunk, 1);
}

}  // namespace

GemmCost linear_cross_entropy_cost(const LinearCrossEntropySpec& spec) {
  const auto m = static_cast<double>(spec.tokens);
  const auto d = static_cast<double>(spec.width);
  const auto v = static_cast<double>(spec.vocab);
  const auto in = static_cast<double>(size_of(spec.dtype));
  GemmCost cost{.flops = 2.0 * m * d * v, .bytes = in * (m * d + v * d) + 4.0 * m};
  if (spec.gradients) {
    cost.flops *= 3.0;
    cost.bytes += in * (m * d + v * d) + 4.0 * v * d * (spec.accumulate ? 2.0 : 1.0);
  }
  return cost;
}

LinearCrossEntropyPlan plan_linear_cross_entropy(const LinearCrossEntropySpec& wanted,
                                                 const hardware::DeviceSpec& device, GemmEngine engine) {
  LinearCrossEntropyPlan plan;
  LinearCrossEntropySpec& spec = plan.spec;
  spec = wanted;
  if (spec.vocab_valid == 0) spec.vocab_valid = spec.vocab;
  if (spec.x_stride == 0) spec.x_stride = spec.width;
  STRATA_CHECK(spec.tokens >= 0 && spec.width > 0 && spec.vocab > 0,
               "[linear_cross_entropy] tokens={} width={} vocab={}: expected at least 0, 1, 1", spec.tokens,
               spec.width, spec.vocab);
  STRATA_CHECK(spec.vocab_valid > 0 && spec.vocab_valid <= spec.vocab,
               "[linear_cross_entropy] {} valid columns of {}: expected 1 to all", spec.vocab_valid,
               spec.vocab);
  spec.chunk_tokens = choose_chunk(spec);
  plan.cost = linear_cross_entropy_cost(spec);
  plan.full = plan_chunk(spec, std::min(spec.chunk_tokens, spec.tokens), device, engine);
  const int64_t rest = spec.tokens % spec.chunk_tokens;
  if (rest > 0) plan.last = plan_chunk(spec, rest, device, engine);
  const int64_t elements = plan.full.tokens * spec.vocab;
  plan.losses_at = align_up(elements * size_of(DType::kF32), kBufferAlignment);
  if (spec.gradients && spec.dtype != DType::kF32) {
    plan.gradient_at = plan.losses_at;
    plan.losses_at += align_up(elements * size_of(spec.dtype), kBufferAlignment);
  }
  plan.gemm_scratch_at =
      plan.losses_at + align_up(spec.tokens * static_cast<int64_t>(sizeof(double)), kBufferAlignment);
  plan.gather_at =
      plan.gemm_scratch_at +
      align_up(std::max(scratch_of(spec, plan.full), scratch_of(spec, plan.last)), kBufferAlignment);
  // A single chunk is run as it lies, however few of its tokens have a target.
  const bool may_gather = spec.tokens > plan.full.tokens;
  plan.scratch_bytes = plan.gather_at + (may_gather ? Gathered(spec, plan.full.tokens, nullptr).bytes : 0);
  return plan;
}

// The GEMMs of a chunk, ready to run; without gradients the forward product alone.
struct LinearCrossEntropy::Chunk {
  int64_t tokens;
  Gemm forward;
  std::optional<Gemm> input_grad, weight_grad_first, weight_grad;

  Chunk(const CrossEntropyChunk& plan, bool gradients) : tokens(plan.tokens), forward(plan.forward) {
    if (!gradients) return;
    input_grad.emplace(plan.input_grad);
    weight_grad_first.emplace(plan.weight_grad_first);
    weight_grad.emplace(plan.weight_grad);
  }
};

namespace {

using Chunk = LinearCrossEntropy::Chunk;

struct Totals {
  double loss = 0.0;
  int64_t count = 0;
};

void check_targets(const LinearCrossEntropySpec& spec, const int32_t* targets) {
  for (int64_t i = 0; i < spec.tokens; ++i) {
    if (targets[i] < -1 || targets[i] >= spec.vocab_valid) {
      throw DataError(
          "[linear_cross_entropy] target {} of token {}: expected -1 or less than the vocabulary's {}; "
          "check that the token files were made with this model's tokenizer",
          targets[i], i, spec.vocab_valid);
    }
  }
}

// Losses of a chunk's logits, and their gradient where it is wanted.
void losses_of_chunk(const LinearCrossEntropySpec& spec, float* logits, void* gradient,
                     const int32_t* targets, int64_t tokens, float grad_scale, double* losses,
                     int32_t* greedy) {
  const int64_t row_bytes = spec.vocab * size_of(spec.dtype);
  parallel_ranges(tokens, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = logits + i * spec.vocab;
      if (greedy != nullptr) {
        greedy[i] = targets[i] >= 0 && detail::is_greatest(row, spec.vocab_valid, targets[i]) ? 1 : 0;
      }
      losses[i] = spec.gradients ? detail::cross_entropy_gradient_row(
                                       row, offset(gradient, i * row_bytes), spec.dtype, spec.vocab_valid,
                                       spec.vocab, targets[i], grad_scale, spec.softcap)
                                 : detail::cross_entropy_row(row, spec.vocab_valid, targets[i], spec.softcap);
    }
  });
}

// In the order of tokens, so that the sum does not depend on chunks or threads.
Totals sum_losses(const LinearCrossEntropySpec& spec, const double* losses,
                  const LinearCrossEntropyArgs& args) {
  Totals totals;
  for (int64_t i = 0; i < spec.tokens; ++i) {
    totals.loss += losses[i];
    totals.count += args.targets[i] >= 0 ? 1 : 0;
    if (args.token_loss) args.token_loss[i] = static_cast<float>(losses[i]);
  }
  return totals;
}

// One chunk's operands.
struct ChunkCall {
  const void* x;
  const int32_t* targets;
  double* losses;
  int32_t* greedy;
  void* dx;
  bool first;  // of the run: its weight gradient may overwrite
};

void run_chunk(const LinearCrossEntropyPlan& plan, Chunk& chunk, const LinearCrossEntropyArgs& args,
               const ChunkCall& call) {
  const LinearCrossEntropySpec& spec = plan.spec;
  auto* logits = static_cast<float*>(args.scratch);
  void* gradient = offset(args.scratch, plan.gradient_at);
  void* gemm_scratch = offset(args.scratch, plan.gemm_scratch_at);
  chunk.forward.run(
      {.a = call.x, .b = args.w_forward, .bias = args.bias, .c = logits, .scratch = gemm_scratch});
  losses_of_chunk(spec, logits, gradient, call.targets, chunk.tokens, args.grad_scale, call.losses,
                  call.greedy);
  if (!spec.gradients) return;
  (call.first ? chunk.weight_grad_first : chunk.weight_grad)
      ->run({.a = gradient, .b = call.x, .c = args.dw, .scratch = gemm_scratch});
  chunk.input_grad->run({.a = gradient, .b = args.w_input_grad, .c = call.dx, .scratch = gemm_scratch});
  if (spec.bias) {
    column_sums(chunk.tokens, spec.vocab, spec.vocab, args.dbias, gradient, spec.dtype,
                spec.accumulate_bias || !call.first, gemm_scratch);
  }
}

// All tokens, as they lie.
void run_all(const LinearCrossEntropyPlan& plan, Chunk& full, Chunk* last, const LinearCrossEntropyArgs& args,
             double* losses) {
  const LinearCrossEntropySpec& spec = plan.spec;
  const int64_t row_bytes = spec.x_stride * size_of(spec.dtype);
  int64_t begin = 0;
  do {  // once even without tokens: dW is then zero, or left as it is
    Chunk& chunk = spec.tokens - begin >= full.tokens ? full : *last;
    run_chunk(plan, chunk, args,
              {.x = offset(args.x, begin * row_bytes),
               .targets = args.targets + begin,
               .losses = losses + begin,
               .greedy = args.greedy != nullptr ? args.greedy + begin : nullptr,
               .dx = spec.gradients ? offset(args.dx, begin * row_bytes) : nullptr,
               .first = begin == 0});
    begin += chunk.tokens;
  } while (begin < spec.tokens);
}

// body(i) for i < n, rows at a time.
template <typename Body>
void for_rows(int64_t n, const Body& body) {
  parallel_ranges(n, 16 * kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

// Only the `valid` tokens that have a target, gathered into chunks: a masked model predicts one in seven. The
// last chunk is filled up with tokens without target.
void run_gathered(const LinearCrossEntropyPlan& plan, Chunk& chunk, const LinearCrossEntropyArgs& args,
                  int64_t valid, double* losses) {
  const LinearCrossEntropySpec& spec = plan.spec;
  const Gathered memory(spec, chunk.tokens, offset(args.scratch, plan.gather_at));
  const int64_t row_bytes = spec.x_stride * size_of(spec.dtype);
  const int64_t used_bytes = spec.width * size_of(spec.dtype);
  int64_t count = 0;
  for (int64_t i = 0; i < spec.tokens; ++i) {
    if (args.targets[i] >= 0) memory.tokens[count++] = static_cast<int32_t>(i);
  }
  for (int64_t begin = 0; begin < valid; begin += chunk.tokens) {
    const int64_t rows = std::min(chunk.tokens, valid - begin);
    const int32_t* tokens = memory.tokens + begin;
    for_rows(chunk.tokens, [&](int64_t r) {
      std::byte* to = memory.x + r * row_bytes;
      memory.targets[r] = r < rows ? args.targets[tokens[r]] : -1;
      if (r < rows) {
        std::memcpy(to, offset(args.x, tokens[r] * row_bytes), static_cast<size_t>(used_bytes));
      } else {
        std::memset(to, 0, static_cast<size_t>(used_bytes));
      }
    });
    run_chunk(plan, chunk, args,
              {.x = memory.x,
               .targets = memory.targets,
               .losses = memory.losses,
               .greedy = args.greedy != nullptr ? memory.greedy : nullptr,
               .dx = memory.x,
               .first = begin == 0});
    for_rows(rows, [&](int64_t r) {
      losses[tokens[r]] = memory.losses[r];
      if (args.greedy != nullptr) args.greedy[tokens[r]] = memory.greedy[r];
      if (spec.gradients) {
        std::memcpy(offset(args.dx, tokens[r] * row_bytes), memory.x + r * row_bytes,
                    static_cast<size_t>(used_bytes));
      }
    });
  }
  for_rows(spec.tokens, [&](int64_t i) {
    if (args.targets[i] >= 0) return;
    losses[i] = 0;
    if (args.greedy != nullptr) args.greedy[i] = 0;
    if (spec.gradients) std::memset(offset(args.dx, i * row_bytes), 0, static_cast<size_t>(used_bytes));
  });
}

}  // namespace

LinearCrossEntropy::LinearCrossEntropy(const LinearCrossEntropyPlan& plan)
    : plan_(plan), full_(std::make_unique<Chunk>(plan.full, plan.spec.gradients)) {
  if (plan.last.tokens > 0) last_ = std::make_unique<Chunk>(plan.last, plan.spec.gradients);
}

LinearCrossEntropy::~LinearCrossEntropy() = default;
LinearCrossEntropy::LinearCrossEntropy(LinearCrossEntropy&&) noexcept = default;

void LinearCrossEntropy::run(const LinearCrossEntropyArgs& args) {
  const LinearCrossEntropySpec& spec = plan_.spec;
  check_targets(spec, args.targets);
  auto* losses = static_cast<double*>(offset(args.scratch, plan_.losses_at));
  const int64_t valid =
      std::count_if(args.targets, args.targets + spec.tokens, [](int32_t target) { return target >= 0; });
  const int64_t chunk = plan_.full.tokens;
  if (valid > 0 && chunks_of(valid, chunk) < chunks_of(spec.tokens, chunk)) {
    run_gathered(plan_, *full_, args, valid, losses);
  } else {
    run_all(plan_, *full_, last_.get(), args, losses);
  }
  const Totals totals = sum_losses(spec, losses, args);
  *args.loss_sum = totals.loss + (spec.accumulate_loss ? *args.loss_sum : 0.0);
  *args.count = totals.count + (spec.accumulate_loss ? *args.count : 0);
}

}  // namespace strata::cpu
