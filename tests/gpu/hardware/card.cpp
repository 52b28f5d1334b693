#include "hardware/card.h"

namespace strata::gpu_tests {

const cuda::Card& card() {
  static const cuda::Card kCard = cuda::open_card(0);
  return kCard;
}

}  // namespace strata::gpu_tests
