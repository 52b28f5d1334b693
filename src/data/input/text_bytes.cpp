#include "data/input/text_bytes.h"

#include <simdjson.h>

#include "base/error.h"
#include "base/log.h"

namespace strata::data {
namespace {

bool is_utf16(std::string_view content) {
  return content.starts_with("\xFF\xFE") || content.starts_with("\xFE\xFF");
}

}  // namespace

std::string fault_of_text(std::string_view content) {
  constexpr size_t kLooked = 8192;
  const std::string_view head = content.substr(0, kLooked);
  if (is_utf16(head)) return "UTF-16, by its byte order mark";
  if (head.starts_with("%PDF-")) return "a PDF";
  if (const size_t nul = head.find('\0'); nul != head.npos)
    return "a binary file, or UTF-16: byte " + std::to_string(nul) + " is NUL";
  return "";
}

void check_text_file(const Path& path, std::string_view content) {
  if (is_utf16(content)) {
    throw DataError(
        "[{}] is UTF-16, by its byte order mark, expected UTF-8; convert it: iconv -f UTF-16 -t UTF-8",
        path.string());
  }
  const std::string fault = fault_of_text(content);
  if (!fault.empty()) {
    log_warning("{}: is no text but {}; its bytes are taken as they are", path.string(), fault);
  } else if (!simdjson::validate_utf8(content.data(), content.size())) {
    log_warning("{}: is not UTF-8; its bytes are taken as they are, and iconv converts other encodings",
                path.string());
  }
}

}  // namespace strata::data
