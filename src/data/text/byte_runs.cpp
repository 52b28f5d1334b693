#include "data/text/byte_runs.h"

#include <algorithm>
#include <bit>
#include <cstring>

// The best that the processor has is chosen at run time.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/text/byte_runs.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::data {
namespace HWY_NAMESPACE {

// Marks of `blocks` times 64 bytes.
#if HWY_TARGET == HWY_SCALAR

void MarkBlocks(const uint8_t* text, size_t blocks, const uint8_t* low, bool wide, uint64_t* bits) {
  for (size_t block = 0; block < blocks; ++block) {
    uint64_t marks = 0;
    for (size_t i = 0; i < 64; ++i) {
      const uint8_t byte = text[block * 64 + i];
      const bool in = byte < 0x80 ? (low[byte & 15] >> (byte >> 4) & 1) != 0 : wide;
      marks |= uint64_t{in} << i;
    }
    bits[block] = marks;
  }
}

#else

namespace hn = hwy::HWY_NAMESPACE;

void MarkBlocks(const uint8_t* text, size_t blocks, const uint8_t* low, bool wide, uint64_t* bits) {
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  alignas(16) static constexpr uint8_t kBits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 0, 0, 0, 0, 0, 0, 0, 0};
  const auto bit_of_high = hn::LoadDup128(d, kBits);
  const auto set = hn::LoadDup128(d, low);
  const auto nibble = hn::Set(d, 15);
  const auto not_ascii = hn::Set(d, wide ? 0x80 : 0);
  for (size_t block = 0; block < blocks; ++block) {
    uint8_t marks[64 / 8];
    for (size_t i = 0; i < 64; i += lanes) {
      const auto bytes = hn::LoadU(d, text + block * 64 + i);
      const auto high = hn::And(hn::ShiftRight<4>(bytes), nibble);
      const auto in =
          hn::And(hn::TableLookupBytes(set, hn::And(bytes, nibble)), hn::TableLookupBytes(bit_of_high, high));
      const auto marked = hn::Ne(hn::Or(in, hn::And(bytes, not_ascii)), hn::Zero(d));
      hn::StoreMaskBits(d, marked, marks + i / 8);
    }
    std::memcpy(bits + block, marks, sizeof marks);
  }
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace strata::data
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::data {

HWY_EXPORT(MarkBlocks);

namespace {

// Calls visit(number of the first block, marks, how many) for ranges of the text; bits past its end are 0.
template <typename Visit>
void visit_marks(std::string_view text, const AsciiSet& set, bool wide, const Visit& visit) {
  constexpr size_t kBlocks = 64;
  uint64_t marks[kBlocks];
  const auto* const bytes = reinterpret_cast<const uint8_t*>(text.data());
  const size_t whole = text.size() / 64;
  for (size_t first = 0; first < whole; first += kBlocks) {
    const size_t blocks = std::min(kBlocks, whole - first);
    HWY_DYNAMIC_DISPATCH(MarkBlocks)(bytes + first * 64, blocks, set.low.data(), wide, marks);
    visit(first, marks, blocks);
  }
  if (const size_t rest = text.size() % 64; rest != 0) {
    uint8_t last[64] = {};
    std::memcpy(last, bytes + whole * 64, rest);
    HWY_DYNAMIC_DISPATCH(MarkBlocks)(last, 1, set.low.data(), wide, marks);
    marks[0] &= (uint64_t{1} << rest) - 1;
    visit(whole, marks, size_t{1});
  }
}

}  // namespace

void find_runs(std::string_view text, const AsciiSet& between, std::vector<uint32_t>& edges) {
  size_t number = 0;
  uint64_t before = 1;  // whether the byte before is between runs
  visit_marks(text, between, false, [&](size_t first, const uint64_t* marks, size_t blocks) {
    // Writes eight places at a time, of which the next ones overwrite the excess.
    constexpr size_t kAtOnce = 8;
    if (edges.size() < number + blocks * 64 + kAtOnce) edges.resize(2 * number + blocks * 64 + kAtOnce);
    for (size_t block = 0; block < blocks; ++block) {
      uint64_t changes = marks[block] ^ (marks[block] << 1 | before);
      before = marks[block] >> 63;
      const auto base = static_cast<uint32_t>((first + block) * 64);
      const auto count = static_cast<size_t>(std::popcount(changes));
      for (size_t done = 0; done < count; done += kAtOnce) {
        for (size_t i = 0; i < kAtOnce; ++i) {
          edges[number + done + i] = base + static_cast<uint32_t>(std::countr_zero(changes));
          changes &= changes - 1;
        }
      }
      number += count;
    }
  });
  // Zeros after the end of a text that ends in a run look like a continuation of the run; otherwise like a
  // run that begins there.
  while (number > 0 && edges[number - 1] >= text.size()) --number;
  edges.resize(number);
  if (number % 2 != 0) edges.push_back(static_cast<uint32_t>(text.size()));
}

bool mark_bytes(std::string_view text, const AsciiSet& set, bool wide, std::vector<uint64_t>& bits) {
  bits.resize(text.size() / 64 + 2);
  uint64_t any = 0;
  visit_marks(text, set, wide, [&](size_t first, const uint64_t* marks, size_t blocks) {
    for (size_t block = 0; block < blocks; ++block) {
      bits[first + block] = marks[block];
      any |= marks[block];
    }
  });
  for (size_t i = (text.size() + 63) / 64; i < bits.size(); ++i) bits[i] = 0;
  return any != 0;
}

}  // namespace strata::data
#endif
