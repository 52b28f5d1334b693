// Copies rows of a host's batch into the batch buffers of a program: which elements of each column this rank
// reads, and how longer program rows are padded. Decided once for each program.
#pragma once

#include <optional>
#include <vector>

#include "base/function_ref.h"
#include "graph/shard.h"
#include "program/ranks.h"
#include "tensor/batch_column.h"

namespace strata::program {

class RowCopies {
 public:
  RowCopies(const Program& program, const Ranks& ranks);

  // `take` gets what each column that the program reads is to hold, of its sequences from row `first` of the
  // batch on. Allocates nothing.
  void copy(const BatchRows& batch, int64_t first,
            FunctionRef<void(Column column, const int32_t* values, int64_t count)> take);

 private:
  struct Part {
    Column column;
    // If ranks of the context axis share the column: the ranges that this rank holds, in its order.
    std::optional<std::vector<graph::HeldSpan>> held;
  };
  int64_t sequences_;
  RowPlaces places_;  // of the program's rows
  std::vector<Part> parts_;
  std::vector<int32_t> rows_, held_;  // space for one column
};

}  // namespace strata::program
