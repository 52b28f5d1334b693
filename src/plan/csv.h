// A strict reader of comma-separated values (RFC 4180): quoted cells may contain commas, line breaks and
// doubled quotes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::planning {

struct CsvCell {
  std::string text;
  int64_t line = 0;    // of the cell's first byte, from 1
  int64_t column = 0;  // byte within that line, from 1
};
using CsvRow = std::vector<CsvCell>;

// All rows, including the header; each has the same number of cells as the header. Accepts a byte order mark,
// CR before LF and one line break at the end. DataError with line and column for a quote inside a cell, text
// after a closing quote, a quote that is never closed, and a row with a different number of cells.
std::vector<CsvRow> parse_csv(std::string_view text, const std::string& name);

}  // namespace strata::planning
