// A Bloom filter that the documents pass in input order: one that was seen before is dropped as
// bloom_duplicate. It needs no sorting and little memory; now and then (false_positive_rate) something new is
// taken for known. The lookup key is the text's hash, or the hashes of its word n-grams (datatrove's rule:
// the document goes if the share of them that was seen before is above a threshold; all of them are in the
// filter then).
// The filter has ceil(n ln(1/p) / ln(2)^2) bits and round(bits/n ln 2) probes by double hashing; n is the
// number of hashes, or `expected` if that is set. State: 8 bytes per hash on disk, and the filter in memory,
// or mapped from the scratch folder if it is larger than the limit.
#pragma once

#include <cstdint>
#include <memory>

#include "data/pipeline/stage.h"

namespace strata::data::dedup {

struct BloomOptions {
  bool by_ngrams = false;
  int64_t n_grams = 13;
  double duplicate_threshold = 0.8;
  double false_positive_rate = 1e-6;
  int64_t expected = 0;
  WordRule words = WordRule::kWhitespace;
};

std::unique_ptr<CorpusStage> make_bloom_stage(const BloomOptions& options);

// The size of a filter for n elements.
struct BloomSize {
  uint64_t bits;
  int probes;
};
BloomSize bloom_size(uint64_t elements, double false_positive_rate);

}  // namespace strata::data::dedup
