#include "data/pipeline/document.h"

#include <simdjson.h>

#include "base/error.h"

namespace strata::data {

std::string string_field(const Document& document, std::string_view name) {
  if (document.fields.empty()) return {};
  std::string json;
  json.reserve(document.fields.size() + 2 + simdjson::SIMDJSON_PADDING);
  json.append("{").append(document.fields).append("}");
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  std::string_view value;
  if (parser.parse(json).get(root) != simdjson::SUCCESS) return {};
  if (root[name].get(value) != simdjson::SUCCESS) return {};
  return std::string(value);
}

void append_json_string(std::string& json, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  json += '"';
  size_t kept = 0;  // what stands before it is written
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    json.append(text, kept, i - kept);
    kept = i + 1;
    switch (c) {
      case '"':
      case '\\':
        json += {'\\', text[i]};
        break;
      case '\n':
        json += "\\n";
        break;
      case '\r':
        json += "\\r";
        break;
      case '\t':
        json += "\\t";
        break;
      default:
        json += {'\\', 'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
    }
  }
  json.append(text, kept);
  json += '"';
}

void add_field(Document& document, std::string_view name, std::string_view value) {
  if (!document.fields.empty()) document.fields += ',';
  append_json_string(document.fields, name);
  document.fields += ':';
  append_json_string(document.fields, value);
}

std::string_view read_reason(ReadStatus status) {
  switch (status) {
    case ReadStatus::kDocument:
    case ReadStatus::kEnd:
      return {};
    case ReadStatus::kInvalidJson:
      return "invalid_json";
    case ReadStatus::kNoText:
      return "no_text";
    case ReadStatus::kNullText:
      return "null_text";
    case ReadStatus::kEmptyText:
      return "empty_text";
    case ReadStatus::kTextNotAString:
      return "text_not_a_string";
    case ReadStatus::kInvalidUtf8:
      return "invalid_utf8";
    case ReadStatus::kBadRecord:
      return "bad_record";
    case ReadStatus::kNotText:
      return "not_text";
    case ReadStatus::kDamaged:
      return "damaged";
  }
  STRATA_CHECK(false, "read status {}", static_cast<int>(status));
  return {};
}

}  // namespace strata::data
