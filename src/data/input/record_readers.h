// The readers behind open_records, one a format.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/input/input_window.h"
#include "data/input/record_reader.h"

namespace strata::data {

// Where in a file the window starts. A range that starts within a file is given from the byte before it: only
// that byte tells whether a record starts with the range.
struct JsonlRange {
  bool cut = false;          // the window starts with that byte
  int64_t size = -1;         // records that start in so many bytes of the window; -1: all
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

// kDocument, or what is wrong with a text: empty, not UTF-8.
ReadStatus check_text(const Document& document, std::string& detail);

// The main text of a page into document.text. `charset`: what the transport declared, empty for nothing.
constexpr size_t kMaxPageBytes = size_t{16} << 20;
ReadStatus take_html(std::string_view page, const std::string& charset, Document& document,
                     std::string& detail);

// Gives a record that has no id its place: NAME:LINE.
inline void place_record(Document& document, const std::string& name, int64_t line) {
  document.line = line;
  if (document.id.empty()) document.id = name + ":" + std::to_string(line);
}

}  // namespace strata::data
