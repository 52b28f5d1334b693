// RFC 4180 with a header, as Python's csv module reads it: fields in quotes may hold delimiters, doubled
// quotes and line ends; outside of them a quote is a character like any other.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "data/input/record_readers.h"

namespace strata::data {
namespace {

constexpr int64_t kNoColumn = -1;

class CsvReader final : public RecordReader {
 public:
  CsvReader(InputWindow window, const std::string& name, const RecordOptions& options, char delimiter)
      : window_(std::move(window)), name_(name), options_(options), delimiter_(delimiter) {}

  ReadStatus next(Document& document, std::string& detail) override {
    document.clear();
    if (!header_read_) {
      const ReadStatus status = read_header(document, detail);
      if (status != ReadStatus::kDocument) return status;
    }
    const Row row = read_row(detail);
    if (row == Row::kEnd) return end(document, detail);
    const ReadStatus status = row == Row::kBad ? ReadStatus::kBadRecord : take_row(document, detail);
    place_record(document, name_, row_line_);
    return status;
  }

  int64_t bytes_read() const override { return window_.stored_bytes(); }

 private:
  enum class Row { kEnd, kGood, kBad };
  struct Cell {
    size_t begin = 0, end = 0;  // in the window's data
    bool escaped = false;       // holds doubled quotes
  };

  ReadStatus end(Document& document, std::string& detail) {
    if (window_.damage().empty() || damage_reported_) return ReadStatus::kEnd;
    damage_reported_ = true;
    detail = window_.damage();
    place_record(document, name_, line_);
    return ReadStatus::kDamaged;
  }

  ReadStatus read_header(Document& document, std::string& detail) {
    header_read_ = true;
    while (window_.data().size() < 3 && window_.fill()) {
    }
    if (window_.data().starts_with("\xEF\xBB\xBF")) window_.consume(3);
    const Row row = read_row(detail);
    if (row == Row::kEnd) return end(document, detail);
    if (row == Row::kGood && !simdjson::validate_utf8(row_.data(), row_.size())) {
      detail = "a header that is not UTF-8";
    } else if (row == Row::kGood) {
      for (const Cell& cell : cells_) columns_.push_back(value_of(cell));
      text_column_ = column_of(options_.text);
      id_column_ = column_of(options_.id);
      return ReadStatus::kDocument;
    }
    // Without a header no row means anything.
    while (window_.fill()) window_.consume(window_.data().size());
    window_.consume(window_.data().size());
    damage_reported_ = true;
    place_record(document, name_, row_line_);
    return ReadStatus::kDamaged;
  }

  int64_t column_of(const std::string& wanted) const {
    const auto found = std::find(columns_.begin(), columns_.end(), wanted);
    return found == columns_.end() ? kNoColumn : found - columns_.begin();
  }

  std::string value_of(const Cell& cell) const {
    std::string value(row_, cell.begin, cell.end - cell.begin);
    if (cell.escaped) {
      size_t to = 0;
      for (size_t from = 0; from < value.size(); ++from) {
        value[to++] = value[from];
        if (value[from] == '"') ++from;
      }
      value.resize(to);
    }
    return value;
  }

  ReadStatus take_row(Document& document, std::string& detail) {
    if (!simdjson::validate_utf8(row_.data(), row_.size())) {
      detail = "bytes that are not UTF-8";
      return ReadStatus::kInvalidUtf8;
    }
    if (cells_.size() != columns_.size()) {
      detail = fmt::format("{} fields where the header has {}", cells_.size(), columns_.size());
      return ReadStatus::kBadRecord;
    }
    for (size_t i = 0; i < cells_.size(); ++i) {
      if (static_cast<int64_t>(i) == text_column_) {
        document.text = value_of(cells_[i]);
      } else if (static_cast<int64_t>(i) == id_column_) {
        document.id = value_of(cells_[i]);
      } else if (!is_own_name(columns_[i])) {
        add_field(document, columns_[i], value_of(cells_[i]));
      }
    }
    if (text_column_ == kNoColumn) {
      detail = fmt::format("no column \"{}\" but {}", options_.text, fmt::join(columns_, ", "));
      return ReadStatus::kNoText;
    }
    if (document.text.empty()) {
      detail = fmt::format("an empty string under \"{}\"", options_.text);
      return ReadStatus::kEmptyText;
    }
    return ReadStatus::kDocument;
  }

  // One more byte in the window at `place`, unless the input ends there.
  bool has(size_t place) {
    while (place >= window_.data().size()) {
      if (!window_.fill()) return false;
    }
    return true;
  }

  // The place of the first of these bytes at or after `place`; the end of the input if there is none.
  template <typename Stop>
  size_t find(size_t place, const Stop& stop) {
    while (has(place)) {
      const std::string_view data = window_.data();
      while (place < data.size() && !stop(data[place])) ++place;
      if (place < data.size() || too_long(place)) break;
    }
    return place;
  }
  bool too_long(size_t place) const { return static_cast<int64_t>(place) > options_.max_record_bytes; }

  // The next row that is not blank into row_ and cells_. A bad one ends with its first line.
  Row read_row(std::string& detail) {
    for (;;) {
      row_line_ = line_;
      if (!has(0)) return Row::kEnd;
      size_t place = 0;
      const char* problem = nullptr;
      cells_.clear();
      do {
        problem = read_cell(place);
      } while (problem == nullptr && has(place) && window_.data()[place] == delimiter_ && ++place > 0);
      // A row that damage cut off does not count.
      if (!has(place) && !window_.damage().empty()) {
        window_.consume(window_.data().size());
        return Row::kEnd;
      }
      if (problem != nullptr) {
        place = find(0, [](char c) { return c == '\n'; });
        if (too_long(place)) return skip_long_line(detail);
        detail = problem;
      }
      row_.assign(window_.data().substr(0, place));
      const bool blank = row_.empty();
      line_ += std::count(row_.begin(), row_.end(), '\n') + 1;
      if (has(place) && window_.data()[place] == '\r' && has(place + 1) && window_.data()[place + 1] == '\n')
        ++place;
      window_.consume(std::min(place + 1, window_.data().size()));
      if (problem != nullptr) return Row::kBad;
      if (!blank) return Row::kGood;
    }
  }

  Row skip_long_line(std::string& detail) {
    detail = fmt::format("a row longer than {} bytes", options_.max_record_bytes);
    for (;;) {
      const size_t newline = window_.data().find('\n');
      window_.consume(newline == std::string_view::npos ? window_.data().size() : newline + 1);
      if (newline != std::string_view::npos || !window_.fill()) break;
    }
    ++line_;
    return Row::kBad;
  }

  // Reads the cell that starts at `place` and moves past it; returns its error, or null.
  const char* read_cell(size_t& place) {
    const char delimiter = delimiter_;
    if (!has(place) || window_.data()[place] != '"') {
      const size_t begin = place;
      place = find(place, [delimiter](char c) { return c == delimiter || c == '\n' || c == '\r'; });
      if (too_long(place)) return "a row that is too long";
      cells_.push_back({begin, place, false});
      return nullptr;
    }
    Cell cell{++place, place, false};
    for (;;) {
      place = find(place, [](char c) { return c == '"'; });
      if (!has(place) || too_long(place)) return "a quoted field that does not end";
      cell.end = place++;
      if (!has(place) || window_.data()[place] != '"') break;
      cell.escaped = true;
      ++place;
    }
    cells_.push_back(cell);
    if (!has(place)) return nullptr;
    const char next = window_.data()[place];
    return next == delimiter || next == '\n' || next == '\r' ? nullptr : "text after a closing quote";
  }

  InputWindow window_;
  std::string name_;
  RecordOptions options_;
  char delimiter_;
  bool header_read_ = false;
  bool damage_reported_ = false;
  int64_t line_ = 1;      // of the window's start
  int64_t row_line_ = 1;  // where the row starts
  std::string row_;
  std::vector<Cell> cells_;
  std::vector<std::string> columns_;
  int64_t text_column_ = kNoColumn;
  int64_t id_column_ = kNoColumn;
};

}  // namespace

std::unique_ptr<RecordReader> read_csv(InputWindow window, const std::string& name,
                                       const RecordOptions& options, char delimiter) {
  return std::make_unique<CsvReader>(std::move(window), name, options, delimiter);
}

}  // namespace strata::data
