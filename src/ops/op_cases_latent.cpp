// Rows of latent attention.
#include "ops/case_operands.h"
#include "ops/latent_attention.h"

namespace strata::device::op_rows {
namespace {

constexpr int64_t kRows = 24, kLength = 6, kSequences = kRows / kLength;
constexpr int64_t kHeads = 4, kPlain = 10, kRotary = 6, kValue = 8;
constexpr int64_t kQ = kHeads * (kPlain + kRotary), kV = kHeads * kValue;
constexpr int64_t kQueryRank = 14, kRank = 18;

Operand kv() {
  return act({kRows, kHeads * kPlain + kV}, {kHeads * kPlain, kV});
}
Operand qkv() {
  return act({kRows, 2 * kQ + kV}, {kQ, kQ, kV});
}
// A document boundary inside each sequence.
Operand kv_begin() {
  return i32_by(kRows, [](int64_t i) { return i % kLength >= 4 ? 4.0 : 0.0; });
}

void add_cached(std::vector<OpCase>& cases, const std::string& name, int64_t length,
                const std::vector<int64_t>& positions, const std::vector<int64_t>& slots) {
  const auto sequences = static_cast<int64_t>(slots.size()), rows = sequences * length;
  Operand weight = f32({kHeads * kPlain + kV, kRank}, {kHeads * kPlain, kV});
  weight.segments_along = 0;
  cases.push_back({"cached_latent_attention" + name,
                   &ops::kCachedLatentAttention,
                   {act({rows, kQ}), act({rows, kRank}), act({rows, kRotary}), weight,
                    act({7, 30, kRank + kRotary}), i32_of(positions), i32_of(slots)},
                   ops::LatentAttrs{kPlain, kRotary, kValue, length, 0.3},
                   {-1, 4}});
}

}  // namespace

void add_latent_rows(std::vector<OpCase>& cases) {
  const Operand query = act({kRows, kQueryRank}), latent = act({kRows, kRank}),
                rotated = act({kRows, kRotary});
  cases.push_back({.name = "split_latents",
                   .op = &ops::kSplitLatents,
                   .inputs = {act({kRows, kQueryRank + kRank + kRotary})},
                   .attrs = ops::SplitLatentsAttrs{{kQueryRank, kRank, kRotary}},
                   .differentiable = {0, 1, 2}});
  cases.push_back({.name = "split_latents_without_query",
                   .op = &ops::kSplitLatents,
                   .inputs = {act({kRows, kRank + kRotary})},
                   .attrs = ops::SplitLatentsAttrs{{kRank, kRotary}},
                   .differentiable = {1, 2}});
  cases.push_back({"join_latents", &ops::kJoinLatents, {query, latent, rotated}});
  cases.push_back({"join_latents_without_query", &ops::kJoinLatents, {absent(), latent, rotated}});
  const ops::LatentAttrs attrs{kPlain, kRotary, kValue};
  cases.push_back({"latent_heads", &ops::kLatentHeads, {act({kRows, kQ}), kv(), rotated}, attrs});
  cases.push_back({"latent_heads_grad", &ops::kLatentHeadsGrad, {qkv()}, attrs});
  add_cached(cases, "", kLength, {3, 0, 6, 5}, {4, 6, 0, 1});
  add_cached(cases, "_of_one_token", 1, {29, 0, 6, 5}, {4, 6, 0, 1});

  // Values narrower than keys, as latent attention has them, and wider.
  for (const auto& [name, head_dim, value_dim] : {std::tuple{"_narrow_values", kPlain + kRotary, kValue},
                                                  std::tuple{"_wide_values", kValue, int64_t{21}}}) {
    constexpr int64_t kQueries = 8;
    const int64_t q = kQueries * head_dim, k = q / 2, v = kQueries / 2 * value_dim,
                  out = kQueries * value_dim;
    const Operand all = act({kRows, q + k + v}, {q, k, v}), given = act({kRows, out});
    const Operand lse = f32_of({kSequences, kQueries, kLength},
                               [](int64_t i) { return 2.5 + 0.1 * static_cast<double>(i % 7); });
    const ops::AttentionAttrs attention{
        .head_dim = head_dim, .sequence_length = kLength, .scale = 0.3, .value_dim = value_dim};
    cases.push_back({std::string("attention") + name,
                     &ops::kAttention,
                     {all, kv_begin(), absent(), absent(), absent()},
                     attention});
    cases.push_back({std::string("attention_grad") + name,
                     &ops::kAttentionGrad,
                     {given, given, lse, all, kv_begin(), absent(), absent()},
                     attention});
  }

  const Operand positions = i32_by(kRows, [](int64_t i) { return static_cast<double>(i % kLength); });
  const Operand table = constant(f32({kLength, kRotary / 2, 2}));
  for (const bool adjacent : {false, true}) {
    for (const bool inverse : {false, true}) {
      cases.push_back(
          {std::string("rope_of_a_part") + (adjacent ? "_adjacent" : "") + (inverse ? "_inverse" : ""),
           &ops::kRope,
           {act({kRows, kQ}), table, positions},
           ops::RopeAttrs{kPlain + kRotary, inverse, kPlain, adjacent}});
    }
  }
}

}  // namespace strata::device::op_rows
