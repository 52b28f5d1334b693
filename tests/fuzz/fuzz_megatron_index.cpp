// Any bytes as a Megatron index: rejected with a DataError, or consistent.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "data/tokens/megatron_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  try {
    const auto index = data::parse_megatron_index({reinterpret_cast<const std::byte*>(data), size}, "input");
    int64_t end = 0;
    for (int64_t d = 0; d < index.documents; ++d) {
      STRATA_CHECK(index.document_end(d) >= end, "document {} ends at {} after {}", d, index.document_end(d),
                   end);
      end = index.document_end(d);
    }
    STRATA_CHECK(index.documents == 0 || end == index.tokens, "the last document ends at {} of {}", end,
                 index.tokens);
  } catch (const DataError&) {
    // damaged
  }
  return 0;
}
