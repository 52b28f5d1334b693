// Helpers for stages that cut spans out of texts.
#pragma once

#include <algorithm>
#include <vector>

#include "data/pipeline/stage.h"

namespace strata::data::dedup {

// Adds a span that begins where the last one begins or later; spans that touch become one.
inline void add_span(std::vector<TextSpan>& spans, TextSpan span) {
  if (!spans.empty() && span.begin <= spans.back().end) {
    spans.back().end = std::max(spans.back().end, span.end);
  } else {
    spans.push_back(span);
  }
}

inline int64_t bytes_of(const std::vector<TextSpan>& spans) {
  int64_t bytes = 0;
  for (const TextSpan& span : spans) bytes += span.end - span.begin;
  return bytes;
}

}  // namespace strata::data::dedup
