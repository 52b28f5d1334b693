// Files of tokens and ranks: tiktoken's and Mistral's tekken.json.
#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "data/tokenizer/base64.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/json_writer.h"
#include "data/tokenizer/tokenizer_file.h"

namespace strata::data {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 24;

struct Ranks {
  std::vector<std::string> bytes;
  std::vector<int64_t> ranks;
};

std::string write_json(const BpeConfig& config, const SplitPreset& split) {
  std::vector<TokenName> tokens;
  std::unordered_map<int32_t, std::string_view> names;
  for (const StringTable::Entry& entry : config.vocabulary) {
    tokens.push_back({entry.text, entry.id});
    names[entry.id] = entry.text;
  }
  std::sort(tokens.begin(), tokens.end(), [](const TokenName& a, const TokenName& b) { return a.id < b.id; });
  std::vector<IdMerge> merges = config.id_merges;
  std::sort(merges.begin(), merges.end(),
            [](const auto& a, const auto& b) { return a.rule.rank < b.rule.rank; });
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  for (const IdMerge& merge : merges) pairs.emplace_back(names[merge.left], names[merge.right]);
  return write_byte_level_json(tokens, pairs, 0, split, true);
}

// A byte-level BPE in which the id of a token is its rank, moved by `first_id`. With `json` it is also
// written there.
BpeModel make_model(const Ranks& tokens, int32_t first_id, const std::string& where, const SplitPreset* split,
                    std::string* json) {
  std::array<bool, 256> seen{};
  std::unordered_set<int64_t> ids;
  std::unordered_set<std::string_view> texts;
  std::vector<std::string> names;
  std::vector<RankedToken> ranked;
  BpeConfig config;
  names.reserve(tokens.bytes.size());
  for (size_t i = 0; i < tokens.bytes.size(); ++i) {
    const std::string& bytes = tokens.bytes[i];
    const int64_t rank = tokens.ranks[i];
    if (rank < 0 || rank >= kMostTokens) {
      throw DataError("[tokenizer] {}: the rank of token {} is {}, expected 0 to {}", where, i, rank,
                      kMostTokens - 1);
    }
    if (!ids.insert(rank).second) throw DataError("[tokenizer] {}: the rank {} occurs twice", where, rank);
    if (!texts.insert(bytes).second)
      throw DataError("[tokenizer] {}: the token of rank {} occurs twice", where, rank);
    if (bytes.size() == 1) seen[static_cast<uint8_t>(bytes[0])] = true;
    std::string& name = names.emplace_back();
    append_mapped(name, bytes);
    const auto id = static_cast<int32_t>(rank) + first_id;
    config.vocabulary.push_back({name, id});
    if (!bytes.empty()) ranked.push_back({bytes, id, static_cast<uint32_t>(rank)});
  }
  const auto missing = std::find(seen.begin(), seen.end(), false);
  if (missing != seen.end()) {
    throw DataError("[tokenizer] {} has no token for the byte 0x{:02X}; is the file cut off?", where,
                    missing - seen.begin());
  }
  config.where = where;
  config.id_merges = merges_by_rank(ranked, MergeUnit::kByte, where);
  config.ignore_merges = true;
  config.byte_level = true;
  if (json != nullptr) *json = write_json(config, *split);
  return BpeModel(config);
}

PreTokenizer make_pre_tokenizer(Pattern pattern) {
  std::vector<PreTokenizerStep> steps;
  steps.emplace_back(SplitStep{std::move(pattern), SplitBehaviour::kRemoved, true});
  steps.emplace_back(ByteLevelStep{false, false});
  return PreTokenizer(std::move(steps));
}

Decoder make_decoder() {
  std::vector<DecoderStep> steps;
  steps.emplace_back(ByteLevelDecoder{});
  return Decoder(std::move(steps));
}

[[noreturn]] void bad_line(const std::string& where, size_t line) {
  throw DataError(
      "[tokenizer] {}, line {} is not a token in base64, a space and its rank; is the file damaged?", where,
      line);
}

// The control tokens of files that do not list theirs.
constexpr std::string_view kTekkenSpecials[] = {"<unk>",
                                                "<s>",
                                                "</s>",
                                                "[INST]",
                                                "[/INST]",
                                                "[AVAILABLE_TOOLS]",
                                                "[/AVAILABLE_TOOLS]",
                                                "[TOOL_RESULTS]",
                                                "[/TOOL_RESULTS]",
                                                "[TOOL_CALLS]",
                                                "[IMG]",
                                                "<pad>",
                                                "[IMG_BREAK]",
                                                "[IMG_END]",
                                                "[PREFIX]",
                                                "[MIDDLE]",
                                                "[SUFFIX]",
                                                "[SYSTEM_PROMPT]",
                                                "[/SYSTEM_PROMPT]",
                                                "[TOOL_CONTENT]"};

std::vector<AddedToken> tekken_specials(const JsonObject& file, int64_t count) {
  std::vector<std::string> names(static_cast<size_t>(count));
  size_t listed = 0;
  if (file.find("special_tokens")) {
    for (const simdjson::dom::element item : file.array("special_tokens")) {
      const JsonObject json(item, fmt::format("{}[{}]", file.where("special_tokens"), listed++));
      const int64_t rank = json.number("rank");
      if (rank < 0 || rank >= count) {
        throw DataError("[tokenizer] {} is {}, expected 0 to {}", json.where("rank"), rank, count - 1);
      }
      names[static_cast<size_t>(rank)] = json.text("token_str");
    }
  } else {
    for (const std::string_view name : kTekkenSpecials) {
      if (listed < names.size()) names[listed++] = name;
    }
  }
  std::vector<AddedToken> out;
  for (size_t id = 0; id < names.size(); ++id) {
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.content = names[id].empty() ? fmt::format("<SPECIAL_{}>", id) : names[id];
    token.special = true;
    token.in_text = false;
    out.push_back(std::move(token));
  }
  return out;
}

}  // namespace

TokenizerParts read_tiktoken(std::string_view content, std::string_view pattern, const std::string& where) {
  if (pattern.empty()) {
    throw ConfigError(
        "[tokenizer] {} is a tiktoken rank file, which does not define how text is split. Name the split "
        "with --pattern "
        "({})",
        where, kSplitPresetNames);
  }
  const auto preset = split_preset(pattern);
  if (!preset) {
    throw ConfigError("[tokenizer] found the pattern '{}', expected one of {}", pattern, kSplitPresetNames);
  }
  Ranks tokens;
  size_t number = 0;
  while (!content.empty()) {
    ++number;
    const size_t end = std::min(content.find('\n'), content.size());
    std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    if (space == line.npos || space + 1 == line.size() || line.size() - space > 10) bad_line(where, number);
    auto bytes = decode_base64(line.substr(0, space));
    int64_t rank = 0;
    for (const char c : line.substr(space + 1)) {
      if (c < '0' || c > '9') bad_line(where, number);
      rank = rank * 10 + (c - '0');
    }
    if (!bytes) bad_line(where, number);
    tokens.bytes.push_back(std::move(*bytes));
    tokens.ranks.push_back(rank);
  }
  std::string json;
  TokenizerParts parts(make_model(tokens, 0, where, &*preset, &json));
  parts.json = std::move(json);
  parts.where = where;
  if (preset->nfc) parts.normalizer = Normalizer::nfc();
  parts.pre_tokenizer = make_pre_tokenizer(preset->pattern);
  parts.decoder = make_decoder();
  return parts;
}

TokenizerParts read_tekken_json(const JsonObject& file, const std::string& where) {
  const JsonObject config = file.child("config");
  const int64_t size = config.number("default_vocab_size");
  const int64_t specials = config.number("default_num_special_tokens");
  const simdjson::dom::array vocabulary = file.array("vocab");
  if (specials < 2 || size <= specials || size > kMostTokens) {
    throw DataError(
        "[tokenizer] {} declares {} tokens, {} of them special: expected more tokens than special ones",
        config.where(), size, specials);
  }
  Ranks tokens;
  for (const simdjson::dom::element item : vocabulary) {
    if (static_cast<int64_t>(tokens.bytes.size()) == size - specials) break;  // the rest is spare
    const JsonObject json(item, fmt::format("{}[{}]", file.where("vocab"), tokens.bytes.size()));
    auto bytes = decode_base64(json.text("token_bytes"));
    if (!bytes) throw DataError("[tokenizer] {} is not base64", json.where("token_bytes"));
    tokens.bytes.push_back(std::move(*bytes));
    tokens.ranks.push_back(json.number("rank"));
  }
  if (static_cast<int64_t>(tokens.bytes.size()) < size - specials) {
    throw DataError("[tokenizer] {} has {} tokens, expected {}; is the file cut off?", file.where("vocab"),
                    tokens.bytes.size(), size - specials);
  }
  TokenizerParts parts(make_model(tokens, static_cast<int32_t>(specials), where, nullptr, nullptr));
  parts.where = where;
  try {
    parts.pre_tokenizer = make_pre_tokenizer(make_regex_pattern(config.text("pattern")));
  } catch (const DataError& error) {
    throw DataError("[tokenizer] {}: {}", config.where("pattern"), error.what());
  }
  parts.decoder = make_decoder();
  parts.added_tokens = tekken_specials(file, specials);
  parts.post_processor.prefix = {1};  // <s>
  return parts;
}

}  // namespace strata::data
