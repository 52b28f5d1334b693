#include "ops/catalogue.h"

#include "ops/clamp/clamp.h"

namespace strata::ops {
namespace {

template <typename Op>
CatalogueEntry entry() {
  return {&Op::def,
          [](const reference::Call& call) { reference::compute<Op>(reference::Arrays<Op>(call)); },
          device::cases<Op>};
}

}  // namespace

std::span<const CatalogueEntry> catalogue() {
  static const CatalogueEntry kOps[] = {
      entry<Clamp>(),
      entry<ClampGrad>(),
      entry<ClampedGated>(),
      entry<ClampedGatedGrad>(),
  };
  return kOps;
}

}  // namespace strata::ops

namespace strata::device {
namespace {

const Cases& all_cases() {
  static const Cases kAll = [] {
    Cases all;
    for (const ops::CatalogueEntry& entry : ops::catalogue()) entry.cases(all);
    for (OpCase& one : op_rows::untyped_cases()) all.cases.push_back(std::move(one));
    for (OpCase& one : op_rows::untyped_timed_cases()) all.timed.push_back(std::move(one));
    for (const UntimedOp& one : op_rows::untyped_untimed_ops()) all.reasons.push_back(one);
    return all;
  }();
  return kAll;
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  return all_cases().cases;
}
const std::vector<OpCase>& timed_cases() {
  return all_cases().timed;
}
std::span<const UntimedOp> untimed_ops() {
  return all_cases().reasons;
}

}  // namespace strata::device
