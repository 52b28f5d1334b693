#include <fmt/format.h>

#include "data/input/charset.h"
#include "data/input/main_text.h"
#include "data/input/record_readers.h"

namespace strata::data {

ReadStatus take_html(std::string_view page, const std::string& charset, Document& document,
                     std::string& detail) {
  if (page.size() > kMaxPageBytes) {
    detail = fmt::format("a page of {} bytes; at most {} are parsed", page.size(), kMaxPageBytes);
    return ReadStatus::kBadRecord;
  }
  std::string utf8;
  if (!decode_page(page, charset.empty() ? declared_charset(page) : charset, utf8, detail))
    return ReadStatus::kNotText;
  if (!extract_main_text(utf8, document.text)) {
    detail = "elements nested too deep, or markup that grows without bound";
    return ReadStatus::kBadRecord;
  }
  return check_text(document, detail);
}

std::unique_ptr<RecordReader> read_html(InputWindow window, const std::string& name,
                                        const RecordOptions& options) {
  return read_whole(std::move(window), name, options, "page",
                    [](std::string_view page, Document& document, std::string& detail) {
                      return take_html(page, "", document, detail);
                    });
}

}  // namespace strata::data
