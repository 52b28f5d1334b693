// Any bytes as a tokenizer file of any kind (tokenizer.json, tiktoken, tekken.json, SentencePiece): rejected
// with a DataError, or a tokenizer that encodes and decodes without errors.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "data/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string content(reinterpret_cast<const char*>(data), size);
  for (const char* pattern : {"", "o200k"}) {  // only tiktoken files take one, and they require it
    try {
      const auto tokenizer = strata::data::Tokenizer::from_content(content, "input", pattern);
      const auto ids =
          tokenizer.encode("ab aba\n  12's \xff\xe6\x97\xa5 <x> \xef\xac\x81", {.add_special_tokens = true});
      tokenizer.decode_text(ids);
      tokenizer.end_of_text_id();
    } catch (const strata::DataError&) {
    } catch (const strata::ConfigError&) {
    }
  }
  return 0;
}
