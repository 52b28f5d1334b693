// Key and value heads that several ranks read: qkv of a rank from its queries and from keys and values that
// all ranks of an axis have. Of each key and value head there are as many copies as ranks read it; the copies
// of one head are consecutive.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct ShareHeadsAttrs {
  graph::Axis axis = {};
  int64_t head_dim = 0;  // of keys and of values
  int64_t copies = 1;    // of each head, over all ranks
  int64_t ranks = 1;     // of the axis, on a rank
  bool operator==(const ShareHeadsAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("axis", name_of(axis));
    to("head_dim", head_dim);
    to("copies", copies);
    to("ranks", ranks);
  }
};

struct ShareHeads {
  template <template <typename> class Of>
  struct In {
    Of<Act> q;     // [N, q]
    Of<Act> kv;    // [N, k | v]
    Of<I32> rank;  // per-rank constants
    static constexpr std::string_view names = "q kv rank";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> qkv;  // [N, q | k | v], this rank's copies
    static constexpr std::string_view names = "qkv";
  };
  using Attrs = ShareHeadsAttrs;
  static const graph::OpDef def;
};

struct ShareHeadsGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dqkv;  // [N, q | k | v]
    Of<I32> rank;
    static constexpr std::string_view names = "dqkv rank";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dq;
    Of<Act> dkv;  // the sum over the copies on this rank
    static constexpr std::string_view names = "dq dkv";
  };
  using Attrs = ShareHeadsAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
