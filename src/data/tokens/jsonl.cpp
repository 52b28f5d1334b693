// The documents of a block of text: jsonl lines through simdjson, whole files as they are.
#include <simdjson.h>

#include <string>

#include "base/error.h"
#include "data/tokens/reader.h"

namespace strata::data {
namespace {

std::string excerpt(std::string_view line) {
  constexpr size_t kShown = 60;
  std::string shown(line.substr(0, kShown));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  }
  return line.size() > kShown ? shown + "…" : shown;
}

std::string_view kind_name(simdjson::dom::element_type type) {
  switch (type) {
    case simdjson::dom::element_type::ARRAY:
      return "an array";
    case simdjson::dom::element_type::OBJECT:
      return "an object";
    case simdjson::dom::element_type::STRING:
      return "a string";
    case simdjson::dom::element_type::BOOL:
      return "true or false";
    case simdjson::dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::string_view text_of(simdjson::dom::parser& parser, std::string_view line, const std::string& place,
                         const std::string& field) {
  simdjson::dom::element root;
  // The bytes behind the line may be read, never used: the block is padded.
  if (const auto error = parser.parse(line.data(), line.size(), false).get(root)) {
    throw DataError(
        "[{}] is not valid JSON ({}): {}; expected one JSON object with \"{}\" a line; repair or remove "
        "the line",
        place, simdjson::error_message(error), excerpt(line), field);
  }
  if (!root.is_object()) {
    throw DataError("[{}] is {}; expected a JSON object with \"{}\"; repair or remove the line", place,
                    kind_name(root.type()), field);
  }
  simdjson::dom::element value;
  if (root.at_key(field).get(value) != simdjson::SUCCESS) {
    std::string keys;
    for (const auto entry : simdjson::dom::object(root)) {
      keys += (keys.empty() ? "\"" : ", \"") + std::string(entry.key) + "\"";
    }
    throw DataError("[{}] has no field \"{}\"; it has {}; set data.text_field to the one that holds the text",
                    place, field, keys.empty() ? "none" : excerpt(keys));
  }
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) {
    throw DataError("[{}] has {} under \"{}\"; expected a string; repair or remove the line", place,
                    kind_name(value.type()), field);
  }
  return text;
}

const std::string kRecordField = "text";

}  // namespace

void for_each_document(const TextBlock& block, const CorpusFile& file, const std::string& text_field,
                       FunctionRef<void(std::string_view text)> document) {
  if (file.kind == CorpusKind::kText) {
    if (!block.bytes.empty()) document(block.bytes);
    return;
  }
  const std::string& field = file.kind == CorpusKind::kRecords ? kRecordField : text_field;
  std::string padded;
  padded.reserve(block.bytes.size() + simdjson::SIMDJSON_PADDING);
  padded = block.bytes;
  std::string_view left = padded;
  int64_t line_number = block.first_line;
  if (line_number == 1 && left.starts_with("\xEF\xBB\xBF")) left.remove_prefix(3);
  simdjson::dom::parser parser;
  while (!left.empty()) {
    const size_t newline = left.find('\n');
    const std::string_view line = left.substr(0, newline);
    left.remove_prefix(newline == std::string_view::npos ? left.size() : newline + 1);
    if (!is_blank(line)) {
      const std::string place = file.path.string() + ":" + std::to_string(line_number);
      const std::string_view text = text_of(parser, line, place, field);
      if (!text.empty()) document(text);
    }
    ++line_number;
  }
}

}  // namespace strata::data
