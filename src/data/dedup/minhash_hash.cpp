#include "data/dedup/minhash_hash.h"

#include <cstring>
#include <random>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.h"
#include "base/hash.h"
#include "data/dedup/sha1.h"
#include "data/dedup/span_hash.h"
#include "data/text/byte_runs.h"

namespace strata::data::dedup {
namespace {

// Uniform in [low, high) as numpy draws it: masked bits, drawn again while they are beyond the range.
void draw(std::mt19937& generator, uint64_t low, uint64_t high, size_t count, std::vector<uint64_t>& out) {
  const uint64_t range = high - 1 - low;
  uint64_t mask = range;
  for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
  while (out.size() < count) {
    const uint64_t first = generator();
    const uint64_t value = (first << 32 | generator()) & mask;
    if (value <= range) out.push_back(low + value);
  }
}

// Finds the words of a text with single spaces between them. False if it has other separators: between two
// words there may have been a mark that was removed.
bool begins_of_words(JoinedWords& joined) {
  // A space is the only white space of a simplified text.
  AsciiSet space;
  space.add(' ');
  const std::vector<uint32_t>& edges = joined.edges;
  find_runs(joined.text, space, joined.edges);
  joined.begin.resize(edges.size() / 2 + 1);
  uint32_t next = 0;
  bool single = true;
  for (size_t i = 0; i < edges.size() / 2; ++i) {
    single &= edges[2 * i] == next;
    joined.begin[i] = edges[2 * i];
    next = edges[2 * i + 1] + 1;
  }
  joined.begin.back() = next;
  return single && next == (edges.empty() ? 0 : joined.text.size() + 1);
}

uint64_t sha1_shingle(std::string_view bytes, bool narrow) {
  const auto digest = sha1(bytes);
  uint64_t value = 0;
  std::memcpy(&value, digest.data(), narrow ? 4 : 8);
  return value;
}

}  // namespace

Drawn draw_permutations(uint32_t seed, size_t count) {
  std::mt19937 generator(seed);
  Drawn drawn;
  draw(generator, 1, kMersenne61, count, drawn.a);
  draw(generator, 0, kMersenne61, count, drawn.b);
  return drawn;
}

void join_simplified_words(TextView& text, WordRule rule, JoinedWords& out) {
  out.text = text.simplified();
  out.begin.clear();
  if (rule == WordRule::kWhitespace && begins_of_words(out)) return;
  const std::span<const Word> words = text.simplified_words(rule);
  std::string& joined = out.joined;
  joined.clear();
  out.begin.clear();
  for (const Word& word : words) {
    out.begin.push_back(static_cast<uint32_t>(joined.size()));
    joined += word.bytes;
    joined += ' ';
  }
  STRATA_CHECK(joined.size() < uint64_t{1} << 32, "words of {} bytes", joined.size());
  out.begin.push_back(static_cast<uint32_t>(joined.size()));
  out.text = joined;
}

MinhashSignature::MinhashSignature(const MinhashOptions& options) : options_(options) {
  const Drawn drawn = draw_permutations(static_cast<uint32_t>(options.seed),
                                        static_cast<size_t>(options.buckets * options.hashes_per_bucket));
  table_ = PermutationTable(drawn.a, drawn.b);
}

void MinhashSignature::shingles(const JoinedWords& words, std::vector<uint64_t>& out) const {
  out.clear();
  const auto n = static_cast<size_t>(options_.n_grams);
  if (words.size() < n) return;
  const size_t count = words.size() - n + 1;
  out.resize(count);
  const auto fill = [&](auto hash) {
    for (size_t i = 0; i < count; ++i) out[i] = hash(words.span(i, n));
  };
  if (options_.hash == ShingleHash::kSha1) {
    fill([&](std::string_view s) { return sha1_shingle(s, options_.narrow); });
  } else if (options_.narrow) {
    fill([](std::string_view s) { return uint64_t{XXH32(s.data(), s.size(), 0)}; });
  } else {
    const size_t done = hash_spans(words.text, words.begin.data(), n, out);
    for (size_t i = done; i < count; ++i) {
      const std::string_view span = words.span(i, n);
      out[i] = XXH64(span.data(), span.size(), 0);
    }
  }
}

void MinhashSignature::signature(std::span<const uint64_t> hashes, std::vector<uint64_t>& out) const {
  if (out.size() < table_.a.size()) out.resize(table_.a.size());
  least_permuted(table_, hashes, options_.narrow, out.data());
}

uint64_t MinhashSignature::bucket_key(std::span<const uint64_t> signature, int64_t bucket) const {
  const auto rows = static_cast<size_t>(options_.hashes_per_bucket);
  return hash64(signature.data() + static_cast<size_t>(bucket) * rows, rows * sizeof(uint64_t));
}

}  // namespace strata::data::dedup
