// The .idx file of a Megatron indexed dataset (version 1): the sequences and documents in the tokens of the
// .bin file next to it. Layout, little-endian and unaligned: "MMIDIDX\0\0", u64 version = 1, u8 type, u64 S
// sequences, u64 D = documents + 1, i32 length[S] in tokens, i64 pointer[S] in bytes, i64 document[D] in
// sequences (first 0, last S), and for multimodal data i8 mode[S].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "data/tokens/token_type.h"

namespace strata::data {

// A view of the index's bytes, which must outlive it.
struct MegatronIndex {
  TokenType type = TokenType::kU16;
  int64_t sequences = 0;
  int64_t documents = 0;
  int64_t tokens = 0;
  const std::byte* lengths = nullptr;
  const std::byte* pointers = nullptr;
  const std::byte* document_indices = nullptr;

  // The token after the last one of document d.
  int64_t document_end(int64_t d) const;
};

// Checks every entry; `name` is the file for messages. Throws DataError for bytes that are not such an index,
// and for one whose sequences are not consecutive in the .bin file.
MegatronIndex parse_megatron_index(std::span<const std::byte> bytes, const std::string& name);

}  // namespace strata::data
