#include "data/samples/fim.h"

#include <algorithm>

#include "base/error.h"

namespace strata::data {
namespace {

struct Family {
  std::string_view prefix, middle, suffix;
};

constexpr Family kFamilies[] = {
    {"<fim_prefix>", "<fim_middle>", "<fim_suffix>"},               // StarCoder, Granite, StableCode
    {"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"},         // Qwen, CodeGemma, tiktoken
    {"<fim-prefix>", "<fim-middle>", "<fim-suffix>"},               // SantaCoder
    {"\u2581<PRE>", "\u2581<MID>", "\u2581<SUF>"},                  // Code Llama
    {"<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581end\uff5c>",  // DeepSeek: begin, hole, end mark
     "<\uff5cfim\u2581hole\uff5c>"},                                // where PSM has prefix, suffix, middle
    {"[PREFIX]", "[MIDDLE]", "[SUFFIX]"},                           // Codestral
};

}  // namespace

void find_fim_tokens(FunctionRef<std::optional<int32_t>(std::string_view)> id_of, FimOptions& options) {
  std::string known;
  for (const Family& family : kFamilies) {
    const auto prefix = id_of(family.prefix), middle = id_of(family.middle), suffix = id_of(family.suffix);
    if (prefix && middle && suffix) {
      options.prefix = *prefix;
      options.middle = *middle;
      options.suffix = *suffix;
      return;
    }
    known +=
        fmt::format("{}{} {} {}", known.empty() ? "" : "; ", family.prefix, family.middle, family.suffix);
  }
  throw ConfigError(
      "[data.fim_rate] the tokenizer has no tokens for fill-in-the-middle, expected those of one family: {}; "
      "take a tokenizer that has them, train one with them in tokenizer.train.special, or leave fim_rate at "
      "0",
      known);
}

void fill_in_the_middle(int32_t* ids, int64_t n, const FimOptions& options, RandomKey key, uint64_t counter,
                        uint32_t counter_high, std::vector<int32_t>& scratch) {
  const auto& begin = options.begin_of_text;
  const auto kept = static_cast<int64_t>(begin.size());
  if (kept > 0 && n >= kept && std::equal(begin.begin(), begin.end(), ids)) {
    ids += kept;
    n -= kept;
  }
  if (n > 0 && options.end_of_text && ids[n - 1] == *options.end_of_text) --n;
  const int64_t text = n - 3;
  if (text < 1) return;
  const auto bits = philox(key, counter, counter_high);
  const auto chosen = [](uint32_t draw, double share) { return static_cast<double>(draw) * 0x1p-32 < share; };
  if (!chosen(bits[0], options.rate)) return;
  const auto cut = [text](uint32_t draw) {
    return static_cast<int64_t>(static_cast<uint64_t>(draw) * static_cast<uint64_t>(text + 1) >> 32);
  };
  const int64_t one = cut(bits[2]), other = cut(bits[3]);
  const int64_t low = std::min(one, other), high = std::max(one, other);
  scratch.assign(ids, ids + text);
  const auto part = [&](int64_t from, int64_t to) {
    ids = std::copy(&scratch[0] + from, &scratch[0] + to, ids);
  };
  *ids++ = options.prefix;
  const bool suffix_first = chosen(bits[1], options.spm_rate);
  if (!suffix_first) part(0, low);
  *ids++ = options.suffix;
  part(high, text);
  *ids++ = options.middle;
  if (suffix_first) part(0, low);
  part(low, high);
}

}  // namespace strata::data
