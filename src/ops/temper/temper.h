// What a row's position does to it: queries that grow with it, and chunks of a document.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct TemperAttrs {
  int64_t floor = 0;  // 0: queries are left unchanged
  double scale = 0;
  bool operator==(const TemperAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("floor", floor);
    to("scale", scale);
  }
};

// The part q times 1 + scale · log(1 + ⌊(position + 1) / floor⌋): scores that grow with the position, so that
// attention over many keys stays sharp (Llama 4; Nakanishi 2025, "Scalable-softmax"). Its own gradient.
struct Temper {
  template <template <typename> class Of>
  struct In {
    Of<Act> qkv;        // [N, q | k | v]
    Of<I32> positions;  // [N]
    static constexpr std::string_view names = "qkv positions";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;  // as qkv
    static constexpr std::string_view names = "y";
  };
  using Attrs = TemperAttrs;
  static const graph::OpDef def;
};

struct ChunkAttrs {
  int64_t size = 0;  // tokens
  bool operator==(const ChunkAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("size", size); }
};

// Where the keys begin that a row sees of the chunks that its document is cut into. The document begins at
// document_begins[n] (absent: 0), and positions count from there.
struct ChunkBegins {
  template <template <typename> class Of>
  struct In {
    Of<I32> positions;                       // [N]
    Of<Optional<I32>> document_begins = {};  // [N]
    static constexpr std::string_view names = "positions document_begins";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I32> begins;  // [N]
    static constexpr std::string_view names = "begins";
  };
  using Attrs = ChunkAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
