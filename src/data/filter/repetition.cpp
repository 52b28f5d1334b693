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

// Two n-grams are the same only if their first bytes are; n-grams shorter than this are always looked up.
constexpr uint32_t kStartBytes = 16;

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
  for (size_t i = 0; i < words_.size(); ++i) word_hashes_[i] = short_hash(words_[i].bytes);
}

int64_t RepetitionCounter::top_n_gram(size_t n) {
  STRATA_CHECK(n >= 1 && (top_n_ == 0 || n > top_n_), "n-grams of {} after those of {}", n, top_n_);
  if (words_.size() < n) return 0;
  const size_t grams = words_.size() - n + 1;
  duplicated_n_ = 0;
  if (top_n_ == 0) {
    // Every word is a 1-gram that may be repeated.
    hash_words();
    keys_ = word_hashes_;
    firsts_.assign(words_.size(), 0);
    counts_.assign(words_.size(), 2);
    candidates_.resize(words_.size());
    std::iota(candidates_.begin(), candidates_.end(), 0u);
    top_n_ = 1;
  }
  // An n-gram comes twice only where the shorter one at its start does.
  size_t number = 0;
  for (const uint32_t i : candidates_) {
    candidates_[number] = i;
    number += (counts_[firsts_[i]] > 1) & (i < grams);
  }
  candidates_.resize(number);
  places_.reset(number);
  for (const uint32_t i : candidates_) {
    uint64_t key = keys_[i];
    for (size_t k = top_n_; k < n; ++k) key = extend(key, word_hashes_[i + k]);
    keys_[i] = key;
    counts_[i] = 0;
  }
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

// Marks the words from which on kStartBytes bytes come more than once, so that only there n-grams are hashed.
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
  joined_.resize(bytes + kStartBytes);
  // Sixteen bytes at once, of which the next word overwrites what is too much. A word may be read so far only
  // where the words behind it take as many bytes of the text.
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
  std::memset(joined_.data() + bytes, 0, kStartBytes);

  places_.reset(n);
  keys_.resize(n);
  repeated_.assign(n, 0);
  for (uint32_t i = 0; i < n; ++i) {
    uint64_t a, b;
    std::memcpy(&a, joined_.data() + starts_[i], 8);
    std::memcpy(&b, joined_.data() + starts_[i] + 8, 8);
    keys_[i] = mix_hash(a ^ 0x9E3779B97F4A7C15u, b ^ 0xE7037ED1A0B428DBu);
    const uint32_t first = places_.find(keys_[i], keys_.data(), i);
    if (first != i) repeated_[i] = repeated_[first] = 1;
  }
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
    number += repeated_[i] | (starts_[i + n] - starts_[i] < kStartBytes);
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
