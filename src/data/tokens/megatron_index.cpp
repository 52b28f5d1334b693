#include "data/tokens/megatron_index.h"

#include <cstring>
#include <limits>

#include "base/error.h"

namespace strata::data {
namespace {

constexpr int64_t kHeaderBytes = 34;
constexpr char kMagic[10] = "MMIDIDX\0";  // nine bytes, the last two zero

template <typename T>
T load(const std::byte* from, int64_t index = 0) {
  T value;
  std::memcpy(&value, from + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

TokenType type_of_code(uint8_t code, const std::string& name) {
  switch (code) {
    case 1:
      return TokenType::kU8;
    case 3:
      return TokenType::kI16;
    case 4:
      return TokenType::kI32;
    case 5:
      return TokenType::kI64;
    case 8:
      return TokenType::kU16;
    default:
      throw DataError(
          "[{}] has type code {} for its tokens; expected 1 (u8), 3 (i16), 4 (i32), 5 (i64) or 8 (u16); "
          "it does not hold token ids, or is damaged",
          name, code);
  }
}

}  // namespace

int64_t MegatronIndex::document_end(int64_t d) const {
  const auto sequence = load<int64_t>(document_indices, d + 1);
  if (sequence == sequences) return tokens;
  return load<int64_t>(pointers, sequence) / token_bytes(type);
}

MegatronIndex parse_megatron_index(std::span<const std::byte> bytes, const std::string& name) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (size < kHeaderBytes) {
    throw DataError("[{}] has {} bytes; a Megatron index has a header of {}; the file was cut short", name,
                    size, kHeaderBytes);
  }
  const std::byte* at = bytes.data();
  if (std::memcmp(at, kMagic, 9) != 0) {
    throw DataError(
        "[{}] does not start with MMIDIDX; it is not a Megatron index. Name only the .bin file, "
        "or the .idx file that belongs to it",
        name);
  }
  const auto version = load<uint64_t>(at + 9);
  if (version != 1) throw DataError("[{}] is a Megatron index of version {}; expected 1", name, version);

  MegatronIndex index;
  index.type = type_of_code(load<uint8_t>(at + 17), name);
  const auto sequences = load<uint64_t>(at + 18);
  const auto entries = load<uint64_t>(at + 26);
  // Each count is bounded by the file's size, so that the multiplications below cannot overflow.
  const auto limit = static_cast<uint64_t>(size);
  const bool plausible = entries >= 1 && sequences <= limit / 12 && entries <= limit / 8;
  const int64_t expected =
      plausible ? kHeaderBytes + static_cast<int64_t>(12 * sequences + 8 * entries) : size + 1;
  if (expected > size) {
    throw DataError(
        "[{}] announces {} sequences and {} document marks, more than its {} bytes can hold; the "
        "file was cut short or is damaged",
        name, sequences, entries, size);
  }
  if (expected != size && expected + static_cast<int64_t>(sequences) != size) {
    throw DataError("[{}] has {} bytes; {} sequences and {} document marks take {}; the file is damaged",
                    name, size, sequences, entries, expected);
  }
  index.sequences = static_cast<int64_t>(sequences);
  index.documents = static_cast<int64_t>(entries) - 1;
  index.lengths = at + kHeaderBytes;
  index.pointers = index.lengths + 4 * sequences;
  index.document_indices = index.pointers + 8 * sequences;

  const int64_t width = token_bytes(index.type);
  for (int64_t s = 0; s < index.sequences; ++s) {
    const auto length = load<int32_t>(index.lengths, s);
    const auto pointer = load<int64_t>(index.pointers, s);
    if (length < 0) throw DataError("[{}] sequence {} has length {}; the index is damaged", name, s, length);
    if (pointer != index.tokens * width) {
      throw DataError(
          "[{}] sequence {} starts at byte {} of the .bin file; expected {}, the end of the "
          "previous one; write the pair again with its sequences in order",
          name, s, pointer, index.tokens * width);
    }
    // Cannot overflow: the number of sequences is below 2^60 / 2^31 for any file that exists.
    index.tokens += length;
    if (index.tokens > std::numeric_limits<int64_t>::max() / 16) {
      throw DataError("[{}] announces more tokens than a file can hold; the index is damaged", name);
    }
  }
  int64_t previous = 0;
  for (int64_t d = 0; d <= index.documents; ++d) {
    const auto sequence = load<int64_t>(index.document_indices, d);
    const bool good = d == 0 ? sequence == 0 : sequence >= previous && sequence <= index.sequences;
    if (!good) {
      throw DataError("[{}] document mark {} is sequence {}; expected {} to {}; the index is damaged", name,
                      d, sequence, previous, d == 0 ? 0 : index.sequences);
    }
    previous = sequence;
  }
  if (previous != index.sequences) {
    throw DataError("[{}] the last document ends at sequence {} of {}; the index is damaged", name, previous,
                    index.sequences);
  }
  return index;
}

}  // namespace strata::data
