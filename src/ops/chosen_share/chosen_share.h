// How much of dense attention the keys hold that an indexer would choose: what a warm-up of the indexer drives towards 1.
//
//   sum += Σ over rows with a target of the mean over heads of exp(chosen_lse − lse)
//
// since the probabilities of the chosen keys add up to the quotient of the two sums of exponentials.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct ChosenShareAttrs {
  int64_t heads = 0;            // of all ranks
  int64_t sequence_length = 0;  // rows of a sequence that the operands have
  bool operator==(const ChosenShareAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("heads", heads);
    to("sequence_length", sequence_length);
  }
};

// No gradient.
struct ChosenShare {
  template <template <typename> class Of>
  struct In {
    Of<F32> chosen_lse, lse;  // [sequences, heads, sequence_length], of the chosen keys and of all
    Of<I32> targets;          // [N]; negative: none
    static constexpr std::string_view names = "chosen_lse lse targets";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F64> sum;  // [1], an accumulator
    static constexpr std::string_view names = "sum";
  };
  using Attrs = ChosenShareAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
