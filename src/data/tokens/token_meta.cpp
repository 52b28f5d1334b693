#include "data/tokens/token_meta.h"

#include "base/error.h"
#include "base/json.h"

namespace strata::data {
namespace {

std::optional<int64_t> integer(const nlohmann::json& object, const char* key, int64_t largest,
                               const Path& path) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  if (!found->is_number_integer() || found->get<int64_t>() < 0 || found->get<int64_t>() > largest) {
    throw DataError("[{}] \"{}\" is {}; expected a whole number from 0 to {}", path.string(), key,
                    found->dump(), largest);
  }
  return found->get<int64_t>();
}

std::optional<std::string> text(const nlohmann::json& object, const char* key, const Path& path) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  if (!found->is_string()) {
    throw DataError("[{}] \"{}\" is {}; expected a string", path.string(), key, found->dump());
  }
  return found->get<std::string>();
}

}  // namespace

TokenMeta read_token_meta(const Path& path) {
  const auto json = parse_json_or_discard<nlohmann::json>(read_file(path));
  if (!json.is_object()) {
    throw DataError(
        "[{}] is not a JSON object; expected a description of the .bin file next to it. Repair or remove it",
        path.string());
  }
  constexpr int64_t kLargest = int64_t{1} << 60;
  TokenMeta meta;
  if (const auto dtype = text(json, "dtype", path)) {
    meta.type = parse_token_type(*dtype);
    if (!meta.type) {
      throw DataError("[{}] \"dtype\" is \"{}\"; expected \"u16\" or \"u32\"", path.string(), *dtype);
    }
  }
  meta.vocab_size = integer(json, "vocab_size", int64_t{1} << 31, path).value_or(0);
  meta.tokenizer_hash = text(json, "tokenizer_hash", path).value_or("");
  if (const auto id = integer(json, "end_of_text_id", (int64_t{1} << 31) - 1, path)) {
    meta.end_of_text = static_cast<int32_t>(*id);
  }
  meta.documents = integer(json, "documents", kLargest, path);
  meta.tokens = integer(json, "tokens", kLargest, path);
  return meta;
}

}  // namespace strata::data
