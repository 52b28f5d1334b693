// One record on its way through the data pipeline, from an input file to the output of a build.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace strata::data {

struct Document {
  std::string text;
  std::string id;           // the record's own, else FILE:LINE
  std::string fields;       // the record's other fields: members of a JSON object unchanged, without the
                            // braces around them ("" for none), for example  "url":"http://a/","date":"2020"
  bool id_is_json = false;  // the id was not a string: `id` is its JSON, mostly a number; written without
                            // quotes
  int64_t line = 0;         // of its file, from 1; the record's number if the format has no lines

  void clear() {
    text.clear();
    id.clear();
    fields.clear();
    id_is_json = false;
    line = 0;
  }
};

// A document is written with its text and id under these names. If they come from other fields, a field of
// the record with such a name is omitted: a duplicate member would be ambiguous.
inline bool is_own_name(std::string_view field) {
  return field == "id" || field == "text";
}

// The value of one member of `fields` if it is a string, unescaped; empty if it is absent or not a string.
// If several members have the name, the last one counts.
std::string string_field(const Document& document, std::string_view name);
// One more member with a string for the document's fields.
void add_field(Document& document, std::string_view name, std::string_view value);

// What one record was: read, or why not. The reasons are those of the audit's stage "read".
enum class ReadStatus {
  kDocument,
  kEnd,
  kInvalidJson,     // "invalid_json"
  kNoText,          // "no_text": the field is missing
  kNullText,        // "null_text"
  kEmptyText,       // "empty_text"
  kTextNotAString,  // "text_not_a_string"
  kInvalidUtf8,     // "invalid_utf8"
  kBadRecord,       // "bad_record": a WARC record, a csv row or a page that its format does not allow
  kNotText,         // "not_text": a record of another media type, or one that cannot be decoded
  kHttpStatus,      // "http_status": an unsuccessful response of a server, such as an error page
  kDamaged,         // "damaged": compression or file structure; the rest of the file is lost
};
std::string_view read_reason(ReadStatus status);  // the string above; empty for kDocument and kEnd

}  // namespace strata::data
