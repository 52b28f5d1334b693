// Parses one line of jsonl, checked completely against RFC 8259: the text is unescaped once into its place,
// the other members are kept unchanged. Every verb that reads documents from JSON lines uses this parser, so
// that all of them accept the same lines and find the same text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/pipeline/document.h"

namespace strata::data {

class JsonLine {
 public:
  // Bytes after the line that parse() may read. The first of them must be a newline or a NUL.
  static constexpr size_t kPadding = 32;

  JsonLine(std::string text_field, std::string id_field);

  // Sets text, id (empty: the line has none) and fields of `document`. If the status is not kDocument,
  // `detail` describes the problem and only the id of the document is valid. The last of duplicate keys
  // counts, as in Python. The bytes need not be UTF-8: the caller checks that.
  ReadStatus parse(std::string_view line, Document& document, std::string& detail);
  // Like parse(), for any bytes: kInvalidUtf8 for a line that is not UTF-8.
  ReadStatus read(std::string_view line, Document& document, std::string& detail);

  // A line that holds no record and is passed over.
  static bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }
  // The names of a valid object's members, in order: for messages.
  std::vector<std::string> names(std::string_view line);

 private:
  struct SyntaxError {
    const char* at;
    const char* what;
  };
  enum class Kind { kMissing, kNull, kString, kNumber, kBool, kArray, kObject };
  struct Found {
    Kind kind = Kind::kMissing;
    std::string_view raw;
    bool unpaired_surrogate = false;
  };

  static Kind kind_of(char first);  // of a valid value
  static const char* kind_name(Kind kind);

  // All of these take a place in the line and return the place after the parsed text, or throw a SyntaxError.
  void parse_object(std::string_view line, Document& document);
  void parse_member(const char*& at, Document& document);
  const char* skip_key(const char* at);  // with its colon
  const char* skip_value(const char* at, size_t depth);
  const char* skip_nested(const char* at, size_t depth);
  const char* skip_string(const char* at);  // starts after the opening quote
  // Starts after the opening quote of a string that is at most `bound` bytes long.
  const char* unescape(const char* at, size_t bound, std::string& out, bool& unpaired_surrogate);
  std::string_view unescape_whole(const char* at, std::string& out);

  std::string text_field_;
  std::string id_field_;
  std::string key_;  // an escaped key, unescaped
  const char* end_ = nullptr;
  Found text_;
  Found id_;
};

}  // namespace strata::data
