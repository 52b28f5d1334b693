#include <fmt/format.h>
#include <simdjson.h>

#include "data/input/record_readers.h"

namespace strata::data {

bool take_whole(InputWindow& window, int64_t max_bytes, std::string_view& content) {
  while (static_cast<int64_t>(window.data().size()) <= max_bytes) {
    if (!window.fill()) {
      content = window.data();
      return true;
    }
  }
  return false;
}

ReadStatus check_text(const Document& document, std::string& detail) {
  if (document.text.empty()) {
    detail = "no text";
    return ReadStatus::kEmptyText;
  }
  if (!simdjson::validate_utf8(document.text.data(), document.text.size())) {
    detail = "bytes that are not UTF-8";
    return ReadStatus::kInvalidUtf8;
  }
  return ReadStatus::kDocument;
}

namespace {

class TextReader final : public RecordReader {
 public:
  TextReader(InputWindow window, const std::string& name, const RecordOptions& options)
      : window_(std::move(window)), name_(name), max_bytes_(options.max_record_bytes) {}

  ReadStatus next(Document& document, std::string& detail) override {
    document.clear();
    if (done_) return ReadStatus::kEnd;
    done_ = true;
    place_record(document, name_, 1);
    std::string_view text;
    if (!take_whole(window_, max_bytes_, text)) {
      detail = fmt::format("a text of more than {} bytes", max_bytes_);
      return ReadStatus::kBadRecord;
    }
    if (!window_.damage().empty()) {
      detail = window_.damage();
      return ReadStatus::kDamaged;
    }
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    document.text = text;
    return check_text(document, detail);
  }

  int64_t bytes_read() const override { return window_.stored_bytes(); }

 private:
  InputWindow window_;
  std::string name_;
  int64_t max_bytes_;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<RecordReader> read_text(InputWindow window, const std::string& name,
                                        const RecordOptions& options) {
  return std::make_unique<TextReader>(std::move(window), name, options);
}

}  // namespace strata::data
