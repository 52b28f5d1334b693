// Every op of this program, with what is known of it beside its rules: the reference kernel and the cases.
#pragma once

#include <span>

#include "ops/cases.h"
#include "ops/reference.h"

namespace strata::ops {

struct CatalogueEntry {
  const graph::OpDef* op;
  reference::Kernel reference;  // nullptr: the op runs those of a body (ops/expert_parallel)
  void (*cases)(device::Cases& to);
};
std::span<const CatalogueEntry> catalogue();

}  // namespace strata::ops
