// Shows the content of a file to a person: documents of anything that can be read, tokens and document
// boundaries of token files, the entries of a Megatron index (.idx).
#pragma once

#include <string>

#include "base/file.h"
#include "data/input/record_reader.h"

namespace strata::data {

struct InspectRequest {
  Path path;
  Path tokenizer;  // "" for none
  RecordOptions records{};
  int64_t limit = 5;  // documents shown
  bool color = false;
  bool json = false;
};

// The text to print. The totals cover the whole file; only the first documents are shown.
std::string inspect(const InspectRequest& request);

}  // namespace strata::data
