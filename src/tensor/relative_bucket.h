// Buckets of distances between keys and queries (Raffel et al. 2020, "Exploring the limits of transfer learning").
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace strata {

struct RelativeBuckets {
  int64_t buckets = 0;
  int64_t max_distance = 0;
  bool bidirectional = false;
};

// The bucket of a distance, key position - query position. Keys before and after a query have half of the buckets each; if not
// bidirectional, keys before it have all and the others share bucket 0. The first half of a direction's buckets have one
// distance each; the rest divide the distances up to max_distance evenly on a logarithmic scale, and the last also covers
// everything beyond. The logarithm is computed in fp32, as in the published models.
inline int64_t relative_bucket(const RelativeBuckets& of, int64_t distance) {
  int64_t buckets = of.buckets, bucket = 0;
  if (of.bidirectional) {
    buckets /= 2;
    if (distance > 0) bucket = buckets;
    distance = std::abs(distance);
  } else {
    distance = -std::min<int64_t>(distance, 0);
  }
  const int64_t exact = buckets / 2;
  if (distance < exact) return bucket + distance;
  const auto range =
      static_cast<float>(std::log(static_cast<double>(of.max_distance) / static_cast<double>(exact)));
  const float share = std::log(static_cast<float>(distance) / static_cast<float>(exact)) / range;
  const auto beyond = static_cast<int64_t>(share * static_cast<float>(buckets - exact));
  return bucket + std::min(exact + beyond, buckets - 1);
}

}  // namespace strata
