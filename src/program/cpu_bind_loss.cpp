#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "kernels/cpu/gemm.h"
#include "program/cpu_bind.h"

namespace strata::program::cpu_bind {
namespace {

using graph::Encoding;
using graph::NodeView;
using graph::Value;

constexpr int64_t kChunk = 256;

struct LossPlan {
  std::vector<std::shared_ptr<const cpu::GemmPlan>> forward, input, weight_first,
      weight_later;  // per chunk size
  int64_t rows, width, vocab, element;
  bool accumulate_metrics, accumulate_weight;
  int64_t gemm_scratch;
};

int64_t chunks(const LossPlan& plan) {
  return (plan.rows + kChunk - 1) / kChunk;
}

void run(const LossPlan& plan, const std::byte* x, const std::byte* w_logits, const std::byte* w_dx,
         const int32_t* targets, double* sum, int64_t* count, float* per_token, std::byte* dx, std::byte* dw,
         std::byte* scratch) {
  double total = 0;
  int64_t valid = 0;
  float* logits = f32(scratch);
  auto* cast = scratch + kChunk * plan.vocab * 4;
  auto* work = cast + kChunk * plan.vocab * 4;
  for (int64_t c = 0; c < chunks(plan); ++c) {
    const int64_t row = c * kChunk;
    const int64_t rows = std::min(kChunk, plan.rows - row);
    const size_t which = rows == kChunk ? 0 : 1;
    cpu::run_gemm(*plan.forward[which],
                  {.a = x + row * plan.width * plan.element, .b = w_logits, .c = logits, .scratch = work});
    std::vector<double> losses(static_cast<size_t>(rows));
    parallel_for(rows, [&](int64_t i) {
      float* line = logits + i * plan.vocab;
      const int32_t target = targets[row + i];
      float top = line[0];
      for (int64_t j = 1; j < plan.vocab; ++j) top = std::max(top, line[j]);
      double z = 0;
      for (int64_t j = 0; j < plan.vocab; ++j) z += std::exp(line[j] - top);
      const double lse = top + std::log(z);
      losses[static_cast<size_t>(i)] = target >= 0 ? lse - line[target] : 0;
      if (per_token != nullptr) per_token[row + i] = static_cast<float>(losses[static_cast<size_t>(i)]);
      if (dx == nullptr) return;
      for (int64_t j = 0; j < plan.vocab; ++j) {
        float g =
            target >= 0 ? static_cast<float>(std::exp(line[j] - lse)) - (j == target ? 1.0f : 0.0f) : 0.0f;
        line[j] = g;
      }
      convert(cast + i * plan.vocab * plan.element, plan.element == 2 ? DType::kBF16 : DType::kF32, line,
              DType::kF32, plan.vocab);
    });
    for (int64_t i = 0; i < rows; ++i) {
      total += losses[static_cast<size_t>(i)];
      valid += targets[row + i] >= 0;
    }
    if (dx == nullptr) continue;
    cpu::run_gemm(*plan.input[which],
                  {.a = cast, .b = w_dx, .c = dx + row * plan.width * plan.element, .scratch = work});
    const auto& weight = c == 0 && !plan.accumulate_weight ? plan.weight_first : plan.weight_later;
    cpu::run_gemm(*weight[which],
                  {.a = cast, .b = x + row * plan.width * plan.element, .c = dw, .scratch = work});
  }
  *sum = plan.accumulate_metrics ? *sum + total : total;
  *count = plan.accumulate_metrics ? *count + valid : valid;
}

LossPlan make(const BindRequest& request, bool train) {
  const NodeView& view = request.view;
  const DType dtype = view.in(0).dtype;
  LossPlan plan{};
  plan.rows = view.in(0).shape[0];
  plan.width = view.in(0).shape[1];
  plan.vocab = view.in(1).shape[0];
  plan.element = size_of(dtype);
  plan.accumulate_metrics = request.accumulate[0];
  plan.accumulate_weight = train && request.accumulate[3];
  for (const int64_t rows : {kChunk, plan.rows % kChunk}) {
    auto add = [&](auto& list, cpu::GemmRole role, DType out, bool accumulate) {
      list.push_back(std::make_shared<const cpu::GemmPlan>(cpu::plan_gemm({.role = role,
                                                                           .m = rows,
                                                                           .n = plan.vocab,
                                                                           .k = plan.width,
                                                                           .dtype = dtype,
                                                                           .out_dtype = out,
                                                                           .accumulate = accumulate})));
      plan.gemm_scratch = std::max(plan.gemm_scratch, list.back()->scratch_bytes);
    };
    add(plan.forward, cpu::GemmRole::kForward, DType::kF32, false);
    if (!train) continue;
    add(plan.input, cpu::GemmRole::kInputGrad, dtype, false);
    add(plan.weight_first, cpu::GemmRole::kWeightGrad, DType::kF32, false);
    add(plan.weight_later, cpu::GemmRole::kWeightGrad, DType::kF32, true);
  }
  return plan;
}

std::vector<WantedEncoding> encoding_of(cpu::GemmRole role, int input, const Value& weight, DType dtype) {
  const auto encoding = cpu::plan_weight_encoding(role, weight.shape[0], weight.shape[1], dtype);
  if (encoding.plain) return {};
  return {{input, {Encoding::Kind::kPacked, encoding.bytes, encoding.id}, dtype}};
}

}  // namespace

BoundKernel linear_cross_entropy(const BindRequest& request) {
  LossPlan plan = make(request, false);
  const int64_t scratch = kChunk * plan.vocab * 8 + plan.gemm_scratch;
  return bound(
      [](const void* held, std::byte* const* p) {
        run(plan_of<LossPlan>(held), p[0], p[1], nullptr, i32(p[2]), reinterpret_cast<double*>(p[3]),
            reinterpret_cast<int64_t*>(p[4]), f32(p[5]), nullptr, nullptr, p[6]);
      },
      std::move(plan), scratch);
}

BoundKernel linear_cross_entropy_train(const BindRequest& request) {
  LossPlan plan = make(request, true);
  const int64_t scratch = kChunk * plan.vocab * 8 + plan.gemm_scratch;
  return bound(
      [](const void* held, std::byte* const* p) {
        run(plan_of<LossPlan>(held), p[0], p[1], p[2], i32(p[3]), reinterpret_cast<double*>(p[4]),
            reinterpret_cast<int64_t*>(p[5]), nullptr, p[6], p[7], p[8]);
      },
      std::move(plan), scratch);
}

std::vector<WantedEncoding> linear_cross_entropy_encodings(const NodeView& view) {
  return encoding_of(cpu::GemmRole::kForward, 1, view.in(1), view.in(0).dtype);
}

std::vector<WantedEncoding> linear_cross_entropy_train_encodings(const NodeView& view) {
  auto wanted = encoding_of(cpu::GemmRole::kForward, 1, view.in(1), view.in(0).dtype);
  for (auto& more : encoding_of(cpu::GemmRole::kInputGrad, 2, view.in(2), view.in(0).dtype))
    wanted.push_back(more);
  return wanted;
}

}  // namespace strata::program::cpu_bind
