#include "plan/csv.h"

#include "base/error.h"

namespace strata::planning {
namespace {

class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& name) : text_(text), name_(name) {
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
  }

  std::vector<CsvRow> read() {
    std::vector<CsvRow> rows;
    while (at_ < text_.size()) {
      const int64_t line = line_;
      CsvRow row = read_row();
      if (!rows.empty() && row.size() != rows.front().size()) {
        throw DataError("[{}:{}] found a row of {} cells, expected {}, as in the header", name_, line,
                        row.size(), rows.front().size());
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool at_line_end() const {
    return at_ == text_.size() || text_[at_] == '\n' || text_.substr(at_, 2) == "\r\n";
  }
  int64_t column() const { return static_cast<int64_t>(at_ - line_start_) + 1; }
  void next_line() {
    ++line_;
    line_start_ = at_;
  }

  CsvRow read_row() {
    CsvRow row;
    for (;;) {
      row.push_back(peek() == '"' ? read_quoted() : read_plain());
      if (at_line_end()) break;
      ++at_;  // the comma
    }
    if (peek() == '\r') ++at_;
    if (at_ < text_.size()) {
      ++at_;
      next_line();
    }
    return row;
  }

  CsvCell read_plain() {
    CsvCell cell{.text = {}, .line = line_, .column = column()};
    const size_t begin = at_;
    while (!at_line_end() && text_[at_] != ',') {
      if (text_[at_] == '"' || text_[at_] == '\r') {
        throw DataError("[{}:{}:{}] found {} inside a cell, expected quotes around the whole cell", name_,
                        line_, column(), text_[at_] == '"' ? "a quote" : "a carriage return");
      }
      ++at_;
    }
    cell.text = text_.substr(begin, at_ - begin);
    return cell;
  }

  CsvCell read_quoted() {
    CsvCell cell{.text = {}, .line = line_, .column = column()};
    ++at_;
    for (;;) {
      if (at_ == text_.size()) {
        throw DataError("[{}:{}:{}] found a quote that is never closed, expected a closing quote", name_,
                        cell.line, cell.column);
      }
      const char c = text_[at_++];
      if (c == '\n') next_line();
      if (c == '"') {
        if (peek() != '"') break;
        ++at_;
      }
      cell.text.push_back(c);
    }
    if (!at_line_end() && text_[at_] != ',') {
      throw DataError("[{}:{}:{}] found text after a closing quote, expected a comma or the end of the line",
                      name_, line_, column());
    }
    return cell;
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
  size_t line_start_ = 0;
  int64_t line_ = 1;
};

}  // namespace

std::vector<CsvRow> parse_csv(std::string_view text, const std::string& name) {
  return CsvReader(text, name).read();
}

}  // namespace strata::planning
