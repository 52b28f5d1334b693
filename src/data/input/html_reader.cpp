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

namespace {

// A file is one page.
class HtmlReader final : public RecordReader {
 public:
  HtmlReader(InputWindow window, const std::string& name, const RecordOptions& options)
      : window_(std::move(window)), name_(name), max_bytes_(options.max_record_bytes) {}

  ReadStatus next(Document& document, std::string& detail) override {
    document.clear();
    if (done_) return ReadStatus::kEnd;
    done_ = true;
    place_record(document, name_, 1);
    std::string_view page;
    if (!take_whole(window_, max_bytes_, page)) {
      detail = fmt::format("a page of more than {} bytes", max_bytes_);
      return ReadStatus::kBadRecord;
    }
    if (!window_.damage().empty()) {
      detail = window_.damage();
      return ReadStatus::kDamaged;
    }
    return take_html(page, "", document, detail);
  }

  int64_t bytes_read() const override { return window_.stored_bytes(); }

 private:
  InputWindow window_;
  std::string name_;
  int64_t max_bytes_;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<RecordReader> read_html(InputWindow window, const std::string& name,
                                        const RecordOptions& options) {
  return std::make_unique<HtmlReader>(std::move(window), name, options);
}

}  // namespace strata::data
