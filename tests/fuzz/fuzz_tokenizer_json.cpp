// Any bytes as a tokenizer.json: rejected with a DataError, or a tokenizer that works without errors.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "data/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string_view json(reinterpret_cast<const char*>(data), size);
    const auto tokenizer = strata::data::Tokenizer::from_json(json, "input");
    const auto ids = tokenizer.encode("ab aba\n  12's \xff\xe6\x97\xa5 <x>", {.add_special_tokens = true});
    tokenizer.decode_text(ids);
    tokenizer.end_of_text_id();
  } catch (const strata::DataError&) {
  }
  return 0;
}
