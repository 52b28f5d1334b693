// Near-duplicates by MinHash-LSH (datatrove's): documents that agree in all hashes of a bucket hang together,
// clusters are what hangs together directly or through others, and one document of a cluster stays: the one
// with the most words, of several the first. The others are dropped as near_duplicate, and name it as their
// original.
//
// With min_jaccard above 0 a pair of a bucket counts only if the exact Jaccard coefficient of the sets of
// shingle hashes reaches it. All pairs of a bucket are looked at but those that hang together already or have
// a copy with the same set there, so a bucket of m different texts that are not alike enough costs m² / 2
// comparisons.
//
// A document with fewer words than a shingle has is never a duplicate. It is written as words = 0, without
// keys.
//
// State: 8 bytes a bucket and 4 bytes a document on disk (116 with 14 buckets), and with min_jaccard 8 bytes
// a shingle and 16 a document more. decide() holds 17 bytes a document at most, and the keys of one bucket
// (16 bytes a document and as much again while they are sorted), each of it in the scratch folder where the
// limit asks for it.
#pragma once

#include <cstdint>
#include <memory>

#include "data/dedup/minhash_hash.h"
#include "data/pipeline/stage.h"

namespace strata::data::dedup {

struct MinhashStageOptions {
  MinhashOptions signature;
  double min_jaccard = 0;
};

// Counters: documents_too_short, documents_in_clusters, clusters, clusters_of_2, clusters_of_3_to_10,
// clusters_of_11_to_100, clusters_of_101_or_more, largest_cluster; pairs_below_min_jaccard.
std::unique_ptr<CorpusStage> make_minhash_stage(const MinhashStageOptions& options);

}  // namespace strata::data::dedup
