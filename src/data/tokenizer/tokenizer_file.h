// What a tokenizer.json holds, read and checked. Internal to this folder: brings in simdjson.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer_parts.h"

namespace strata::data {

// A JSON object with its place in the file, for messages: "gpt2/tokenizer.json: model".
class JsonObject {
 public:
  JsonObject(simdjson::dom::element value, std::string where);  // DataError unless an object

  const std::string& where() const { return where_; }
  std::string where(std::string_view key) const;
  simdjson::dom::object object() const { return object_; }

  std::optional<simdjson::dom::element> find(std::string_view key) const;  // absent or null: nothing
  std::optional<std::string_view> find_text(std::string_view key) const;
  std::string_view text(std::string_view key) const;
  bool flag(std::string_view key, bool fallback) const;
  int64_t number(std::string_view key) const;
  std::optional<int64_t> find_number(std::string_view key) const;
  simdjson::dom::array array(std::string_view key) const;
  JsonObject child(std::string_view key) const;

 private:
  simdjson::dom::object object_;
  std::string where_;
};

// Each takes the value of its key; a null value yields an empty part.
Normalizer read_normalizer(const std::optional<JsonObject>& json);
PreTokenizer read_pre_tokenizer(const std::optional<JsonObject>& json);
PostProcessor read_post_processor(const std::optional<JsonObject>& json);
Decoder read_decoder(const std::optional<JsonObject>& json);
// Refuses unsupported models by name.
Model read_model(const JsonObject& json, bool byte_level);
// A parsed tokenizer.json, or a tekken.json.
TokenizerParts read_tokenizer_parts(const JsonObject& file);
TokenizerParts read_tekken_json(const JsonObject& file, const std::string& where);
// Tokens in the order of the file, their ids set by the library's rules, not by the file.
std::vector<AddedToken> read_added_tokens(const JsonObject& file, const StringTable& vocabulary);

[[noreturn]] void refuse(const std::string& where, std::string_view found, std::string_view supported);

}  // namespace strata::data
