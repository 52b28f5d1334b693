// How fast ranks of one host exchange data, for plans and predictions.
#pragma once

namespace strata::comm {

struct ExchangeRate {
  double bytes_per_s = 0;      // that a rank receives from another in a large gather
  double startup_seconds = 0;  // of a gather of a few bytes
};
// Between two ranks of this process, on two threads: gathers of 4 MB and of 16 bytes, medians. Takes some 50 ms.
ExchangeRate measure_exchange();

}  // namespace strata::comm
