// The documents of a token file by number, from 0: those of its table; without one, those between its
// end-of-text ids; without both, the whole file.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/tokens/token_file.h"

namespace strata::data {

class DocumentTable {
 public:
  // Reads the whole file if it has no table.
  explicit DocumentTable(std::shared_ptr<const TokenFile> file);

  int64_t documents() const;
  int64_t begin(int64_t document) const { return document == 0 ? 0 : end(document - 1); }
  int64_t end(int64_t document) const;
  // The document that contains this token of the file.
  int64_t at(int64_t token) const;

 private:
  std::shared_ptr<const TokenFile> file_;
  std::vector<int64_t> ends_;  // of a file without a table
};

}  // namespace strata::data
