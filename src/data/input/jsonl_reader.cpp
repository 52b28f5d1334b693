#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "data/input/record_readers.h"
#include "data/pipeline/json_line.h"

namespace strata::data {
namespace {

static_assert(InputWindow::kPadding >= JsonLine::kPadding);

class JsonlReader final : public RecordReader {
 public:
  JsonlReader(InputWindow window, const std::string& name, const RecordOptions& options,
              const JsonlRange& range)
      : window_(std::move(window)),
        name_(name),
        parser_(options.text, options.id),
        max_bytes_(static_cast<size_t>(options.max_record_bytes)),
        lines_(range.lines_before),
        before_(range.cut ? 1 : 0),
        size_(range.size),
        left_(range.size) {
    if (range.cut) {
      skip_line();  // the rest of the record before, or only the newline that ends it
      ++lines_;
    } else if (lines_ == 0) {
      while (window_.data().size() < 3 && window_.fill()) {
      }
      if (window_.data().starts_with("\xEF\xBB\xBF")) {
        window_.consume(3);
        if (left_ > 0) left_ = std::max<int64_t>(1, left_ - 3);  // the first record starts at byte 0
      }
    }
  }

  ReadStatus next(Document& document, std::string& detail) override {
    while (left_ != 0) {
      bool too_long = false;
      std::string_view line;
      if (!find_line(line, too_long)) break;
      ++lines_;
      ReadStatus status = ReadStatus::kEnd;
      if (too_long) {
        document.clear();
        detail = fmt::format("a line longer than {} bytes", max_bytes_);
        place_record(document, name_, lines_);
        skip_line();
        return ReadStatus::kBadRecord;
      }
      if (!JsonLine::is_blank(line)) status = read_line(line, document, detail);
      consume(line.size() + (line.size() < window_.data().size() ? 1 : 0));
      if (status != ReadStatus::kEnd) return status;
    }
    document.clear();
    if (left_ != 0 && !window_.damage().empty() && !damage_reported_) {
      damage_reported_ = true;
      detail = window_.damage();
      place_record(document, name_, lines_ + 1);
      return ReadStatus::kDamaged;
    }
    return ReadStatus::kEnd;
  }

  // A line that reaches into the next range is counted there: ranges of a file add up to its size.
  int64_t bytes_read() const override {
    const int64_t taken = size_ < 0 ? window_.stored_bytes() : size_ - left_;
    return std::max<int64_t>(0, taken - before_);
  }

 private:
  void consume(size_t count) {
    window_.consume(count);
    if (left_ > 0) left_ = std::max<int64_t>(0, left_ - static_cast<int64_t>(count));
  }

  // The next line without its newline; false at the end. A line that damage cut is none.
  bool find_line(std::string_view& line, bool& too_long) {
    size_t searched = 0;
    for (;;) {
      const std::string_view data = window_.data();
      const void* newline = searched < data.size()
                                ? std::memchr(data.data() + searched, '\n', data.size() - searched)
                                : nullptr;
      if (newline != nullptr) {
        line = data.substr(0, static_cast<size_t>(static_cast<const char*>(newline) - data.data()));
        too_long = line.size() > max_bytes_;
        return true;
      }
      searched = data.size();
      if (searched > max_bytes_) {
        too_long = true;
        return true;
      }
      if (!window_.fill()) {
        line = window_.data();
        return !line.empty() && window_.damage().empty();
      }
    }
  }

  // Moves past the next newline, or to the end of the range.
  void skip_line() {
    while (left_ != 0) {
      const std::string_view data = window_.data();
      const size_t newline = data.find('\n');
      if (newline != data.npos) {
        consume(newline + 1);
        return;
      }
      consume(data.size());
      if (!window_.fill()) return;
    }
  }

  ReadStatus read_line(std::string_view line, Document& document, std::string& detail) {
    const ReadStatus status = parser_.read(line, document, detail);
    place_record(document, name_, lines_);
    return status;
  }

  InputWindow window_;
  std::string name_;
  JsonLine parser_;
  size_t max_bytes_;
  int64_t lines_;   // before the window's data
  int64_t before_;  // bytes of the range before, which the window begins with
  int64_t size_;    // of the range with these; -1: no end
  int64_t left_;    // bytes to the end of the range; -1: no end
  bool damage_reported_ = false;
};

}  // namespace

std::unique_ptr<RecordReader> read_jsonl(InputWindow window, const std::string& name,
                                         const RecordOptions& options, const JsonlRange& range) {
  return std::make_unique<JsonlReader>(std::move(window), name, options, range);
}

}  // namespace strata::data
