#include "data/tokenizer/tokenizer_file.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"

namespace strata::data {
namespace {

using simdjson::dom::element;

constexpr int64_t kLargestId = (int64_t{1} << 24) - 1;  // ids index tables: a stray large one is an error

[[noreturn]] void wrong_type(const std::string& where, std::string_view expected) {
  throw DataError("[tokenizer] {} is not {}; is the file damaged?", where, expected);
}

}  // namespace

void refuse(const std::string& where, std::string_view found, std::string_view supported) {
  throw DataError("[tokenizer] {} is '{}', which is not supported; expected {}", where, found, supported);
}

JsonObject::JsonObject(element value, std::string where) : where_(std::move(where)) {
  if (value.get(object_) != simdjson::SUCCESS) wrong_type(where_, "an object");
}

std::string JsonObject::where(std::string_view key) const {
  return fmt::format("{}{}{}", where_, where_.ends_with(": ") ? "" : ".", key);
}

std::optional<element> JsonObject::find(std::string_view key) const {
  element value;
  if (object_.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

std::optional<std::string_view> JsonObject::find_text(std::string_view key) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  std::string_view text;
  if (value->get(text) != simdjson::SUCCESS) wrong_type(where(key), "a string");
  return text;
}

std::string_view JsonObject::text(std::string_view key) const {
  const auto value = find_text(key);
  if (!value) throw DataError("[tokenizer] {} is missing, expected a string", where(key));
  return *value;
}

bool JsonObject::flag(std::string_view key, bool fallback) const {
  const auto value = find(key);
  if (!value) return fallback;
  bool flag = false;
  if (value->get(flag) != simdjson::SUCCESS) wrong_type(where(key), "true or false");
  return flag;
}

int64_t JsonObject::number(std::string_view key) const {
  const auto number = find_number(key);
  if (!number) throw DataError("[tokenizer] {} is missing, expected a number", where(key));
  return *number;
}

std::optional<int64_t> JsonObject::find_number(std::string_view key) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  int64_t number = 0;
  if (value->get(number) != simdjson::SUCCESS) wrong_type(where(key), "a whole number");
  return number;
}

simdjson::dom::array JsonObject::array(std::string_view key) const {
  const auto value = find(key);
  if (!value) throw DataError("[tokenizer] {} is missing, expected a list", where(key));
  simdjson::dom::array array;
  if (value->get(array) != simdjson::SUCCESS) wrong_type(where(key), "a list");
  return array;
}

JsonObject JsonObject::child(std::string_view key) const {
  const auto value = find(key);
  if (!value) throw DataError("[tokenizer] {} is missing, expected an object", where(key));
  return {*value, where(key)};
}

namespace {

// Files without "type" are distinguished by their keys, as in the Hugging Face library.
std::string_view model_type(const JsonObject& json) {
  if (const auto type = json.find_text("type")) return *type;
  if (json.find("merges")) return "BPE";
  if (const auto vocab = json.find("vocab"); vocab && vocab->is_array()) return "Unigram";
  return json.find("max_input_chars_per_word") ? "WordPiece" : "WordLevel";
}

void read_merges(const JsonObject& json, BpeConfig& config) {
  const simdjson::dom::array merges = json.array("merges");
  config.merges.reserve(merges.size());
  size_t index = 0;
  for (const element merge : merges) {
    const auto fail = [&] {
      wrong_type(fmt::format("{}[{}]", json.where("merges"), index),
                 "a pair of tokens, [\"a\", \"b\"] or \"a b\"");
    };
    std::string_view text;
    simdjson::dom::array pair;
    if (merge.get(text) == simdjson::SUCCESS) {
      if (text.starts_with("#version")) {
        ++index;
        continue;
      }
      const size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos) fail();
      config.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else if (merge.get(pair) == simdjson::SUCCESS && pair.size() == 2) {
      std::string_view left;
      std::string_view right;
      if (pair.at(0).get(left) != simdjson::SUCCESS || pair.at(1).get(right) != simdjson::SUCCESS) fail();
      config.merges.emplace_back(left, right);
    } else {
      fail();
    }
    ++index;
  }
}

}  // namespace

namespace {

// "vocab" as an object from tokens to ids.
std::vector<StringTable::Entry> read_vocabulary(const JsonObject& json) {
  const JsonObject vocabulary = json.child("vocab");
  std::vector<StringTable::Entry> out;
  out.reserve(vocabulary.object().size());
  for (const auto& [token, value] : vocabulary.object()) {
    int64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS || id < 0 || id > kLargestId) {
      throw DataError("[tokenizer] {}: the id of '{}' is not a whole number from 0 to {}", vocabulary.where(),
                      token, kLargestId);
    }
    out.push_back({token, static_cast<int32_t>(id)});
  }
  return out;
}

BpeModel read_bpe(const JsonObject& json, bool byte_level) {
  if (const auto dropout = json.find("dropout")) {
    double rate = 0;
    if (dropout->get(rate) != simdjson::SUCCESS) wrong_type(json.where("dropout"), "a number");
    if (rate != 0) refuse(json.where("dropout"), fmt::format("{}", rate), "null: ids must not be random");
  }
  BpeConfig config;
  config.where = json.where();
  config.byte_level = byte_level;
  config.vocabulary = read_vocabulary(json);
  read_merges(json, config);
  if (const auto unknown = json.find_text("unk_token")) config.unknown_token = std::string(*unknown);
  config.continuing_prefix = json.find_text("continuing_subword_prefix").value_or("");
  config.end_suffix = json.find_text("end_of_word_suffix").value_or("");
  config.fuse_unknown = json.flag("fuse_unk", false);
  config.byte_fallback = json.flag("byte_fallback", false);
  config.ignore_merges = json.flag("ignore_merges", false);
  return BpeModel(config);
}

// An unknown character costs 10 more than the least likely token.
UnigramModel read_unigram(const JsonObject& json) {
  constexpr double kUnknownPenalty = 10;
  if (const auto alpha = json.find("alpha")) {
    double value = 0;
    if (alpha->get(value) != simdjson::SUCCESS || value != 0) {
      refuse(json.where("alpha"), "not 0", "null: ids must not be random");
    }
  }
  UnigramConfig config;
  config.where = json.where();
  double least = std::numeric_limits<double>::infinity();
  for (const element item : json.array("vocab")) {
    const auto id = static_cast<int32_t>(config.tokens.size());
    simdjson::dom::array pair;
    std::string_view text;
    double score = 0;
    if (id == kLargestId || item.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
        pair.at(0).get(text) != simdjson::SUCCESS || pair.at(1).get(score) != simdjson::SUCCESS) {
      wrong_type(fmt::format("{}[{}]", json.where("vocab"), id), "a pair of token and score");
    }
    config.tokens.push_back({text, id, score});
    config.vocabulary.push_back({text, id});
    least = std::min(least, score);
  }
  if (const auto unknown = json.find_number("unk_id")) {
    if (*unknown < 0 || *unknown >= static_cast<int64_t>(config.tokens.size())) {
      throw DataError("[tokenizer] {} is {}, which is not a token", json.where("unk_id"), *unknown);
    }
    config.unknown_id = static_cast<int32_t>(*unknown);
  }
  config.unknown_score = least - kUnknownPenalty;
  config.byte_fallback = json.flag("byte_fallback", false);
  config.lookup_unknown = true;
  return UnigramModel(config);
}

WordPieceModel read_word_piece(const JsonObject& json) {
  WordPieceConfig config;
  config.where = json.where();
  config.vocabulary = read_vocabulary(json);
  config.unknown_token = json.find_text("unk_token").value_or("[UNK]");
  config.continuing_prefix = json.find_text("continuing_subword_prefix").value_or("##");
  config.longest_word = json.find_number("max_input_chars_per_word").value_or(100);
  return WordPieceModel(config);
}

std::optional<JsonObject> part(const JsonObject& file, std::string_view key) {
  const auto value = file.find(key);
  if (!value) return std::nullopt;
  return JsonObject(*value, file.where(key));
}

}  // namespace

Model read_model(const JsonObject& json, bool byte_level) {
  const std::string_view type = model_type(json);
  if (type == "BPE") return read_bpe(json, byte_level);
  if (byte_level && (type == "Unigram" || type == "WordPiece")) {
    refuse(json.where("type"), type, "BPE with a ByteLevel pre-tokenizer");
  }
  if (type == "Unigram") return read_unigram(json);
  if (type == "WordPiece") return read_word_piece(json);
  refuse(json.where("type"), type, "BPE, Unigram or WordPiece");
}

TokenizerParts read_tokenizer_parts(const JsonObject& file) {
  if (const auto version = file.find_text("version"); version && *version != "1.0") {
    refuse(file.where("version"), *version, "1.0");
  }
  for (const char* key : {"truncation", "padding"}) {
    if (file.find(key)) refuse(file.where(key), "not null", "null: texts are encoded whole");
  }
  PreTokenizer pre_tokenizer = read_pre_tokenizer(part(file, "pre_tokenizer"));
  TokenizerParts parts(read_model(file.child("model"), pre_tokenizer.byte_level()));
  parts.where = file.where();
  parts.normalizer = read_normalizer(part(file, "normalizer"));
  parts.pre_tokenizer = std::move(pre_tokenizer);
  parts.post_processor = read_post_processor(part(file, "post_processor"));
  parts.decoder = read_decoder(part(file, "decoder"));
  const auto vocabulary = [](const auto& model) -> const StringTable& { return model.vocabulary(); };
  parts.added_tokens = read_added_tokens(file, std::visit(vocabulary, parts.model));
  return parts;
}

std::vector<AddedToken> read_added_tokens(const JsonObject& file, const StringTable& vocabulary) {
  std::vector<AddedToken> out;
  if (!file.find("added_tokens")) return out;
  std::unordered_map<std::string, int32_t> known;
  int32_t next = static_cast<int32_t>(vocabulary.size());
  size_t index = 0;
  for (const element item : file.array("added_tokens")) {
    const JsonObject json(item, fmt::format("{}[{}]", file.where("added_tokens"), index++));
    AddedToken token;
    token.content = json.text("content");
    token.single_word = json.flag("single_word", false);
    token.lstrip = json.flag("lstrip", false);
    token.rstrip = json.flag("rstrip", false);
    token.special = json.flag("special", false);
    token.normalized = json.flag("normalized", !token.special);
    if (token.content.empty()) continue;
    if (const auto it = known.find(token.content); it != known.end()) {
      token.id = it->second;
    } else if (const auto id = vocabulary.find(token.content)) {
      token.id = *id;
    } else {
      token.id = next;
    }
    // The next free id is above the vocabulary's size and above every added token's id.
    if (token.id >= next) next = token.id + 1;
    known[token.content] = token.id;
    out.push_back(std::move(token));
  }
  return out;
}

}  // namespace strata::data
