// The documents of a block of text: lines of jsonl as data builds read them, whole files unchanged.
#include <string>

#include "base/error.h"
#include "data/pipeline/json_line.h"
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

[[noreturn]] void refuse_line(ReadStatus status, const std::string& detail, JsonLine& reader,
                              std::string_view line, const std::string& place, const std::string& field) {
  if (status == ReadStatus::kNoText) {
    std::string names;
    for (const std::string& name : reader.names(line)) names += (names.empty() ? "\"" : ", \"") + name + "\"";
    throw DataError("[{}] has no field \"{}\"; it has {}; set data.text_field to the one that holds the text",
                    place, field, names.empty() ? "none" : excerpt(names));
  }
  if (status == ReadStatus::kNullText || status == ReadStatus::kTextNotAString)
    throw DataError("[{}] has {}; repair or remove the line", place, detail);
  throw DataError("[{}] is not valid JSON with a text: {}: {}; repair or remove the line", place, detail,
                  excerpt(line));
}

const std::string kRecordField = "text";

}  // namespace

void for_each_document(const TextBlock& block, const CorpusFile& file, const std::string& text_field,
                       FunctionRef<void(std::string_view text, int64_t line)> document) {
  if (file.kind == CorpusKind::kText) {
    if (!block.bytes.empty()) document(block.bytes, 0);
    return;
  }
  const std::string& field = file.kind == CorpusKind::kRecords ? kRecordField : text_field;
  std::string padded;
  padded.reserve(block.bytes.size() + JsonLine::kPadding);
  padded.append(block.bytes).append(JsonLine::kPadding, '\0');
  std::string_view left = std::string_view(padded).substr(0, block.bytes.size());
  int64_t line_number = block.first_line;
  if (line_number == 1 && left.starts_with("\xEF\xBB\xBF")) left.remove_prefix(3);
  JsonLine reader(field, "");
  Document found;
  std::string detail;
  while (!left.empty()) {
    const size_t newline = left.find('\n');
    const std::string_view line = left.substr(0, newline);
    left.remove_prefix(newline == std::string_view::npos ? left.size() : newline + 1);
    if (!JsonLine::is_blank(line)) {
      const ReadStatus status = reader.read(line, found, detail);
      if (status == ReadStatus::kDocument) {
        document(found.text, line_number);
      } else if (status != ReadStatus::kEmptyText) {
        refuse_line(status, detail, reader, line, file.path.string() + ":" + std::to_string(line_number),
                    field);
      }
    }
    ++line_number;
  }
}

}  // namespace strata::data
