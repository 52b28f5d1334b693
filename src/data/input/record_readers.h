// The readers of open_records, one per format.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/input/input_window.h"
#include "data/input/record_reader.h"

namespace strata::data {

// Where in a file the window starts. The window of a range that starts within a file includes the byte before
// it: only that byte decides whether a record starts with the range.
struct JsonlRange {
  bool cut = false;          // the window starts with that byte
  int64_t size = -1;         // records that start in the first `size` bytes of the window; -1: all
  int64_t lines_before = 0;  // newlines before the window
};
std::unique_ptr<RecordReader> read_jsonl(InputWindow window, const std::string& name,
                                         const RecordOptions& options, const JsonlRange& range);

std::unique_ptr<RecordReader> read_text(InputWindow window, const std::string& name,
                                        const RecordOptions& options);

std::unique_ptr<RecordReader> read_csv(InputWindow window, const std::string& name,
                                       const RecordOptions& options, char delimiter);
std::unique_ptr<RecordReader> read_html(InputWindow window, const std::string& name,
                                        const RecordOptions& options);
std::unique_ptr<RecordReader> read_warc(InputWindow window, const std::string& name,
                                        const RecordOptions& options);

// A file that is one record; `take` makes the document of its content, `what` names such a file in messages.
using TakeContent = ReadStatus (*)(std::string_view content, Document& document, std::string& detail);
std::unique_ptr<RecordReader> read_whole(InputWindow window, const std::string& name,
                                         const RecordOptions& options, const char* what, TakeContent take);

// kDocument, or the problem of a text: empty, not UTF-8.
ReadStatus check_text(const Document& document, std::string& detail);

// The main text of a page into document.text. `charset`: as declared by the transport, may be empty.
constexpr size_t kMaxPageBytes = size_t{16} << 20;
ReadStatus take_html(std::string_view page, const std::string& charset, Document& document,
                     std::string& detail);

// Sets the id of a record without one to its place: NAME:LINE.
inline void place_record(Document& document, const std::string& name, int64_t line) {
  document.line = line;
  if (document.id.empty()) document.id = name + ":" + std::to_string(line);
}

}  // namespace strata::data
