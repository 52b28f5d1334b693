#include "ops/cases.h"

namespace strata::device {

const std::vector<Sizes>& Cases::sizes() {
  static const std::vector<Sizes> kSizes{
      {"", 24, 20, 12, false}, {"_ragged", 37, 71, 13, true}, {"_of_one_column", 9, 1, 1, true}};
  return kSizes;
}

}  // namespace strata::device
