#include "kernels/cpu/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/softmax_loss.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

// With fewer tokens, a chunk's weight gradient is limited by the traffic of dW; with more bytes, the logits
// of a whole vocabulary leave the last-level cache.
constexpr int64_t kSmallestChunk = 512;
constexpr int64_t kLogitBytes = int64_t{32} << 20;
constexpr int64_t kRowsPerTask = 4;

bool has_losses(CrossEntropyTask task) {
  return task == CrossEntropyTask::kLoss || task == CrossEntropyTask::kTraining;
}
bool has_input_grad(CrossEntropyTask task) {
  return task == CrossEntropyTask::kTraining || task == CrossEntropyTask::kInputGrad ||
         task == CrossEntropyTask::kGradients;
}
bool has_weight_grad(CrossEntropyTask task) {
  return task == CrossEntropyTask::kTraining || task == CrossEntropyTask::kWeightGrad ||
         task == CrossEntropyTask::kGradients;
}
bool has_gradients(CrossEntropyTask task) {
  return has_input_grad(task) || has_weight_grad(task);
}

constexpr int64_t kUnit = 8;  // of tokens

// Range of the number of tokens with a target in 99.9 % of batches, if tokens have one independently by
// chance.
struct TargetRange {
  int64_t least, most;
};
TargetRange targets_of(const LinearCrossEntropySpec& spec) {
  if (spec.target_share >= 1) return {spec.tokens, spec.tokens};
  constexpr double kDeviations = 3;
  const double mean = static_cast<double>(spec.tokens) * spec.target_share;
  const double away = kDeviations * std::sqrt(mean * (1 - spec.target_share));
  return {.least = std::max<int64_t>(1, static_cast<int64_t>(std::floor(mean - away))),
          .most = std::min(spec.tokens, align_up(static_cast<int64_t>(std::ceil(mean + away)), kUnit))};
}

int64_t choose_chunk(const LinearCrossEntropySpec& spec) {
  const int64_t row = std::max<int64_t>({spec.vocab, spec.vocabulary, 1}) * size_of(DType::kF32);
  const int64_t wanted =
      spec.chunk_tokens > 0 ? spec.chunk_tokens : std::max(kSmallestChunk, kLogitBytes / row);
  const int64_t targets = targets_of(spec).most;
  const int64_t chunks = std::max<int64_t>(1, (targets + wanted - 1) / wanted);
  return std::max<int64_t>(1, (targets + chunks - 1) / chunks);
}

CrossEntropyChunk plan_chunk(const LinearCrossEntropySpec& spec, int64_t tokens,
                             const hardware::DeviceSpec& device, GemmEngine engine) {
  CrossEntropyChunk chunk;
  chunk.tokens = tokens;
  GemmSpec gemm{.role = GemmRole::kForward,
                .m = tokens,
                .n = spec.vocab,
                .k = spec.hidden_size,
                .dtype = spec.dtype,
                .out_dtype = DType::kF32,
                .bias = spec.bias,
                .x_stride = spec.x_stride,
                .y_stride = spec.vocab};
  chunk.forward = plan_gemm(gemm, device, engine);
  gemm.bias = false;
  if (has_input_grad(spec.task)) {
    gemm.role = GemmRole::kInputGrad;
    gemm.out_dtype = spec.dtype;
    chunk.input_grad = plan_gemm(gemm, device, engine);
  }
  if (!has_weight_grad(spec.task)) return chunk;
  gemm.role = GemmRole::kWeightGrad;
  gemm.out_dtype = DType::kF32;
  gemm.accumulate = spec.accumulate;
  chunk.weight_grad_first = plan_gemm(gemm, device, engine);
  gemm.accumulate = true;
  chunk.weight_grad = plan_gemm(gemm, device, engine);
  return chunk;
}

// Sizes for the last chunk of gathered tokens, if it has fewer tokens than a whole one. A few sizes, so that
// little is computed for padding.
std::vector<CrossEntropyChunk> plan_fewer(const LinearCrossEntropySpec& spec, int64_t whole,
                                          const hardware::DeviceSpec& device, GemmEngine engine) {
  constexpr int64_t kSizes = 5;
  std::vector<CrossEntropyChunk> chunks;
  if (spec.target_share >= 1 || whole == spec.tokens) return chunks;
  const TargetRange targets = targets_of(spec);
  const int64_t before = (targets.most - 1) / whole * whole;  // in the chunks before the last
  const int64_t least = std::max<int64_t>(1, targets.least - before);
  const int64_t step = align_up((whole - least) / kSizes + 1, kUnit);
  for (int64_t tokens = whole - step; tokens >= least; tokens -= step)
    chunks.push_back(plan_chunk(spec, tokens, device, engine));
  return chunks;
}

int64_t scratch_of(const LinearCrossEntropySpec& spec, const CrossEntropyChunk& chunk) {
  return std::max(
      {chunk.forward.scratch_bytes, chunk.input_grad.scratch_bytes, chunk.weight_grad_first.scratch_bytes,
       chunk.weight_grad.scratch_bytes,
       spec.bias && has_weight_grad(spec.task) ? column_sums_scratch_bytes(chunk.tokens, spec.vocab) : 0});
}

void* offset(void* base, int64_t bytes) {
  return static_cast<std::byte*>(base) + bytes;
}
const void* offset(const void* base, int64_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}

}  // namespace

namespace {

// Scratch for the tokens of one chunk, gathered from all tokens.
struct Gathered {
  std::byte* x = nullptr;      // [chunk, x_stride]; becomes dx
  double* losses = nullptr;    // [chunk]
  int32_t* targets = nullptr;  // [chunk]
  int32_t* greedy = nullptr;   // [chunk]
  int32_t* tokens = nullptr;   // indices of all tokens that have a target
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
  const auto d = static_cast<double>(spec.hidden_size);
  const auto v = static_cast<double>(spec.vocab);
  const auto in = static_cast<double>(size_of(spec.dtype));
  const double product = 2.0 * m * d * v;
  GemmCost cost{.flops = product, .bytes = in * (m * d + v * d) + 4.0 * m};
  if (!has_losses(spec.task)) cost.bytes += 12.0 * m * static_cast<double>(spec.parts);
  if (has_input_grad(spec.task)) {
    cost.flops += product;
    cost.bytes += in * (m * d + v * d);
  }
  if (has_weight_grad(spec.task)) {
    cost.flops += product;
    cost.bytes += 4.0 * v * d * (spec.accumulate ? 2.0 : 1.0);
  }
  return cost;
}

LinearCrossEntropyPlan plan_linear_cross_entropy(const LinearCrossEntropySpec& wanted,
                                                 const hardware::DeviceSpec& device, GemmEngine engine) {
  LinearCrossEntropyPlan plan;
  LinearCrossEntropySpec& spec = plan.spec;
  spec = wanted;
  if (spec.vocab_valid == 0) spec.vocab_valid = spec.vocab;
  if (spec.x_stride == 0) spec.x_stride = spec.hidden_size;
  STRATA_CHECK(spec.tokens >= 0 && spec.hidden_size > 0 && spec.vocab > 0,
               "[linear_cross_entropy] tokens={} hidden_size={} vocab={}: expected at least 0, 1, 1",
               spec.tokens, spec.hidden_size, spec.vocab);
  STRATA_CHECK(spec.vocab_valid > 0 && spec.vocab_valid <= spec.vocab,
               "[linear_cross_entropy] {} valid columns of {}: expected 1 to all", spec.vocab_valid,
               spec.vocab);
  if (spec.vocabulary == 0) spec.vocabulary = spec.vocab_valid;
  STRATA_CHECK(spec.parts > 0 && spec.vocab % spec.parts == 0,
               "[linear_cross_entropy] {} shards of {} rows: expected shards of equal size", spec.parts,
               spec.vocab);
  STRATA_CHECK(spec.parts == 1 || (spec.vocab_valid == spec.vocab && !has_losses(spec.task)),
               "[linear_cross_entropy] {} shards: expected no padding, and a task that uses statistics",
               spec.parts);
  spec.chunk_tokens = choose_chunk(spec);
  plan.cost = linear_cross_entropy_cost(spec);
  plan.full = plan_chunk(spec, std::min(spec.chunk_tokens, spec.tokens), device, engine);
  const int64_t rest = spec.tokens % spec.chunk_tokens;
  if (rest > 0) plan.last = plan_chunk(spec, rest, device, engine);
  plan.fewer = plan_fewer(spec, plan.full.tokens, device, engine);
  const int64_t elements = plan.full.tokens * spec.vocab;
  plan.losses_at = align_up(elements * size_of(DType::kF32), kBufferAlignment);
  if (has_gradients(spec.task) && spec.dtype != DType::kF32) {
    plan.gradient_at = plan.losses_at;
    plan.losses_at += align_up(elements * size_of(spec.dtype), kBufferAlignment);
  }
  plan.gemm_scratch_at =
      plan.losses_at + align_up(spec.tokens * static_cast<int64_t>(sizeof(double)), kBufferAlignment);
  int64_t gemm_scratch = std::max(scratch_of(spec, plan.full), scratch_of(spec, plan.last));
  for (const CrossEntropyChunk& chunk : plan.fewer)
    gemm_scratch = std::max(gemm_scratch, scratch_of(spec, chunk));
  plan.gather_at = plan.gemm_scratch_at + align_up(gemm_scratch, kBufferAlignment);
  // A single chunk runs ungathered, even if few of its tokens have a target.
  const bool may_gather = spec.tokens > plan.full.tokens;
  plan.scratch_bytes = plan.gather_at + (may_gather ? Gathered(spec, plan.full.tokens, nullptr).bytes : 0);
  return plan;
}

// The GEMMs that a task needs for a chunk, ready to run.
struct LinearCrossEntropy::Chunk {
  int64_t tokens;
  Gemm forward;
  std::optional<Gemm> input_grad, weight_grad_first, weight_grad;

  Chunk(const CrossEntropyChunk& plan, CrossEntropyTask task) : tokens(plan.tokens), forward(plan.forward) {
    if (has_input_grad(task)) input_grad.emplace(plan.input_grad);
    if (!has_weight_grad(task)) return;
    weight_grad_first.emplace(plan.weight_grad_first);
    weight_grad.emplace(plan.weight_grad);
  }
};

namespace {

using Chunk = LinearCrossEntropy::Chunk;

void check_targets(const LinearCrossEntropySpec& spec, const int32_t* targets) {
  for (int64_t i = 0; i < spec.tokens; ++i) {
    if (targets[i] < -1 || targets[i] >= spec.vocabulary) {
      throw DataError(
          "[linear_cross_entropy] target {} of token {}: expected -1 or less than the vocabulary's {}; "
          "check that the token files were made with this model's tokenizer",
          targets[i], i, spec.vocabulary);
    }
  }
}

// One chunk's operands.
struct ChunkCall {
  const void* x;
  const int32_t* targets;
  const int32_t* tokens;  // token of each row, if gathered; null: consecutive tokens from `begin` on
  int64_t begin;
  double* losses;
  int32_t* greedy;
  void* dx;
  bool first;  // chunk of the run: its weight gradient may overwrite

  int64_t token(int64_t row) const { return tokens != nullptr ? tokens[row] : begin + row; }
};

// Memory of a running chunk.
struct ChunkMemory {
  float* logits;
  void* gradient;
  void* gemm_scratch;
};

// Computes losses of rows of logits, and their gradient if needed.
void losses_of_rows(const LinearCrossEntropySpec& spec, const ChunkMemory& memory, const ChunkCall& call,
                    float grad_scale, int64_t begin, int64_t end) {
  const int64_t row_bytes = spec.vocab * size_of(spec.dtype);
  const int32_t* const targets = call.targets;
  for (int64_t i = begin; i < end; ++i) {
    float* row = memory.logits + i * spec.vocab;
    if (call.greedy != nullptr) {
      call.greedy[i] = targets[i] >= 0 && detail::is_greatest(row, spec.vocab_valid, targets[i]) ? 1 : 0;
    }
    call.losses[i] = has_gradients(spec.task)
                         ? detail::cross_entropy_gradient_row(row, offset(memory.gradient, i * row_bytes),
                                                              spec.dtype, spec.vocab_valid, spec.vocab,
                                                              targets[i], grad_scale, spec.softcap)
                         : detail::cross_entropy_row(row, spec.vocab_valid, targets[i], spec.softcap);
  }
}

// The columns of a shard in a row of logits.
struct PartOfRow {
  int64_t first, columns, valid;
  int64_t target;      // its column in the shard; -1: it is in another one
  int64_t statistics;  // offset of the token's statistics
};
PartOfRow part_of_row(const LinearCrossEntropySpec& spec, const LinearCrossEntropyArgs& args, int64_t part,
                      int64_t token) {
  const int64_t columns = spec.vocab / spec.parts;
  const int64_t start = args.vocab_start != nullptr ? args.vocab_start[part] : 0;
  const int64_t valid =
      std::clamp<int64_t>(spec.vocabulary - start, 0, spec.parts == 1 ? spec.vocab_valid : columns);
  const int64_t target = args.targets[token] - start;
  return {.first = part * columns,
          .columns = columns,
          .valid = valid,
          .target = target >= 0 && target < valid ? target : -1,
          .statistics = (part * spec.tokens + token) * 3};
}

void statistics_of_rows(const LinearCrossEntropySpec& spec, const ChunkMemory& memory, const ChunkCall& call,
                        const LinearCrossEntropyArgs& args, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    if (call.targets[i] < 0) continue;
    for (int64_t p = 0; p < spec.parts; ++p) {
      const PartOfRow part = part_of_row(spec, args, p, call.token(i));
      const auto found = detail::row_statistics(memory.logits + i * spec.vocab + part.first, part.valid,
                                                part.target, spec.softcap);
      float* to = args.out_statistics + part.statistics;
      to[0] = found.maximum;
      to[1] = found.sum;
      to[2] = found.target_logit;
    }
  }
}

// Computes the gradient of rows of logits from the gradient of their statistics.
void gradients_of_rows(const LinearCrossEntropySpec& spec, const ChunkMemory& memory, const ChunkCall& call,
                       const LinearCrossEntropyArgs& args, int64_t begin, int64_t end) {
  const int64_t element = size_of(spec.dtype);
  for (int64_t i = begin; i < end; ++i) {
    void* const gradient = offset(memory.gradient, i * spec.vocab * element);
    if (call.targets[i] < 0) {
      std::memset(gradient, 0, static_cast<size_t>(spec.vocab * element));
      continue;
    }
    for (int64_t p = 0; p < spec.parts; ++p) {
      const PartOfRow part = part_of_row(spec, args, p, call.token(i));
      const float* const statistics = args.statistics + part.statistics;
      const float* const given = args.dstatistics + part.statistics;
      // The sum is relative to the maximum, so part of the maximum's gradient comes through the sum. It is
      // exact in fp64, so both parts cancel to 0 for the loss.
      const double through_sum = static_cast<double>(statistics[1]) * static_cast<double>(given[1]);
      detail::statistics_gradient_row(memory.logits + i * spec.vocab + part.first,
                                      offset(gradient, part.first * element), spec.dtype, part.valid,
                                      part.columns, part.target,
                                      {.maximum = statistics[0],
                                       .of_sum = given[1],
                                       .of_target = given[2],
                                       .of_maximum = given[0] - static_cast<float>(through_sum)},
                                      spec.softcap);
    }
  }
}

void run_chunk(const LinearCrossEntropyPlan& plan, Chunk& chunk, const LinearCrossEntropyArgs& args,
               const ChunkCall& call) {
  const LinearCrossEntropySpec& spec = plan.spec;
  const ChunkMemory memory{.logits = static_cast<float*>(args.scratch),
                           .gradient = offset(args.scratch, plan.gradient_at),
                           .gemm_scratch = offset(args.scratch, plan.gemm_scratch_at)};
  chunk.forward.run({.a = call.x,
                     .b = args.w_forward,
                     .bias = args.bias,
                     .c = memory.logits,
                     .scratch = memory.gemm_scratch});
  parallel_ranges(chunk.tokens, kRowsPerTask, [&](int64_t begin, int64_t end) {
    if (has_losses(spec.task)) {
      losses_of_rows(spec, memory, call, args.grad_scale, begin, end);
    } else if (has_gradients(spec.task)) {
      gradients_of_rows(spec, memory, call, args, begin, end);
    } else {
      statistics_of_rows(spec, memory, call, args, begin, end);
    }
  });
  if (has_weight_grad(spec.task)) {
    (call.first ? chunk.weight_grad_first : chunk.weight_grad)
        ->run({.a = memory.gradient, .b = call.x, .c = args.dw, .scratch = memory.gemm_scratch});
  }
  if (has_input_grad(spec.task)) {
    chunk.input_grad->run(
        {.a = memory.gradient, .b = args.w_input_grad, .c = call.dx, .scratch = memory.gemm_scratch});
  }
  if (has_weight_grad(spec.task) && spec.bias) {
    column_sums(chunk.tokens, spec.vocab, spec.vocab, args.dbias, memory.gradient, spec.dtype,
                spec.accumulate_bias || !call.first, memory.gemm_scratch);
  }
}

// Computes all tokens, in place.
void run_all(const LinearCrossEntropyPlan& plan, Chunk& full, Chunk* last, const LinearCrossEntropyArgs& args,
             double* losses) {
  const LinearCrossEntropySpec& spec = plan.spec;
  const int64_t row_bytes = spec.x_stride * size_of(spec.dtype);
  int64_t begin = 0;
  do {  // once even without tokens: dW is then zero or unchanged
    Chunk& chunk = spec.tokens - begin >= full.tokens ? full : *last;
    run_chunk(plan, chunk, args,
              {.x = offset(args.x, begin * row_bytes),
               .targets = args.targets + begin,
               .tokens = nullptr,
               .begin = begin,
               .losses = losses + begin,
               .greedy = args.greedy != nullptr ? args.greedy + begin : nullptr,
               .dx = has_input_grad(spec.task) ? offset(args.dx, begin * row_bytes) : nullptr,
               .first = begin == 0});
    begin += chunk.tokens;
  } while (begin < spec.tokens);
}

// Calls body(i) for i < n, in parallel over blocks of rows.
template <typename Body>
void for_rows(int64_t n, const Body& body) {
  parallel_ranges(n, 16 * kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

// Clears the statistics of tokens without a target, which no chunk writes.
void clear_without_target(const LinearCrossEntropySpec& spec, const LinearCrossEntropyArgs& args) {
  for (int64_t p = 0; p < spec.parts; ++p) {
    for_rows(spec.tokens, [&](int64_t i) {
      if (args.targets[i] < 0) std::fill_n(args.out_statistics + (p * spec.tokens + i) * 3, 3, 0.0f);
    });
  }
}

// Computes only the `valid` tokens that have a target, gathered into chunks: a masked model predicts one in
// seven. The last chunk is the smallest planned one that holds the rest, padded with tokens without a target.
void run_gathered(const LinearCrossEntropyPlan& plan, Chunk& full, std::span<Chunk> fewer,
                  const LinearCrossEntropyArgs& args, int64_t valid, double* losses) {
  const LinearCrossEntropySpec& spec = plan.spec;
  const Gathered memory(spec, full.tokens, offset(args.scratch, plan.gather_at));
  const int64_t row_bytes = spec.x_stride * size_of(spec.dtype);
  const int64_t used_bytes = spec.hidden_size * size_of(spec.dtype);
  int64_t count = 0;
  for (int64_t i = 0; i < spec.tokens; ++i) {
    if (args.targets[i] >= 0) memory.tokens[count++] = static_cast<int32_t>(i);
  }
  for (int64_t begin = 0; begin < valid; begin += full.tokens) {
    const int64_t rows = std::min(full.tokens, valid - begin);
    const auto too_small =
        std::find_if(fewer.begin(), fewer.end(), [&](const Chunk& c) { return c.tokens < rows; });
    Chunk& chunk = too_small == fewer.begin() ? full : *std::prev(too_small);
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
               .tokens = tokens,
               .begin = begin,
               .losses = memory.losses,
               .greedy = args.greedy != nullptr ? memory.greedy : nullptr,
               .dx = memory.x,
               .first = begin == 0});
    for_rows(rows, [&](int64_t r) {
      if (has_losses(spec.task)) losses[tokens[r]] = memory.losses[r];
      if (args.greedy != nullptr) args.greedy[tokens[r]] = memory.greedy[r];
      if (has_input_grad(spec.task)) {
        std::memcpy(offset(args.dx, tokens[r] * row_bytes), memory.x + r * row_bytes,
                    static_cast<size_t>(used_bytes));
      }
    });
  }
  for_rows(spec.tokens, [&](int64_t i) {
    if (args.targets[i] >= 0) return;
    if (has_losses(spec.task)) losses[i] = 0;
    if (args.greedy != nullptr) args.greedy[i] = 0;
    if (has_input_grad(spec.task))
      std::memset(offset(args.dx, i * row_bytes), 0, static_cast<size_t>(used_bytes));
  });
}

}  // namespace

LinearCrossEntropy::LinearCrossEntropy(const LinearCrossEntropyPlan& plan)
    : plan_(plan), full_(std::make_unique<Chunk>(plan.full, plan.spec.task)) {
  if (plan.last.tokens > 0) last_ = std::make_unique<Chunk>(plan.last, plan.spec.task);
  for (const CrossEntropyChunk& chunk : plan.fewer) fewer_.emplace_back(chunk, plan.spec.task);
}

LinearCrossEntropy::~LinearCrossEntropy() = default;
LinearCrossEntropy::LinearCrossEntropy(LinearCrossEntropy&&) noexcept = default;

void LinearCrossEntropy::run(const LinearCrossEntropyArgs& args) {
  const LinearCrossEntropySpec& spec = plan_.spec;
  const bool forward = has_losses(spec.task) || spec.task == CrossEntropyTask::kStatistics;
  if (forward) check_targets(spec, args.targets);
  if (spec.task == CrossEntropyTask::kStatistics) clear_without_target(spec, args);
  auto* losses = static_cast<double*>(offset(args.scratch, plan_.losses_at));
  const int64_t valid =
      std::count_if(args.targets, args.targets + spec.tokens, [](int32_t target) { return target >= 0; });
  const int64_t chunk = plan_.full.tokens;
  if (valid > 0 && chunks_of(valid, chunk) < chunks_of(spec.tokens, chunk)) {
    run_gathered(plan_, *full_, fewer_, args, valid, losses);
  } else {
    run_all(plan_, *full_, last_.get(), args, losses);
  }
  if (!has_losses(spec.task)) return;
  detail::sum_losses(spec.tokens, losses, args.targets, spec.accumulate_loss,
                     {.sum = args.loss_sum, .count = args.count, .of_tokens = args.token_loss});
}

}  // namespace strata::cpu
