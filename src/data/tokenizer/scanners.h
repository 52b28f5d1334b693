// Hand-written scanners for the split patterns that published tokenizers use: the same pieces as their
// regular expressions give, in one pass. Every character belongs to a piece (these patterns leave no gaps),
// so a piece starts where the previous one ends. A scanner looks ahead and never back: it may be resumed at
// any piece's end.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace strata::data {

enum class KnownPattern {
  kGpt2,       // GPT-2, r50k, p50k
  kCl100k,     // cl100k, Llama 3, OLMo 2: up to three digits
  kQwen2,      // Qwen 2 and 3: cl100k with single digits
  kQwen35,     // Qwen 3.5: marks belong to words
  kNanochat2,  // nanochat: cl100k with up to two digits
  kO200k,      // o200k, gpt-4o, Llama 4: words split before an upper-case letter
  kTekken      // Mistral: o200k without contractions, single digits
};

// The pattern whose regular expression is exactly this text, if it is one of ours.
std::optional<KnownPattern> recognise_pattern(std::string_view regex);
std::string_view pattern_regex(KnownPattern pattern);

// A pattern by the name that people give it, with the normalization that belongs to it.
struct SplitPreset {
  KnownPattern pattern = KnownPattern::kGpt2;
  bool nfc = false;
};
std::optional<SplitPreset> split_preset(std::string_view name);
inline constexpr std::string_view kSplitPresetNames =
    "gpt2, r50k, p50k, cl100k, o200k, llama3, llama4, qwen, qwen3.5, tekken, nanochat";

// Appends the ends of the next pieces of text[from, …), at most `limit` of them; returns the last end.
size_t scan_pieces(KnownPattern pattern, std::string_view text, size_t from, size_t limit,
                   std::vector<size_t>& ends);

}  // namespace strata::data
