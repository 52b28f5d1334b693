// Any line, parsed by Strata's JSONL parser and by simdjson: both must accept it and find the same text, or
// both must reject it.
#include <simdjson.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "data/pipeline/json_line.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata::data;
  std::string line(reinterpret_cast<const char*>(data), size);
  line.resize(std::min(line.size(), line.find('\n')));
  if (!simdjson::validate_utf8(line.data(), line.size())) return 0;
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const auto error = parser.parse(line).get(root);

  const size_t length = line.size();
  line.resize(length + JsonLine::kPadding, '\0');
  JsonLine ours("text", "id");
  Document document;
  std::string detail;
  const ReadStatus status = ours.parse(std::string_view(line).substr(0, length), document, detail);
  switch (error) {
    case simdjson::SUCCESS: {
      simdjson::dom::object object;
      if (root.get(object) != simdjson::SUCCESS) {
        if (status != ReadStatus::kInvalidJson) std::abort();
        break;
      }
      if (status == ReadStatus::kInvalidJson) std::abort();
      std::string_view text;
      bool is_string = false;
      for (const auto& [key, value] : object) {
        if (key == "text") is_string = value.get(text) == simdjson::SUCCESS;  // the last one counts
      }
      if (status == ReadStatus::kDocument && (!is_string || text != document.text)) std::abort();
      if (status != ReadStatus::kDocument && status != ReadStatus::kInvalidUtf8 && is_string && !text.empty())
        std::abort();
      break;
    }
    // Only simdjson rejects numbers beyond 64 bits or double, lone surrogates and deep nesting.
    case simdjson::NUMBER_ERROR:
    case simdjson::STRING_ERROR:
    case simdjson::DEPTH_ERROR:
    case simdjson::CAPACITY:
      break;
    default:
      if (status != ReadStatus::kInvalidJson) std::abort();
  }
  return 0;
}
