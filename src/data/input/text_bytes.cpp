#include "data/input/text_bytes.h"

namespace strata::data {

std::string fault_of_text(std::string_view content) {
  constexpr size_t kLooked = 8192;
  const std::string_view head = content.substr(0, kLooked);
  if (head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF")) return "UTF-16, by its byte order mark";
  if (head.starts_with("%PDF-")) return "a PDF";
  if (const size_t nul = head.find('\0'); nul != head.npos)
    return "a binary file, or UTF-16: byte " + std::to_string(nul) + " is NUL";
  return "";
}

}  // namespace strata::data
