// Fill-in-the-middle (Bavarian et al., "Efficient Training of Language Models to Fill in the Middle", 2022):
// a text is cut in three at random, and its middle moved to the end, so that a model learns to fill the gap
// between two texts. As in Megatron and StarCoder it is done within a window ("context level"), to the range
// of each document in it; a range keeps its length: its last three tokens are replaced by the sentinels. The
// cuts are between tokens.
//   PSM: <prefix> prefix <suffix> suffix <middle> middle
//   SPM: <prefix> <suffix> suffix <middle> prefix middle
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/random.h"

namespace strata::data {

struct FimOptions {
  double rate = 0;                             // share of the document ranges that are changed
  double spm_rate = 0.5;                       // of these, the share written as SPM
  int32_t prefix = 0, middle = 0, suffix = 0;  // the sentinels
  // What stays at the ends of a document: its end-of-text token, and the ids before a text.
  std::optional<int32_t> end_of_text{};
  std::vector<int32_t> begin_of_text{};
};

// The sentinels by the names that code models use; `id_of` looks one up. ConfigError with these names where
// none of the families is there whole.
void find_fim_tokens(FunctionRef<std::optional<int32_t>(std::string_view)> id_of, FimOptions& options);

// Rewrites ids[0, n), the range of one document, or leaves it unchanged: a pure function of the ids, `key`
// and the counters. `scratch` is reused.
void fill_in_the_middle(int32_t* ids, int64_t n, const FimOptions& options, RandomKey key, uint64_t counter,
                        uint32_t counter_high, std::vector<int32_t>& scratch);

}  // namespace strata::data
