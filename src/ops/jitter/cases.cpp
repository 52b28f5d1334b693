#include "ops/case_routers.h"
#include "ops/jitter/jitter.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::Jitter>(Cases& to) {
  for (const RouterSizes& s : router_sizes()) {
    Operand places = i32(2 * s.tokens(), 1000);
    places.shape = {s.tokens(), 2};
    to.add<ops::Jitter>("jitter" + s.name, {.x = f32({s.tokens(), s.width}), .places = places},
                        {.eps = 0.25, .stream = 7}, {.ragged = s.ragged});
  }
  to.untimed<ops::Jitter>("small compared with the experts that follow it");
}

template <>
void cases<ops::SamplePlaces>(Cases& to) {
  for (const RouterSizes& s : router_sizes())
    to.add<ops::SamplePlaces>("sample_places" + s.name, {.samples = i32(s.groups, 1000)}, {s.rows},
                              {.ragged = s.ragged});
  to.untimed<ops::SamplePlaces>(kFewNumbers);
}

}  // namespace strata::device
