#include "data/pipeline/document.h"

#include "base/error.h"
#include "base/text.h"
#include "data/pipeline/json_line.h"

namespace strata::data {

std::string string_field(const Document& document, std::string_view name) {
  if (document.fields.empty()) return {};
  std::string json = "{" + document.fields + "}";
  const size_t size = json.size();
  json.append(JsonLine::kPadding, '\0');
  Document value;
  std::string detail;
  const ReadStatus status =
      JsonLine(std::string(name), "").parse(std::string_view(json).substr(0, size), value, detail);
  return status == ReadStatus::kDocument ? std::move(value.text) : std::string();
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
    case ReadStatus::kHttpStatus:
      return "http_status";
    case ReadStatus::kDamaged:
      return "damaged";
  }
  STRATA_CHECK(false, "read status {}", static_cast<int>(status));
  return {};
}

}  // namespace strata::data
