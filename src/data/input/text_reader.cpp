#include <fmt/format.h>
#include <simdjson.h>

#include "data/input/record_readers.h"
#include "data/input/text_bytes.h"

namespace strata::data {

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

// Reads the rest of the input into the window; false if it exceeds `max_bytes`.
bool take_whole(InputWindow& window, int64_t max_bytes, std::string_view& content) {
  while (static_cast<int64_t>(window.data().size()) <= max_bytes) {
    if (!window.fill()) {
      content = window.data();
      return true;
    }
  }
  return false;
}

class WholeReader final : public RecordReader {
 public:
  WholeReader(InputWindow window, const std::string& name, const RecordOptions& options, const char* what,
              TakeContent take)
      : window_(std::move(window)),
        name_(name),
        max_bytes_(options.max_record_bytes),
        what_(what),
        take_(take) {}

  ReadStatus next(Document& document, std::string& detail) override {
    document.clear();
    if (done_) return ReadStatus::kEnd;
    done_ = true;
    place_record(document, name_, 1);
    std::string_view content;
    if (!take_whole(window_, max_bytes_, content)) {
      detail = fmt::format("a {} of more than {} bytes", what_, max_bytes_);
      return ReadStatus::kBadRecord;
    }
    if (!window_.damage().empty()) {
      detail = window_.damage();
      return ReadStatus::kDamaged;
    }
    return take_(content, document, detail);
  }

  int64_t bytes_read() const override { return window_.stored_bytes(); }

 private:
  InputWindow window_;
  std::string name_;
  int64_t max_bytes_;
  const char* what_;
  TakeContent take_;
  bool done_ = false;
};

ReadStatus take_text(std::string_view text, Document& document, std::string& detail) {
  detail = problem_of_text(text);
  if (!detail.empty()) return ReadStatus::kNotText;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  document.text = text;
  return check_text(document, detail);
}

}  // namespace

std::unique_ptr<RecordReader> read_whole(InputWindow window, const std::string& name,
                                         const RecordOptions& options, const char* what, TakeContent take) {
  return std::make_unique<WholeReader>(std::move(window), name, options, what, take);
}

std::unique_ptr<RecordReader> read_text(InputWindow window, const std::string& name,
                                        const RecordOptions& options) {
  return read_whole(std::move(window), name, options, "text", take_text);
}

}  // namespace strata::data
