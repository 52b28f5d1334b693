// What lies in a file, for a person: documents of anything that can be read, tokens and document boundaries
// of token files, what a Megatron index (.idx) says.
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

// The text to print. The whole file is counted; only the first documents are shown.
std::string inspect(const InspectRequest& request);

}  // namespace strata::data
