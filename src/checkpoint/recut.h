// Tensors that a file cuts elsewhere than the family does: transformers 5.23 saves the convolutions of q, k and v
// of an OLMo Hybrid as three equal parts, although q and v differ in size.
#pragma once

#include <span>
#include <string>

#include "checkpoint/huggingface.h"

namespace strata::checkpoint {

// Consecutive rows of one matrix: tensors that a file may cut anywhere.
struct CutTensors {
  std::vector<TensorSpec> tensors;  // names in the file, and shapes as the family cuts them
};

// Replaces the tensors of each group that a source cuts elsewhere by tensors of the family's shapes, which read
// from them. Leaves a group that is incomplete or differs in more than the numbers of rows, which
// check_tensors() then reports.
void recut(TensorSource& source, std::span<const CutTensors> groups);

}  // namespace strata::checkpoint
