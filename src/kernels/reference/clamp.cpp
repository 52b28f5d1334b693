#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "kernels/reference/call.h"
#include "ops/clamp.h"

namespace strata::reference {
namespace {

// (x) → min(max(x, -limit), limit)
void clamp(const Call& call) {
  const double limit = call.attrs.as<ops::ClampAttrs>().limit;
  parallel_for(call.in[0].shape.elements(),
               [&](int64_t i) { call.out[0].put(i, std::clamp(call.in[0].at(i), -limit, limit)); });
}

// (dy, x) → dy where |x| ≤ limit, else 0
void clamp_grad(const Call& call) {
  const double limit = call.attrs.as<ops::ClampAttrs>().limit;
  parallel_for(call.in[0].shape.elements(), [&](int64_t i) {
    call.out[0].put(i, std::abs(call.in[1].at(i)) <= limit ? call.in[0].at(i) : 0.0);
  });
}

}  // namespace

std::span<const Row> clamp_kernels() {
  static const Row kRows[] = {
      {&ops::kClamp, clamp},
      {&ops::kClampGrad, clamp_grad},
  };
  return kRows;
}

}  // namespace strata::reference
