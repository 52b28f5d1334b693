#include "ops/cases.h"
#include "ops/qk_norm/qk_norm.h"

namespace strata::device {

using namespace op_rows;

namespace {

// Eight query heads and four of keys and values, normalised by head or as a whole.
struct QkNormCase {
  std::string name;
  int64_t q_width, k_width;  // of a group

  static constexpr int64_t kRows = 24, kQ = 64, kKv = 32;
  static Operand qkv() { return act({kRows, kQ + 2 * kKv}, {kQ, kKv, kKv}); }
  static Operand means() { return positive({kRows, 2}); }
  Operand q_weight() const { return f32({q_width}); }
  Operand k_weight() const { return f32({k_width}); }
  Operand rstd() const {
    return positive({kRows, kQ / q_width + kKv / k_width}, {kQ / q_width, kKv / k_width});
  }
  ops::QkNormAttrs attrs() const { return {.weight_offset = 1}; }
  ops::QkNormAttrs widths() const { return {.weight_offset = 1, .q_width = q_width, .k_width = k_width}; }
};
const QkNormCase kQkNormHead{"_head", 8, 8}, kQkNormProjection{"_projection", 64, 32};

constexpr int64_t kTimedHeadDim = 64, kTimedHeads = kTimedWidth / kTimedHeadDim,
                  kTimedKvHeads = kTimedKvWidth / kTimedHeadDim;
Operand timed_rstd() {
  return f32({kTimedTokens, kTimedHeads + kTimedKvHeads}, {kTimedHeads, kTimedKvHeads});
}

}  // namespace

template <>
void cases<ops::QkNorm>(Cases& to) {
  for (const QkNormCase& one : {kQkNormHead, kQkNormProjection})
    to.add<ops::QkNorm>("qk_norm" + one.name,
                        {.qkv = one.qkv(), .q_weight = one.q_weight(), .k_weight = one.k_weight()},
                        one.attrs());
  // Means over ranks, which no difference of these operands knows of.
  const QkNormCase& all = kQkNormProjection;
  to.add<ops::QkNorm>(
      "qk_norm_over_ranks",
      {.qkv = all.qkv(), .q_weight = all.q_weight(), .k_weight = all.k_weight(), .means = all.means()},
      all.attrs(), {.differentiable = std::vector<OutputName<ops::QkNorm>>{}});
  const Operand head = f32({kTimedHeadDim});
  to.time<ops::QkNorm>({.qkv = timed_qkv(), .q_weight = head, .k_weight = head});
}

template <>
void cases<ops::QkNormGradInput>(Cases& to) {
  const auto with = [](const QkNormCase& one) -> ops::QkNormGradInput::In<Sample> {
    return {.dy = one.qkv(),
            .qkv = one.qkv(),
            .rstd = one.rstd(),
            .q_weight = one.q_weight(),
            .k_weight = one.k_weight()};
  };
  for (const QkNormCase& one : {kQkNormHead, kQkNormProjection})
    to.add<ops::QkNormGradInput>("qk_norm_grad_input" + one.name, with(one), one.attrs());
  auto over_ranks = with(kQkNormProjection);
  over_ranks.means = QkNormCase::means();
  to.add<ops::QkNormGradInput>("qk_norm_grad_input_over_ranks", over_ranks, kQkNormProjection.attrs());
  const Operand head = f32({kTimedHeadDim});
  to.time<ops::QkNormGradInput>(
      {.dy = timed_qkv(), .qkv = timed_qkv(), .rstd = timed_rstd(), .q_weight = head, .k_weight = head});
}

template <>
void cases<ops::QkNormGradWeight>(Cases& to) {
  for (const QkNormCase& one : {kQkNormHead, kQkNormProjection})
    to.add<ops::QkNormGradWeight>("qk_norm_grad_weight" + one.name,
                                  {.dy = one.qkv(), .qkv = one.qkv(), .rstd = one.rstd()}, one.widths());
  const QkNormCase& all = kQkNormProjection;
  to.add<ops::QkNormGradWeight>("qk_norm_grad_weight_over_ranks",
                                {.dy = all.qkv(), .qkv = all.qkv(), .rstd = all.rstd()}, all.attrs());
  to.time<ops::QkNormGradWeight>({.dy = timed_qkv(), .qkv = timed_qkv(), .rstd = timed_rstd()},
                                 {.q_width = kTimedHeadDim, .k_width = kTimedHeadDim});
}

template <>
void cases<ops::QkMeans>(Cases& to) {
  const QkNormCase& all = kQkNormProjection;
  to.add<ops::QkMeans>("qk_means", {.qkv = all.qkv()}, all.widths());
  to.add<ops::QkMeans>(
      "qk_means_of_products",
      {.qkv = all.qkv(), .dy = all.qkv(), .q_weight = all.q_weight(), .k_weight = all.k_weight()},
      all.widths());
  to.time<ops::QkMeans>({.qkv = timed_qkv(),
                         .dy = timed_qkv(),
                         .q_weight = f32({kTimedWidth}),
                         .k_weight = f32({kTimedKvWidth})},
                        {.q_width = kTimedWidth, .k_width = kTimedKvWidth});
}

}  // namespace strata::device
