// MinHash signatures, bit for bit those of datatrove: word n-grams of simplified text, joined by one space,
// hashed with xxHash or SHA-1; permutations drawn with numpy's RandomState (MT19937).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dedup/minhash_kernel.h"
#include "data/text/text_view.h"

namespace strata::data::dedup {

enum class ShingleHash { kXxhash, kSha1 };

// numpy's RandomState(seed).randint(low, high, dtype=uint64), called `counts` after one another.
struct Drawn {
  std::vector<uint64_t> a, b;
};
Drawn draw_permutations(uint32_t seed, size_t count);

// Words with one space between them, whatever separates them in the text.
struct JoinedWords {
  std::string joined;  // used if the words are not separated by single spaces in the simplified text
  std::string_view text;
  std::vector<uint32_t> begin;  // of every word; and one past the space that follows the last word
  std::vector<uint32_t> edges;  // of words; used on the way
  size_t size() const { return begin.size() - 1; }
  // Words [first, first + count) with the spaces between them.
  std::string_view span(size_t first, size_t count) const {
    return text.substr(begin[first], begin[first + count] - 1 - begin[first]);
  }
};
// The words of the simplified text. The result holds until the text changes.
void join_simplified_words(TextView& text, WordRule rule, JoinedWords& out);

struct MinhashOptions {
  int64_t n_grams = 5;
  int64_t buckets = 14;
  int64_t hashes_per_bucket = 8;
  int64_t seed = 1;
  ShingleHash hash = ShingleHash::kXxhash;
  bool narrow = false;  // precision 32
  WordRule words = WordRule::kWhitespace;
};

class MinhashSignature {
 public:
  explicit MinhashSignature(const MinhashOptions& options);

  // The hash of every n-gram of words, in order; none if there are fewer words than n.
  void shingles(const JoinedWords& words, std::vector<uint64_t>& out) const;
  // The least value of every permutation, bucket after bucket. `hashes` is not empty. `out` grows as needed
  // and may be longer than size().
  void signature(std::span<const uint64_t> hashes, std::vector<uint64_t>& out) const;
  size_t size() const { return table_.size(); }
  // One number for the hashes of a bucket. Two documents whose buckets differ have the same with odds of
  // 2^-64: among 10^9 documents, 0.03 pairs in a bucket.
  uint64_t bucket_key(std::span<const uint64_t> signature, int64_t bucket) const;
  const PermutationTable& permutations() const { return table_; }
  const MinhashOptions& options() const { return options_; }

 private:
  MinhashOptions options_;
  PermutationTable table_;
};

}  // namespace strata::data::dedup
