#include "ops/cases.h"

#include "ops/attention/case_operands.h"
#include "ops/latent_attention/latent_attention.h"

namespace strata::device {

using namespace op_rows;

namespace {

constexpr int64_t kLatentHeads = 4, kPlain = 10, kRotary = 6, kValue = 8;
constexpr int64_t kLatentQ = kLatentHeads * (kPlain + kRotary);
constexpr int64_t kPlainKeys = kLatentHeads * kPlain, kLatentV = kLatentHeads * kValue;
constexpr int64_t kQueryRank = 14, kLatentRank = 18;
const ops::LatentAttrs kLatentSizes{kPlain, kRotary, kValue};

// Heads of 64 + 32 and values of 64.
constexpr int64_t kTimedRotary = 32;
constexpr int64_t kTimedQueries = heads::kTimedHeads * (heads::kTimedHeadDim + kTimedRotary);
constexpr int64_t kTimedQueryRank = 384, kTimedRank = 256;
const ops::LatentAttrs kTimedLatents{heads::kTimedHeadDim, kTimedRotary, heads::kTimedHeadDim};

Operand latent_rows(int64_t width) {
  return act({heads::kRows, width});
}

}  // namespace

template <>
void cases<ops::SplitLatents>(Cases& to) {
  using Names = std::vector<OutputName<ops::SplitLatents>>;
  to.add<ops::SplitLatents>("split_latents", {.down = latent_rows(kQueryRank + kLatentRank + kRotary)},
                            {{kQueryRank, kLatentRank, kRotary}},
                            {.differentiable = Names{"query", "latent", "rotated"}});
  to.add<ops::SplitLatents>("split_latents_without_query", {.down = latent_rows(kLatentRank + kRotary)},
                            {{kLatentRank, kRotary}}, {.differentiable = Names{"latent", "rotated"}});
  to.time<ops::SplitLatents>({.down = timed_rows(kTimedQueryRank + kTimedRank + kTimedRotary)},
                             {{kTimedQueryRank, kTimedRank, kTimedRotary}});
}

template <>
void cases<ops::JoinLatents>(Cases& to) {
  const Operand query = latent_rows(kQueryRank), latent = latent_rows(kLatentRank),
                rotated = latent_rows(kRotary);
  to.add<ops::JoinLatents>("join_latents", {.query = query, .latent = latent, .rotated = rotated});
  to.add<ops::JoinLatents>("join_latents_without_query", {.latent = latent, .rotated = rotated});
  to.time<ops::JoinLatents>({.query = timed_rows(kTimedQueryRank),
                             .latent = timed_rows(kTimedRank),
                             .rotated = timed_rows(kTimedRotary)});
}

template <>
void cases<ops::LatentHeads>(Cases& to) {
  to.add<ops::LatentHeads>("latent_heads",
                           {.q = latent_rows(kLatentQ),
                            .kv = act({heads::kRows, kPlainKeys + kLatentV}, {kPlainKeys, kLatentV}),
                            .rotated = latent_rows(kRotary)},
                           kLatentSizes);
  to.time<ops::LatentHeads>({.q = timed_rows(kTimedQueries),
                             .kv = timed_rows(2 * kTimedWidth, {kTimedWidth, kTimedWidth}),
                             .rotated = timed_rows(kTimedRotary)},
                            kTimedLatents);
}

template <>
void cases<ops::LatentHeadsGrad>(Cases& to) {
  to.add<ops::LatentHeadsGrad>(
      "latent_heads_grad",
      {.dqkv = act({heads::kRows, 2 * kLatentQ + kLatentV}, {kLatentQ, kLatentQ, kLatentV})}, kLatentSizes);
  to.time<ops::LatentHeadsGrad>(
      {.dqkv = timed_rows(2 * kTimedQueries + kTimedWidth, {kTimedQueries, kTimedQueries, kTimedWidth})},
      kTimedLatents);
}

template <>
void cases<ops::LatentKeys>(Cases& to) {
  to.add<ops::LatentKeys>("latent_keys",
                          {.kv = act({heads::kRows, kPlainKeys + kLatentV}, {kPlainKeys, kLatentV}),
                           .rotated = latent_rows(kRotary)},
                          kLatentSizes);
  to.time<ops::LatentKeys>(
      {.kv = timed_rows(2 * kTimedWidth, {kTimedWidth, kTimedWidth}), .rotated = timed_rows(kTimedRotary)},
      kTimedLatents);
}

template <>
void cases<ops::LatentKeysGrad>(Cases& to) {
  to.add<ops::LatentKeysGrad>(
      "latent_keys_grad", {.dkeys_values = act({heads::kRows, kLatentQ + kLatentV}, {kLatentQ, kLatentV})},
      kLatentSizes);
  to.time<ops::LatentKeysGrad>(
      {.dkeys_values = timed_rows(kTimedQueries + kTimedWidth, {kTimedQueries, kTimedWidth})}, kTimedLatents);
}

template <>
void cases<ops::CachedLatentAttention>(Cases& to) {
  const auto add = [&](const std::string& name, int64_t length, const std::vector<int64_t>& positions,
                       int64_t count = 0) {
    const std::vector<int64_t> slots{4, 6, 0, 1};
    const int64_t rows = std::ssize(slots) * length;
    Operand weight = f32({kPlainKeys + kLatentV, kLatentRank}, {kPlainKeys, kLatentV});
    weight.segments_along = 0;
    // Every second row of the entry up to a row's own.
    const auto chosen = [=](int64_t of_rows, int64_t chosen_count) {
      Operand made{.dtype = DType::kI32, .shape = {of_rows, chosen_count}};
      made.content = [=](int64_t i) {
        const int64_t row = i / chosen_count, place = 2 * (i % chosen_count) + row % 2;
        const int64_t own = positions[static_cast<size_t>(row / length)] + row % length;
        return place <= own ? static_cast<double>(place) : -1.0;
      };
      return made;
    };
    to.add<ops::CachedLatentAttention>("cached_latent_attention" + name,
                                       {.q = act({rows, kLatentQ}),
                                        .latent = act({rows, kLatentRank}),
                                        .rotated = act({rows, kRotary}),
                                        .weight = weight,
                                        .cache = act({7, 30, kLatentRank + kRotary}),
                                        .position = i32_of(positions),
                                        .slot = i32_of(slots),
                                        .chosen = count > 0 ? chosen(rows, count) : OptionalOperand()},
                                       {kPlain, kRotary, kValue, length, 0.3},
                                       {.updates = {{"cache", "cache"}}});
  };
  add("", heads::kLength, {3, 0, 6, 5});
  add("_of_one_token", 1, {29, 0, 6, 5});
  add("_chosen", heads::kLength, {3, 0, 6, 5}, 4);
  add("_chosen_of_one_token", 1, {29, 0, 6, 5}, 16);
  to.untimed<ops::CachedLatentAttention>(kText);
}

}  // namespace strata::device
