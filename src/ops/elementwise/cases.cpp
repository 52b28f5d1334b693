#include "ops/cases.h"
#include "ops/elementwise/elementwise.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::Scale>(Cases& to) {
  for (const Sizes& s : Cases::sizes())
    to.add<ops::Scale>("scale" + s.name, {.x = act({s.rows, s.width})}, {-0.3}, {.ragged = s.ragged});
  to.time<ops::Scale>({.x = timed_rows()}, {0.5});
}

template <>
void cases<ops::ScaleParts>(Cases& to) {
  to.add<ops::ScaleParts>("scale_parts", {.x = act({6, 56}, {32, 8, 16})}, {{-0.3, 1, 2.5}});
  to.add<ops::ScaleParts>("scale_parts_odd", {.x = act({5, 23}, {7, 16})}, {{0.7, -2}}, {.ragged = true});
  to.time<ops::ScaleParts>({.x = timed_rows(kTimedWidth, {kTimedWidth / 2, kTimedWidth / 2})}, {{0.5, 2}});
}

template <>
void cases<ops::AddRow>(Cases& to) {
  for (const Sizes& s : Cases::sizes()) {
    const Operand x = act({s.rows, s.width});
    to.add<ops::AddRow>("add_row" + s.name, {.x = x, .table = f32({3, s.width})}, {1}, {.ragged = s.ragged});
    to.add<ops::AddRow>("add_row_of_one" + s.name, {.x = x, .table = f32({s.width})}, {},
                        {.ragged = s.ragged});
  }
  to.time<ops::AddRow>({.x = timed_rows(), .table = f32({2, kTimedWidth})});
}

template <>
void cases<ops::AddRowGrad>(Cases& to) {
  for (const Sizes& s : Cases::sizes())
    to.add<ops::AddRowGrad>("add_row_grad" + s.name, {.dy = act({s.rows, s.width})}, {.rows = 3, .row = 2},
                            {.ragged = s.ragged});
  to.time<ops::AddRowGrad>({.dy = timed_rows()}, {.rows = 2});
}

}  // namespace strata::device
