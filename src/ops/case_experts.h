// Sizes and operands of the cases of a mixture of experts.
#pragma once

#include "ops/cases.h"

namespace strata::device::op_rows {

struct ExpertSizes {
  std::string name;                                   // follows that of the case
  int64_t tokens, k, experts, inputs, outputs, rows;  // rows: tokens of a group
  bool ragged;
};
inline std::vector<ExpertSizes> expert_sizes() {
  return {{"", 32, 2, 8, 20, 12, 4, false},
          {"_ragged", 37, 3, 7, 71, 13, 37, true},
          {"_of_every_expert", 9, 3, 3, 33, 50, 3, true},
          {"_of_one_expert", 6, 1, 1, 1, 1, 2, true}};
}

// Parameters of all experts, of `rows` rows each.
inline Operand of_experts(int64_t experts, int64_t rows, Shape shape) {
  Operand operand = f32(shape, std::vector<int64_t>(static_cast<size_t>(experts), rows));
  operand.segments_along = 0;
  return operand;
}

// Every token goes to one expert, whose rows are many, and to k − 1 of a few others; the rest have none.
inline Operand ids_of(const ExpertSizes& s) {
  const int64_t hub = 2 * s.experts / 3;
  std::vector<int64_t> others;
  for (int64_t e = 2; e < s.experts; e += 2)
    if (e != hub) others.push_back(e);
  if (static_cast<int64_t>(others.size()) < s.k - 1) {
    others.clear();
    for (int64_t e = 0; e < s.experts; ++e)
      if (e != hub) others.push_back(e);
  }
  return {.dtype = DType::kI32, .shape = {s.tokens, s.k}, .content = [k = s.k, hub, others](int64_t i) {
            const int64_t token = i / k, slot = i % k;
            if (slot == token % k) return static_cast<double>(hub);
            const int64_t other = token * 5 + (slot + k - token % k) % k - 1;
            return static_cast<double>(others[static_cast<size_t>(other) % others.size()]);
          }};
}

// Like ids_of(), with every fourth token, and some other pairs, dropped.
inline Operand ids_with_dropped(const ExpertSizes& s) {
  Operand ids = ids_of(s);
  ids.content = [k = s.k, all = ids.content](int64_t i) {
    const int64_t token = i / k;
    return token % 4 == 1 || i % 5 == 3 ? -1.0 : all(i);
  };
  return ids;
}

// Numbers of experts of tokens: k each, some of which may be dropped, or, with offsets, any number.
struct SlotsOfTokens {
  std::string name;  // follows that of the case
  bool ragged;
  Operand ids, weights, offsets = absent();
};
inline std::vector<SlotsOfTokens> slots_of_tokens(const ExpertSizes& s) {
  const Operand weights = f32({s.tokens, s.k});
  Operand ids = ids_of(s);
  ids.shape = {s.tokens * s.k, 1};
  // Token t has t mod (k + 1) experts: none, some, all; and no token has the last pairs.
  std::vector<int64_t> sums{0};
  for (int64_t token = 0; token < s.tokens; ++token) sums.push_back(sums.back() + token % (s.k + 1));
  return {{s.name, s.ragged, ids_of(s), weights},
          {"_dropped" + s.name, s.ragged, ids_with_dropped(s), weights},
          // No axis splits them.
          {"_of_ranks" + s.name, true, ids, f32({s.tokens * s.k}), i32_of(sums)}};
}

// Every third token has no target.
inline Operand targets_of(const ExpertSizes& s) {
  return i32_by(s.tokens, [](int64_t i) { return i % 3 == 2 ? -1.0 : static_cast<double>(i); });
}

// Sizes at which rates are measured; experts are equally busy, as they are meant to be.
inline constexpr int64_t kTimedExperts = 16, kTimedSlots = 4, kTimedExpertFfn = 192;
inline Operand busy_ids(int64_t tokens, int64_t slots, int64_t experts) {
  return {.dtype = DType::kI32, .shape = {tokens, slots}, .content = [experts](int64_t i) {
            return static_cast<double>((i + i / (2 * experts)) % experts);
          }};
}
inline Operand timed_ids() {
  return busy_ids(kTimedTokens, kTimedSlots, kTimedExperts);
}

}  // namespace strata::device::op_rows
