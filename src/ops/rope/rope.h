// Rotary position embedding (Su et al. 2021, "RoFormer") and its tables of angles: position ·
// theta^(−2i / rotary_dim), scaled for long contexts as config.json requests.
#pragma once

#include <string>
#include <vector>

#include "ops/signatures.h"

namespace strata::ops {

struct RopeTableAttrs {
  int64_t positions = 0;
  std::vector<double> frequencies = {};  // radians a position, one a pair
  double magnitude = 1;
  bool operator==(const RopeTableAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("positions", positions);
    to("frequencies", frequencies);
    to("magnitude", magnitude);
  }
};

// table[p, i] = magnitude · (cos, sin)(p · frequencies[i])
struct RopeTable {
  template <template <typename> class Of>
  struct In {
    static constexpr std::string_view names = "";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> table;  // [positions, rotary_dim / 2, 2]
    static constexpr std::string_view names = "table";
  };
  using Attrs = RopeTableAttrs;
  static const graph::OpDef def;
};

struct RopeAttrs {
  int64_t head_dim = 0;
  bool inverse = false;   // rotates back
  int64_t first = 0;      // the first dimension of a head that rotates
  bool adjacent = false;  // pair i is (2i, 2i + 1), not (i, i + half)
  bool operator==(const RopeAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("head_dim", head_dim);
    to("inverse", inverse);
    if (first != 0) to("first", first);
    if (adjacent) to("adjacent", adjacent);
  }
};

// Rotates the pairs of each head by the angles of the row's position: q and k of [q | k | v], or all heads of
// rows without segments.
struct Rope {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;          // [N, q | k | v] or [N, heads · head_dim]
    Of<F32> table;      // [positions, rotary_dim / 2, 2]
    Of<I32> positions;  // [N]
    static constexpr std::string_view names = "x table positions";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> qkv;  // as x
    static constexpr std::string_view names = "qkv";
  };
  using Attrs = RopeAttrs;
  static const graph::OpDef def;
};

struct RopeScaling {
  enum class Kind : uint8_t { kUnscaled, kInterpolated, kLlama3, kDynamic, kYarn, kLongRope };
  double theta = 10000;
  Kind kind = Kind::kUnscaled;
  double factor = 1;
  double low_frequency_factor = 1;       // llama3
  double high_frequency_factor = 4;      // llama3
  double original_positions = 8192;      // all but interpolated
  double beta_fast = 32, beta_slow = 1;  // YaRN
  bool whole_pairs = true;               // YaRN: the ramp begins and ends at whole pairs
  double attention_factor = 1;           // YaRN, LongRoPE: cosines and sines are multiplied by it
  // As in config.json; 0: absent. Both determine YaRN's attention_factor, and the second scales the scores of
  // latent attention.
  double mscale = 0, mscale_all_dim = 0;
  // LongRoPE: up to original_positions, and beyond.
  std::vector<double> short_factors = {}, long_factors = {};
};
struct Rotation {
  std::vector<double> frequencies;  // radians a position, one a pair
  double magnitude = 1;
};
// For a program with `positions` positions.
Rotation rotation_of(const RopeScaling& rope, int64_t rotary_dim, int64_t positions);
// The constant table, made once before the first step.
graph::ValueId rope_table(graph::Graph& graph, int64_t positions, int64_t rotary_dim, const RopeScaling& rope,
                          const std::string& name = "rope_table");

}  // namespace strata::ops
