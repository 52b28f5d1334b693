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

constexpr std::string_view kByteLevelOffsets = R"({
    "type": "ByteLevel",
    "add_prefix_space": true,
    "trim_offsets": false,
    "use_regex": true
  })";

std::string post_processor_json(const TemplateEnds& ends) {
  if (ends.begin.id < 0 && ends.end.id < 0) return std::string(kByteLevelOffsets);
  const auto item = [](std::string_view kind, std::string_view id, int type) {
    return fmt::format(R"(
      {{
        "{}": {{
          "id": {},
          "type_id": {}
        }}
      }})",
                       kind, json_string(id), type);
  };
  const auto special = [&](const TokenName& token, int type) {
    return token.id < 0 ? std::string() : item("SpecialToken", token.text, type);
  };
  const auto join = [](std::initializer_list<std::string> items) {
    std::string out;
    for (const std::string& each : items) {
      if (!each.empty()) out += (out.empty() ? "" : ",") + each;
    }
    return out;
  };
  const auto declared = [](const TokenName& token) {
    return token.id < 0 ? std::string()
                        : fmt::format(R"(
      {0}: {{
        "id": {0},
        "ids": [
          {1}
        ],
        "tokens": [
          {0}
        ]
      }})",
                                      json_string(token.text), token.id);
  };
  const std::string begin = special(ends.begin, 0), first = item("Sequence", "A", 0),
                    end = special(ends.end, 0);
  return fmt::format(R"({{
    "type": "TemplateProcessing",
    "single": [{}
    ],
    "pair": [{}
    ],
    "special_tokens": {{{}
    }}
  }})",
                     join({begin, first, end}),
                     join({begin, first, end, item("Sequence", "B", 1), special(ends.end, 1)}),
                     join({declared(ends.begin), declared(ends.end)}));
}

}  // namespace

std::string write_byte_level_json(const std::vector<TokenName>& tokens,
                                  const std::vector<std::pair<std::string_view, std::string_view>>& merges,
                                  size_t special_tokens, const SplitPreset& split, bool ignore_merges,
                                  const TemplateEnds& ends) {
  std::string out = head(std::span(tokens).first(special_tokens));
  out += split.nfc ? "  \"normalizer\": {\n    \"type\": \"NFC\"\n  },\n" : "  \"normalizer\": null,\n";
  out += fmt::format("  \"pre_tokenizer\": {},\n", pre_tokenizer_json(split));
  out += fmt::format("  \"post_processor\": {},\n", post_processor_json(ends));
  out +=
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
