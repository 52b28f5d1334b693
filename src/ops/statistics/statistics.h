// Statistics of values, as instructions. Each measures the part that one rank holds; the host adds up those
// of all ranks. An instruction whose group is off returns after one load: it leaves its output as it
// was.
#pragma once

#include "ops/signatures.h"
#include "tensor/statistics_table.h"

namespace strata::ops {

struct StatisticsAttrs {
  int64_t group = 0;   // the bit of the mask that turns it on
  int64_t part = -1;   // only this segment of the columns; −1: all
  int64_t row = 0;     // elements of a row for row_squares, a divisor of the columns; 0: none
  double largest = 0;  // 0: nothing counts as saturated
  bool first = false;  // of the first micro-batch of a step; else over all
  bool operator==(const StatisticsAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("group", group);
    if (part >= 0) to("part", part);
    if (row != 0) to("row", row);
    if (largest != 0) to("largest", largest);
    if (first) to("first", first);
  }
};

struct Statistics {
  template <template <typename> class Of>
  struct In {
    Of<Any> x;     // fp32 or bf16
    Of<I64> mask;  // [1], bits of the groups that are on
    static constexpr std::string_view names = "x mask";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F64> table;  // [kStatisticsNumbers], accumulates
    static constexpr std::string_view names = "table";
  };
  using Attrs = StatisticsAttrs;
  static const OpDef def;
};

struct SampleAttrs {
  int64_t group = 0;
  bool operator==(const SampleAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("group", group); }
};
inline constexpr int64_t kMostSampled = 4096;

// Evenly spaced elements of x, at most kMostSampled, before an instruction changes them.
struct TakeSample {
  template <template <typename> class Of>
  struct In {
    Of<F32> x;
    Of<I64> mask;  // [1]
    static constexpr std::string_view names = "x mask";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> sample;
    static constexpr std::string_view names = "sample";
  };
  using Attrs = SampleAttrs;
  static const OpDef def;
};
// Statistics of what has been added to them since.
struct SampleChange {
  template <template <typename> class Of>
  struct In {
    Of<F32> x, sample;
    Of<I64> mask;  // [1]
    static constexpr std::string_view names = "x sample mask";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F64> table;  // [kStatisticsNumbers]
    static constexpr std::string_view names = "table";
  };
  using Attrs = SampleAttrs;
  static const OpDef def;
};

// Elements of a partial sum and of a digest.
inline constexpr int64_t kDigestBlock = 1 << 16;

// partials[b] = Σ x² over block b, as optim::SumOfSquares; digests[b] = Σ bits of word i · (2i + 1) over the
// words of the block, modulo 2^64.
struct SquaresAndDigests {
  template <template <typename> class Of>
  struct In {
    Of<F32> x;
    static constexpr std::string_view names = "x";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F64> partials;  // [ceil(n / kDigestBlock)]
    Of<I64> digests;   // [ceil(n / kDigestBlock)]
    static constexpr std::string_view names = "partials digests";
  };
  using Attrs = graph::NoAttrs;
  static const OpDef def;
};
// Σ digest i · factor_of_digest(i) over the blocks of all tensors in their order, modulo 2^64.
struct JoinDigests {
  template <template <typename> class Of>
  struct In {
    Of<Many<I64>> digests;
    static constexpr std::string_view names = "digests";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I64> digest;  // [1]
    static constexpr std::string_view names = "digest";
  };
  using Attrs = graph::NoAttrs;
  static const OpDef def;
};
// An odd number whose bits look random: the finalizer of SplitMix64.
constexpr uint64_t factor_of_digest(uint64_t i) {
  uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) | 1;
}

}  // namespace strata::ops
