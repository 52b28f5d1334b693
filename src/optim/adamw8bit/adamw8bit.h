// AdamW with moments of one byte, a scale for each block of 256 elements in the order of memory, as
// bitsandbytes (Dettmers et al. 2022, arXiv 2110.02861).
#pragma once

#include "optim/adamw/adamw.h"

namespace strata::optim {

// As AdamWUpdate, but for m = beta1 m + (1 - beta1) g.
struct AdamW8BitUpdate {
  template <template <typename> class Of>
  struct In {
    Of<F32> parameter;
    Of<U8> m;         // codes of signed_dynamic_map()
    Of<F32> m_scale;  // [blocks]
    Of<U8> v;         // codes of unsigned_dynamic_map()
    Of<F32> v_scale;  // [blocks]
    Of<F32> gradient;
    Of<U8> scalars;
    static constexpr std::string_view names = "parameter m m_scale v v_scale gradient scalars";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> parameter;
    Of<U8> m;
    Of<F32> m_scale;
    Of<U8> v;
    Of<F32> v_scale;
    static constexpr std::string_view names = "parameter m m_scale v v_scale";
  };
  using Attrs = UpdateAttrs;
  static Out<StateShapes> states(const Shape& rows);
  static const graph::OpDef def;
};

// --- The same for tensors whose blocks ranks share: of columns, of rows that end within a block, on several
// axes. A block is that of one rank, 256 elements in a row of the whole tensor. Its scale is the largest new
// moment of all its elements, so ranks exchange their largest moments before anything is rounded. Moments are
// placed like the parameter; scales, four bytes for 256 elements, are on every rank.

// The rows or columns of a tensor that the ranks of a mesh hold: each of its parts is cut along some axes,
// one after the other.
struct TensorShare {
  struct Part {
    int64_t size = 0;
    std::vector<int64_t> shares = {};  // by axis: a rank's capacity after the cuts of the earlier axes
    int64_t capacity() const { return shares.empty() ? size : shares.back(); }
    bool operator==(const Part&) const = default;
  };
  std::vector<graph::Axis> axes = {};
  std::vector<Part> parts = {};
  int64_t size() const;
  bool operator==(const TensorShare&) const = default;
};
// The range of a part that the rank at these coordinates holds, relative to the part's begin; without
// allocating.
graph::Span held_of_part(const TensorShare& share, size_t part, const graph::Coordinates& rank);

struct AdamW8BitShardAttrs {
  UpdateAttrs update;
  TensorShare rows = {}, columns = {};  // of the whole tensor
  std::vector<graph::Axis> axes = {};   // that cut it
  std::vector<int64_t> ranks = {};      // their sizes; 1 after localize()
  int64_t blocks() const;
  bool operator==(const AdamW8BitShardAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

struct AdamW8BitLargest {
  template <template <typename> class Of>
  struct In {
    Of<U8> m;
    Of<F32> m_scale;
    Of<U8> v;
    Of<F32> v_scale, gradient;
    Of<U8> scalars;
    Of<I32> rank;
    static constexpr std::string_view names = "m m_scale v v_scale gradient scalars rank";
  };
  template <template <typename> class Of>
  struct Out {
    // [ranks…, 2 · blocks]: of the new moments m and then v of each block, over the part that a rank has;
    // zeros if the step is skipped
    Of<F32> largest;
    static constexpr std::string_view names = "largest";
  };
  using Attrs = AdamW8BitShardAttrs;
  static const graph::OpDef def;
};
// The update, with the largest moments of all ranks.
struct AdamW8BitShard {
  template <template <typename> class Of>
  struct In {
    Of<F32> parameter;
    Of<U8> m;
    Of<F32> m_scale;
    Of<U8> v;
    Of<F32> v_scale, gradient;
    Of<U8> scalars;
    Of<I32> rank;
    Of<F32> largest;
    static constexpr std::string_view names = "parameter m m_scale v v_scale gradient scalars rank largest";
  };
  template <template <typename> class Of>
  using Out = AdamW8BitUpdate::Out<Of>;
  using Attrs = AdamW8BitShardAttrs;
  static const graph::OpDef def;
};

struct AdamW8Bit {
  int64_t min_elements = 4096;  // tensors below are AdamW's
  AdamW adamw = {};
  bool operator==(const AdamW8Bit&) const = default;
  void describe(graph::AttributeText& to) const { adamw.describe(to); }
  using Ops = OpList<AdamW8BitUpdate, AdamW8BitLargest, AdamW8BitShard>;
  static const Definition definition;
};

}  // namespace strata::optim
