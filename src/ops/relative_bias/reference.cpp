#include <algorithm>
#include <cmath>

#include "ops/reference.h"
#include "ops/relative_bias/relative_bias.h"

namespace strata::reference {
namespace {

// In fp32, as Raffel et al. (2020) compute it.
int64_t bucket_of(const ops::RelativeBiasAttrs& attrs, int64_t buckets, int64_t distance) {
  int64_t first = 0;
  if (attrs.bidirectional) {
    buckets /= 2;
    first = distance > 0 ? buckets : 0;
    distance = distance < 0 ? -distance : distance;
  } else {
    distance = distance < 0 ? -distance : 0;
  }
  const int64_t near = buckets / 2;
  if (distance < near) return first + distance;
  const double range = std::log(static_cast<double>(attrs.max_distance) / static_cast<double>(near));
  const float along = std::log(static_cast<float>(distance) / static_cast<float>(near)) /
                      static_cast<float>(range) * static_cast<float>(buckets - near);
  return first + std::min(buckets - 1, near + static_cast<int64_t>(along));
}

}  // namespace

template <>
void compute(const Arrays<ops::RelativeBias>& at) {
  const Array &table = at.in.table, &bias = at.out.bias;
  const int64_t heads = table.shape[1], width = bias.shape[1];
  for (int64_t i = 0; i < heads * width; ++i) {
    const int64_t bucket = bucket_of(at.attrs, table.shape[0], at.attrs.first + i % width);
    bias.put(i, table.at(bucket * heads + i / width));
  }
}

template <>
void compute(const Arrays<ops::RelativeBiasGrad>& at) {
  const Array &dbias = at.in.dbias, &table = at.out.dtable;
  const int64_t buckets = table.shape[0], heads = table.shape[1], width = dbias.shape[1];
  for (int64_t bucket = 0; bucket < buckets; ++bucket) {
    for (int64_t head = 0; head < heads; ++head) {
      double sum = 0;
      for (int64_t i = 0; i < width; ++i) {
        if (bucket_of(at.attrs, buckets, at.attrs.first + i) == bucket) sum += dbias.at(head * width + i);
      }
      table.give(bucket * heads + head, sum);
    }
  }
}

}  // namespace strata::reference
