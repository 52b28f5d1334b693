#include "data/tokenizer/rank_merges.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

// Merges with the rules known so far. Tokens are short: the plain scan is good enough.
void merge_all(const MergeTable& rules, std::vector<int32_t>& symbols) {
  for (;;) {
    MergeRule best;
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const MergeRule rule = rules.find(symbols[i], symbols[i + 1]);
      if (rule.rank < best.rank) {
        best = rule;
        best_at = i;
      }
    }
    if (best.rank == kNoRank) return;
    symbols[best_at] = best.id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

CodePoint next_unit(const char* at, const char* end, MergeUnit unit) {
  if (unit == MergeUnit::kByte) return {static_cast<uint8_t>(*at), 1};
  return decode_code_point(at, end);
}

}  // namespace

std::vector<IdMerge> merges_by_rank(const std::vector<RankedToken>& tokens, MergeUnit unit,
                                    const std::string& where) {
  std::unordered_map<uint32_t, int32_t> unit_ids;
  for (const RankedToken& token : tokens) {
    if (token.text.empty()) continue;
    const CodePoint first = next_unit(token.text.data(), token.text.data() + token.text.size(), unit);
    if (first.size == token.text.size()) unit_ids[first.value] = token.id;
  }
  // Shorter texts first: a rule for every part that a token may consist of is then known.
  std::vector<size_t> order(tokens.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tokens[a].text.size() < tokens[b].text.size(); });
  MergeTable rules(tokens.size());
  std::vector<IdMerge> out;
  std::vector<int32_t> symbols;
  for (const size_t index : order) {
    const RankedToken& token = tokens[index];
    symbols.clear();
    const char* end = token.text.data() + token.text.size();
    for (const char* at = token.text.data(); at < end;) {
      const CodePoint c = next_unit(at, end, unit);
      const auto id = unit_ids.find(c.value);
      if (id == unit_ids.end()) {
        throw DataError("[tokenizer] {}: the token '{}' (id {}) holds a {} that is not a token itself", where,
                        replace_invalid_utf8(token.text), token.id,
                        unit == MergeUnit::kByte ? "byte" : "character");
      }
      symbols.push_back(id->second);
      at += c.size;
    }
    if (symbols.size() < 2) continue;
    merge_all(rules, symbols);
    if (symbols.size() != 2) continue;
    const MergeRule rule{token.rank, token.id};
    rules.insert(symbols[0], symbols[1], rule);
    out.push_back({symbols[0], symbols[1], rule});
  }
  return out;
}

}  // namespace strata::data
