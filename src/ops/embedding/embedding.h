// Rows of a table by their ids.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct EmbeddingAttrs {
  DType dtype = DType::kF32;  // of x
  double scale = 1;
  int64_t padding_id = -1;
  bool operator==(const EmbeddingAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("dtype", name_of(dtype));
    to("scale", scale);
    to("padding_id", padding_id);
  }
};

// x = scale · table[tokens] (+ position_table[positions])
struct Embedding {
  template <template <typename> class Of>
  struct In {
    Of<I32> tokens;                         // [N]
    Of<Any> table;                          // [V, D], fp32 or bf16
    Of<Optional<I32>> positions = {};       // [N]; both or none
    Of<Optional<F32>> position_table = {};  // [P, D]
    Of<Optional<I32>> vocab_start = {};     // [parts] (ops/vocabulary): tokens in no part give zeros
    static constexpr std::string_view names = "tokens table positions position_table vocab_start";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> x;  // [N, D]
    static constexpr std::string_view names = "x";
  };
  using Attrs = EmbeddingAttrs;
  static const graph::OpDef def;
};

struct EmbeddingOptions {
  double scale = 1;
  int64_t padding_id = -1;  // a row of the table without a gradient; -1: none
  graph::ValueId positions = graph::kNone, position_table = graph::kNone;  // both or none
  // Where the table's rows may be sharded: tokens in no part of a shard give zeros, so that x is a sum over
  // the shards. Without positions.
  graph::ValueId vocab_start = graph::kNone;
};
// x is of `dtype`.
graph::ValueId embedding(graph::Graph& graph, graph::ValueId tokens, graph::ValueId table, DType dtype,
                         const EmbeddingOptions& options = {});

struct EmbeddingGradAttrs {
  int64_t rows = 0;  // of the table
  double scale = 1;
  int64_t padding_id = -1;
  int64_t rows_of_part = 0;  // with vocab_start: of each part; the last one may have fewer
  bool operator==(const EmbeddingGradAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("rows", rows);
    to("scale", scale);
    to("padding_id", padding_id);
    if (rows_of_part != 0) to("rows_of_part", rows_of_part);
  }
};

// dtable[ids] += scale · dy
struct EmbeddingGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy;                          // [N, D]
    Of<I32> ids;                         // [N]
    Of<Optional<I32>> vocab_start = {};  // [parts]
    static constexpr std::string_view names = "dy ids vocab_start";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dtable;  // [V, D], accumulates
    static constexpr std::string_view names = "dtable";
  };
  using Attrs = EmbeddingGradAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
