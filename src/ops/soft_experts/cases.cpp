#include "ops/case_routers.h"
#include "ops/soft_experts/soft_experts.h"

namespace strata::device {

using namespace op_rows;

namespace {

struct SoftOperands {
  Operand x, logits, h;
  ops::SoftExpertsAttrs attrs;

  explicit SoftOperands(const RouterSizes& s)
      : x(act({s.tokens(), s.width})),
        logits(f32({s.tokens(), s.experts * s.of_expert})),
        h(act({s.groups * s.experts * s.of_expert, s.width})),
        attrs{.rows = s.rows, .experts = s.experts} {}
};

}  // namespace

template <>
void cases<ops::SoftDispatch>(Cases& to) {
  for (const RouterSizes& s : router_sizes()) {
    const SoftOperands of(s);
    to.add<ops::SoftDispatch>("soft_dispatch" + s.name, {.x = of.x, .logits = of.logits}, of.attrs,
                              {.ragged = s.ragged});
  }
  to.untimed<ops::SoftDispatch>(kOther);
}

template <>
void cases<ops::SoftDispatchGrad>(Cases& to) {
  for (const RouterSizes& s : router_sizes()) {
    const SoftOperands of(s);
    to.add<ops::SoftDispatchGrad>("soft_dispatch_grad" + s.name,
                                  {.dslots = of.h, .x = of.x, .logits = of.logits}, of.attrs,
                                  {.ragged = s.ragged});
  }
  to.untimed<ops::SoftDispatchGrad>(kOther);
}

template <>
void cases<ops::SoftCombine>(Cases& to) {
  for (const RouterSizes& s : router_sizes()) {
    const SoftOperands of(s);
    to.add<ops::SoftCombine>("soft_combine" + s.name, {.h = of.h, .logits = of.logits}, of.attrs,
                             {.ragged = s.ragged});
  }
  to.untimed<ops::SoftCombine>(kOther);
}

template <>
void cases<ops::SoftCombineGrad>(Cases& to) {
  for (const RouterSizes& s : router_sizes()) {
    const SoftOperands of(s);
    to.add<ops::SoftCombineGrad>("soft_combine_grad" + s.name, {.dy = of.x, .h = of.h, .logits = of.logits},
                                 of.attrs, {.ragged = s.ragged});
  }
  to.untimed<ops::SoftCombineGrad>(kOther);
}

}  // namespace strata::device
