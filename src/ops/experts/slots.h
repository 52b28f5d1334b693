// Rows of the matmuls of experts for reference kernels: one per token, or one per token–expert pair.
#pragma once

#include "kernels/reference/call.h"

namespace strata::reference {

struct Slots {
  explicit Slots(const Array& ids_of, const Array& offsets_of) : ids(ids_of), offsets(offsets_of) {
    for (int64_t token = 0; token < tokens(); ++token)
      token_of.insert(token_of.end(), static_cast<size_t>(begin(token + 1) - begin(token)), token);
  }
  int64_t tokens() const { return offsets.present() ? offsets.shape[0] - 1 : ids.shape[0]; }
  int64_t begin(int64_t token) const {
    return offsets.present() ? offsets.index_at(token) : token * ids.shape[1];
  }
  int64_t expert(int64_t slot) const { return ids.index_at(slot); }

  const Array &ids, &offsets;
  std::vector<int64_t> token_of;  // of the pairs in use
};

}  // namespace strata::reference
