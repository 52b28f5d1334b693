#include "data/tokenizer/train_bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<uint8_t>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

constexpr std::string_view kByteLevelWithRegex = R"({
    "type": "ByteLevel",
    "add_prefix_space": false,
    "trim_offsets": true,
    "use_regex": true
  })";

std::string pre_tokenizer_json(const SplitPreset& split) {
  if (split.pattern == KnownPattern::kGpt2) return std::string(kByteLevelWithRegex);
  return fmt::format(R"({{
    "type": "Sequence",
    "pretokenizers": [
      {{
        "type": "Split",
        "pattern": {{
          "Regex": {}
        }},
        "behavior": "Isolated",
        "invert": false
      }},
      {{
        "type": "ByteLevel",
        "add_prefix_space": false,
        "trim_offsets": true,
        "use_regex": false
      }}
    ]
  }})",
                     json_quoted(pattern_regex(split.pattern)));
}

// The layout of the Hugging Face library's pretty printer, key for key.
std::string write_json(const BpeVocabulary& vocabulary, size_t special_tokens, const SplitPreset& split) {
  std::string out =
      "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
  for (size_t id = 0; id < special_tokens; ++id) {
    out += fmt::format(R"({}
    {{
      "id": {},
      "content": {},
      "single_word": false,
      "lstrip": false,
      "rstrip": false,
      "normalized": false,
      "special": true
    }})",
                       id == 0 ? "" : ",", id, json_quoted(vocabulary.tokens[id]));
  }
  out += special_tokens > 0 ? "\n  ],\n" : "],\n";
  out += split.nfc ? "  \"normalizer\": {\n    \"type\": \"NFC\"\n  },\n" : "  \"normalizer\": null,\n";
  out += fmt::format("  \"pre_tokenizer\": {},\n", pre_tokenizer_json(split));
  out +=
      "  \"post_processor\": {\n    \"type\": \"ByteLevel\",\n    \"add_prefix_space\": true,\n"
      "    \"trim_offsets\": false,\n    \"use_regex\": true\n  },\n"
      "  \"decoder\": {\n    \"type\": \"ByteLevel\",\n    \"add_prefix_space\": true,\n"
      "    \"trim_offsets\": true,\n    \"use_regex\": true\n  },\n"
      "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": "
      "false,\n"
      "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {";
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    fmt::format_to(std::back_inserter(out), "{}\n      {}: {}", id == 0 ? "" : ",",
                   json_quoted(vocabulary.tokens[id]), id);
  }
  out += "\n    },\n    \"merges\": [";
  for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const auto [left, right] = vocabulary.merges[i];
    fmt::format_to(std::back_inserter(out), "{}\n      [\n        {},\n        {}\n      ]",
                   i == 0 ? "" : ",", json_quoted(vocabulary.tokens[static_cast<size_t>(left)]),
                   json_quoted(vocabulary.tokens[static_cast<size_t>(right)]));
  }
  out += vocabulary.merges.empty() ? "]\n  }\n}" : "\n    ]\n  }\n}";
  return out;
}

}  // namespace

TrainedTokenizer train_bpe(TextSource texts, const TrainOptions& options) {
  const auto split = split_preset(options.pattern);
  if (!split) {
    throw ConfigError("[tokenizer] found the pattern '{}', expected one of {}", options.pattern,
                      kSplitPresetNames);
  }
  std::vector<std::string> specials;
  for (const std::string& token : options.special_tokens) {
    if (token.empty()) throw ConfigError("[tokenizer] a special token is empty, expected some text");
    if (!is_valid_utf8(token)) throw ConfigError("[tokenizer] the special token '{}' is not UTF-8", token);
    if (std::find(specials.begin(), specials.end(), token) == specials.end()) specials.push_back(token);
  }
  const int64_t least = 256 + static_cast<int64_t>(specials.size());
  if (options.vocab_size < least || options.vocab_size > (int64_t{1} << 24)) {
    throw ConfigError(
        "[tokenizer] found a vocabulary size of {}, expected {} (all bytes and {} special tokens) to {}",
        options.vocab_size, least, specials.size(), int64_t{1} << 24);
  }
  const CorpusCounts corpus = count_words(texts, *split);
  if (corpus.bytes == 0)
    throw DataError("[tokenizer] the training text is empty; give files with text in them");
  const BpeVocabulary vocabulary =
      learn_merges(corpus.words, options.vocab_size, options.min_frequency, specials);
  return {.json = write_json(vocabulary, specials.size(), *split),
          .vocab_size = static_cast<int64_t>(vocabulary.tokens.size()),
          .merges = static_cast<int64_t>(vocabulary.merges.size()),
          .distinct_pieces = static_cast<int64_t>(corpus.words.words().size()),
          .bytes = corpus.bytes};
}

}  // namespace strata::data
