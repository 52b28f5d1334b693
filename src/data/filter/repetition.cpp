#include "data/filter/repetition.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "data/text/characters.h"
#include "data/text/short_hash.h"

namespace strata::data {
namespace {

// Two n-grams are the same only if their first kStartBytes bytes, or twice that number, are the same; shorter
// n-grams are always looked up.
constexpr uint32_t kStartBytes = 16;

// Hashes up to 16 bytes without a branch on the size; 16 bytes must be readable.
uint64_t hash_of_16(const char* bytes, size_t size) {
  const auto low_bytes = [](size_t n) { return n == 0 ? 0 : ~uint64_t{0} >> (64 - 8 * n); };
  uint64_t a, b;
  std::memcpy(&a, bytes, 8);
  std::memcpy(&b, bytes + 8, 8);
  a &= low_bytes(std::min<size_t>(size, 8));
  b &= low_bytes(size - std::min<size_t>(size, 8));
  return mix_hash(a ^ (0x9E3779B97F4A7C15u + size), b ^ 0xE7037ED1A0B428DBu);
}

// Hashes the kStartBytes bytes after those of the key `before`.
uint64_t hash_start(const char* bytes, uint64_t before) {
  uint64_t a, b;
  std::memcpy(&a, bytes, 8);
  std::memcpy(&b, bytes + 8, 8);
  return mix_hash(a ^ 0x9E3779B97F4A7C15u ^ before, b ^ 0xE7037ED1A0B428DBu);
}

uint64_t extend(uint64_t key, uint64_t word) {
  return mix_hash(key ^ 0xA0761D6478BD642Fu, word);
}

}  // namespace

void FirstPlaces::reset(size_t items) {
  const size_t size = std::bit_ceil(std::max<size_t>(items, 8) * 2);
  if (slots_.size() < size) slots_.resize(size);
  std::memset(slots_.data(), 0xFF, size * sizeof(slots_[0]));
  mask_ = size - 1;
}

void ComeTwice::reset(size_t items) {
  constexpr size_t kSlotsPerItem = 8;  // one key in eight or more is taken for another
  const size_t size = std::bit_ceil(std::max<size_t>(items, 8) * kSlotsPerItem);
  if (slots_.size() < size) slots_.resize(size);
  std::memset(slots_.data(), 0, size);
  mask_ = size - 1;
}

Duplicates RepetitionCounter::count_duplicates(std::span<const std::string_view> items) {
  Duplicates out;
  if (items.size() < 2) return out;
  places_.reset(items.size());
  keys_.resize(items.size());
  for (uint32_t i = 0; i < items.size(); ++i) {
    keys_[i] = short_hash(items[i]);
    if (places_.find(keys_[i], keys_.data(), i) == i) continue;
    ++out.items;
    out.code_points += count_code_points(items[i]);
  }
  return out;
}

void RepetitionCounter::set_words(std::span<const Word> words) {
  words_ = words;
  top_n_ = duplicated_n_ = 0;
  has_starts_ = false;
}

void RepetitionCounter::hash_words() {
  word_hashes_.resize(words_.size());
  if (words_.empty()) return;
  const char* const end = words_.back().bytes.data() + words_.back().bytes.size();
  for (size_t i = 0; i < words_.size(); ++i) {
    const std::string_view word = words_[i].bytes;
    if (word.size() > 16) {
      word_hashes_[i] = short_hash(word);
      continue;
    }
    char copy[16] = {};
    const char* bytes = word.data();
    if (end - bytes < 16) [[unlikely]] {
      std::memcpy(copy, bytes, word.size());
      bytes = copy;
    }
    word_hashes_[i] = hash_of_16(bytes, word.size());
  }
}

// All n-grams that may come twice.
void RepetitionCounter::find_first_candidates(size_t n) {
  const size_t grams = words_.size() - n + 1;
  hash_words();
  keys_.resize(words_.size());
  firsts_.resize(words_.size());
  counts_.resize(words_.size());
  candidates_.resize(grams);
  for (size_t i = 0; i < grams; ++i) {
    uint64_t key = word_hashes_[i];
    for (size_t k = 1; k < n; ++k) key = extend(key, word_hashes_[i + k]);
    keys_[i] = key;
  }
  std::iota(candidates_.begin(), candidates_.end(), 0u);
  keep_repeated(0);
}

// Those n-grams that may come twice because the shorter ones at their starts do.
void RepetitionCounter::find_longer_candidates(size_t n) {
  const size_t grams = words_.size() - n + 1;
  size_t number = 0;
  for (const uint32_t i : candidates_) {
    candidates_[number] = i;
    number += (counts_[firsts_[i]] > 1) & (i < grams);
  }
  candidates_.resize(number);
  for (const uint32_t i : candidates_) {
    uint64_t key = keys_[i];
    for (size_t k = top_n_; k < n; ++k) key = extend(key, word_hashes_[i + k]);
    keys_[i] = key;
  }
}

int64_t RepetitionCounter::top_n_gram(size_t n) {
  STRATA_CHECK(n >= 1 && (top_n_ == 0 || n > top_n_), "n-grams of {} after those of {}", n, top_n_);
  if (words_.size() < n) return 0;
  duplicated_n_ = 0;
  if (top_n_ == 0) {
    find_first_candidates(n);
  } else {
    find_longer_candidates(n);
  }
  places_.reset(candidates_.size());
  for (const uint32_t i : candidates_) counts_[i] = 0;
  for (const uint32_t i : candidates_) {
    const uint32_t first = places_.find(keys_[i], keys_.data(), i);
    firsts_[i] = first;
    ++counts_[first];
  }
  // The first place with the largest number is the first of the n-gram that was seen first.
  uint32_t best = 0, best_count = 1;
  for (const uint32_t i : candidates_) {
    if (counts_[firsts_[i]] > best_count) {
      best = i;
      best_count = counts_[i];
    }
  }
  top_n_ = n;
  int64_t length = static_cast<int64_t>(n) - 1;
  for (size_t k = 0; k < n; ++k) length += words_[best + k].code_points;
  return length * best_count;
}

// Leaves of the candidates those whose keys, less their lowest bits, may come more than once.
void RepetitionCounter::keep_repeated(int shift) {
  twice_.reset(candidates_.size());
  for (const uint32_t i : candidates_) twice_.add(keys_[i] >> shift);
  size_t number = 0;
  for (const uint32_t i : candidates_) {
    candidates_[number] = i;
    number += twice_.may_have(keys_[i] >> shift);
  }
  candidates_.resize(number);
}

// Finds how much of the text from each word on may be repeated, so that n-grams are hashed only there.
void RepetitionCounter::find_repeated_starts() {
  const size_t n = words_.size();
  starts_.resize(n + 1);
  lengths_.resize(n + 1);
  size_t bytes = 0;
  uint32_t length = 0;
  for (size_t i = 0; i < n; ++i) {
    starts_[i] = static_cast<uint32_t>(bytes);
    lengths_[i] = length;
    bytes += words_[i].bytes.size();
    length += words_[i].code_points;
  }
  starts_[n] = static_cast<uint32_t>(bytes);
  lengths_[n] = length;
  joined_.resize(bytes + 2 * kStartBytes);
  // Sixteen bytes at a time, of which the next word overwrites the excess. A word may be read that far only
  // if the words after it take the same number of bytes of the text.
  for (size_t i = 0; i < n; ++i) {
    const std::string_view word = words_[i].bytes;
    const std::string_view last = words_[n - 1].bytes;
    char* to = joined_.data() + starts_[i];
    if (word.size() <= kStartBytes && last.data() + last.size() - word.data() >= ptrdiff_t{kStartBytes}) {
      std::memcpy(to, word.data(), kStartBytes);
    } else {
      std::memcpy(to, word.data(), word.size());
    }
  }
  std::memset(joined_.data() + bytes, 0, 2 * kStartBytes);

  keys_.resize(n);
  for (size_t i = 0; i < n; ++i) keys_[i] = hash_start(joined_.data() + starts_[i], 0);
  repeated_.assign(n, 0);
  candidates_.resize(n);
  std::iota(candidates_.begin(), candidates_.end(), 0u);
  keep_repeated(0);
  // Few of those that are left have the same of other bits of the key, unless they are the same.
  keep_repeated(32);
  for (const uint32_t i : candidates_) {
    repeated_[i] = kStartBytes;
    keys_[i] = hash_start(joined_.data() + starts_[i] + kStartBytes, keys_[i]);
  }
  keep_repeated(0);
  for (const uint32_t i : candidates_) repeated_[i] = 2 * kStartBytes;
  has_starts_ = true;
}

int64_t RepetitionCounter::duplicated_n_grams(size_t n) {
  if (words_.size() < n) return 0;
  if (!has_starts_) find_repeated_starts();
  top_n_ = 0;
  const size_t grams = words_.size() - n + 1;
  size_t number = 0;
  const auto consider = [&](uint32_t i) {
    candidates_[number] = i;
    const uint32_t size = starts_[i + n] - starts_[i];
    // Without branches, which would be taken at random.
    const auto often = static_cast<size_t>(repeated_[i] >= 2 * kStartBytes);
    const auto once_more = static_cast<size_t>(repeated_[i] == kStartBytes);
    number += often | static_cast<size_t>(size < kStartBytes) |
              (once_more & static_cast<size_t>(size < 2 * kStartBytes));
  };
  if (duplicated_n_ != 0 && duplicated_n_ < n) {
    // A longer n-gram comes twice at none but the places of shorter ones.
    for (const uint32_t i : candidates_) {
      if (i >= grams) break;
      consider(i);
    }
  } else {
    candidates_.resize(grams);
    for (uint32_t i = 0; i < grams; ++i) consider(i);
  }
  duplicated_n_ = n;
  candidates_.resize(number);
  places_.reset(number);
  int64_t duplicated = 0;
  uint32_t next = 0;
  for (const uint32_t i : candidates_) {
    if (i < next) continue;
    keys_[i] = short_hash({joined_.data() + starts_[i], starts_[i + n] - starts_[i]});
    if (places_.find(keys_[i], keys_.data(), i) == i) continue;
    duplicated += lengths_[i + n] - lengths_[i];
    next = i + static_cast<uint32_t>(n);
  }
  return duplicated;
}

}  // namespace strata::data
