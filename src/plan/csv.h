// Reads comma-separated values strictly (RFC 4180): quoted cells may hold commas, line breaks and doubled
// quotes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::plan {

struct CsvCell {
  std::string text;
  int64_t line = 0;    // where the cell begins, from 1
  int64_t column = 0;  // byte of that line, from 1
};
using CsvRow = std::vector<CsvCell>;

// All rows, the header among them; each has the cells of the first. A byte order mark, CR before LF and one
// line break at the end are accepted. DataError with line and column for a quote inside of a cell, text after
// a closing quote, a quote that is never closed, and a row with another number of cells.
std::vector<CsvRow> parse_csv(std::string_view text, const std::string& name);

}  // namespace strata::plan
