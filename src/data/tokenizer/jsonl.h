// What `strata tokenizer encode|decode --jsonl` does: one JSON object a line in, one a line out, in order.
// Lines are worked on in parallel, a batch at a time, so memory does not grow with the input.
#pragma once

#include <istream>
#include <ostream>
#include <string>

#include "data/tokenizer/tokenizer.h"

namespace strata::data {

// {"text": "…"} lines → {"ids":[…]} lines. A blank or invalid line, or one without a string under "text":
// DataError naming `source` and the line. Returns the number of lines.
int64_t encode_jsonl(const Tokenizer& tokenizer, std::istream& in, std::ostream& out,
                     const EncodeOptions& options, const std::string& source);

// {"ids": […]} lines → {"text":"…"} lines; bytes that are not UTF-8 become U+FFFD.
int64_t decode_jsonl(const Tokenizer& tokenizer, std::istream& in, std::ostream& out,
                     const DecodeOptions& options, const std::string& source);

// The one line that a text or ids make, without line end.
std::string ids_to_json(std::span<const int32_t> ids);
std::string text_to_json(std::string_view text);  // valid UTF-8

}  // namespace strata::data
