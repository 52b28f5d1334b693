#include "data/tokenizer/json_writer.h"

#include <fmt/format.h>

#include <iterator>
#include <span>

#include "base/text.h"

namespace strata::data {
namespace {

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
                     json_string(pattern_regex(split.pattern)));
}

// Up to the normalizer.
std::string head(std::span<const TokenName> special_tokens) {
  std::string out =
      "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
  for (size_t i = 0; i < special_tokens.size(); ++i) {
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
                       i == 0 ? "" : ",", special_tokens[i].id, json_string(special_tokens[i].text));
  }
  out += special_tokens.empty() ? "],\n" : "\n  ],\n";
  return out;
}

}  // namespace

std::string write_byte_level_json(const std::vector<TokenName>& tokens,
                                  const std::vector<std::pair<std::string_view, std::string_view>>& merges,
                                  size_t special_tokens, const SplitPreset& split, bool ignore_merges) {
  std::string out = head(std::span(tokens).first(special_tokens));
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
      "    \"byte_fallback\": false,\n    \"ignore_merges\": ";
  out += ignore_merges ? "true" : "false";
  out += ",\n    \"vocab\": {";
  for (size_t i = 0; i < tokens.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}\n      {}: {}", i == 0 ? "" : ",",
                   json_string(tokens[i].text), tokens[i].id);
  }
  out += "\n    },\n    \"merges\": [";
  for (size_t i = 0; i < merges.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}\n      [\n        {},\n        {}\n      ]",
                   i == 0 ? "" : ",", json_string(merges[i].first), json_string(merges[i].second));
  }
  out += merges.empty() ? "]\n  }\n}" : "\n    ]\n  }\n}";
  return out;
}

std::string write_unigram_json(const std::vector<ScoredToken>& tokens, size_t special_tokens) {
  std::vector<TokenName> special;
  for (size_t id = 0; id < special_tokens; ++id)
    special.push_back({tokens[id].text, static_cast<int32_t>(id)});
  std::string out = head(special);
  out += R"(  "normalizer": null,
  "pre_tokenizer": {
    "type": "Metaspace",
    "replacement": "▁",
    "prepend_scheme": "never",
    "split": true
  },
  "post_processor": null,
  "decoder": {
    "type": "Sequence",
    "decoders": [
      {
        "type": "ByteFallback"
      },
      {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "never",
        "split": true
      }
    ]
  },
  "model": {
    "type": "Unigram",
    "unk_id": 0,
    "vocab": [)";
  for (size_t id = 0; id < tokens.size(); ++id) {
    fmt::format_to(std::back_inserter(out), "{}\n      [\n        {},\n        {}\n      ]",
                   id == 0 ? "" : ",", json_string(tokens[id].text), tokens[id].score);
  }
  out += "\n    ],\n    \"byte_fallback\": true\n  }\n}";
  return out;
}

}  // namespace strata::data
