// Adafactor (Shazeer and Stern 2018, arXiv 1804.04235) as torch.optim.Adafactor: no first moment, the second
// one of a matrix as means over its rows and over its columns, the step relative to the parameter's own size.
#pragma once

#include "optim/signatures.h"

namespace strata::optim {

// With g = gradient · grad_scale, rate = lr · lr_scale, w = t^beta2_decay:
//   alpha = max(eps2, rms(p)) · min(rate, 1/√t);   p -= rate · weight_decay · p
//   row += w (mean of g² over a row − row), column += w (mean of g² over a column − column)
//   u = g / √max(row · column / max(mean of row, eps1), eps1²)
//   p -= alpha / max(1, rms(u) / clip_threshold) · u
struct AdafactorUpdate {
  template <template <typename> class Of>
  struct In {
    Of<F32> parameter;  // [R, C]
    Of<F32> row;        // [R]
    Of<F32> column;     // [C]
    Of<F32> gradient;
    Of<U8> scalars;
    static constexpr std::string_view names = "parameter row column gradient scalars";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> parameter, row, column;
    static constexpr std::string_view names = "parameter row column";
  };
  using Attrs = UpdateAttrs;
  static Out<StateShapes> states(const Shape& rows);
  static const graph::OpDef def;
};
// Like AdafactorUpdate, for a vector, whose second moment is whole: u = g / √max(variance, eps1²).
struct AdafactorVectorUpdate {
  template <template <typename> class Of>
  struct In {
    Of<F32> parameter, variance, gradient;
    Of<U8> scalars;
    static constexpr std::string_view names = "parameter variance gradient scalars";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> parameter, variance;
    static constexpr std::string_view names = "parameter variance";
  };
  using Attrs = UpdateAttrs;
  static const graph::OpDef def;
};

// --- The same for a sharded tensor: statistics of the whole tensor are summed over the ranks.

struct AdafactorShardAttrs {
  UpdateAttrs update;
  int64_t rows = 0;  // of the whole tensor, on every rank
  bool operator==(const AdafactorShardAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    update.describe(to);
    to("tensor_rows", rows);
  }
};

struct AdafactorSums {
  template <template <typename> class Of>
  struct In {
    Of<F32> parameter, state;  // row, or a vector's variance
    Of<F32> gradient;
    Of<U8> scalars;
    static constexpr std::string_view names = "parameter state gradient scalars";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> state;
    Of<F64> sums;  // [C + 2]: of the squared gradients of each column, of the squared weights, of the new row
                   // of a vector [2]: of squared weights and updates
    static constexpr std::string_view names = "state sums";
  };
  using Attrs = AdafactorShardAttrs;
  static const graph::OpDef def;
};
struct AdafactorColumns {
  template <template <typename> class Of>
  struct In {
    Of<F32> row, column, gradient;
    Of<F64> sums;
    Of<U8> scalars;
    static constexpr std::string_view names = "row column gradient sums scalars";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> column;
    Of<F64> squares;  // [1]: the sum of squared updates
    static constexpr std::string_view names = "column squares";
  };
  using Attrs = AdafactorShardAttrs;
  static const graph::OpDef def;
};
struct AdafactorApply {
  template <template <typename> class Of>
  struct In {
    Of<F32> parameter, state;  // as AdafactorSums
    Of<Optional<F32>> column = {};
    Of<F32> gradient;
    Of<F64> sums;
    Of<Optional<F64>> squares = {};
    Of<U8> scalars;
    static constexpr std::string_view names = "parameter state column gradient sums squares scalars";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> parameter;
    static constexpr std::string_view names = "parameter";
  };
  using Attrs = AdafactorShardAttrs;
  static const graph::OpDef def;
};

struct Adafactor {
  double beta2_decay = -0.8;
  double eps1 = 0x1p-23;  // fp32's, as PyTorch has it
  double eps2 = 1e-3;
  double clip_threshold = 1;
  bool operator==(const Adafactor&) const = default;
  void describe(graph::AttributeText& to) const {
    to("beta2_decay", beta2_decay);
    to("eps1", eps1);
    to("eps2", eps2);
    to("clip_threshold", clip_threshold);
  }
  using Ops = OpList<AdafactorUpdate, AdafactorVectorUpdate, AdafactorSums, AdafactorColumns, AdafactorApply>;
  static const Definition definition;
};

}  // namespace strata::optim
