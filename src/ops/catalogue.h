// Every op of this program, with what is known of it beside its rules: the reference kernel and the cases.
#pragma once

#include <span>

#include "device/bindings.h"
#include "ops/cases.h"
#include "ops/reference.h"

namespace strata::ops {

struct CatalogueEntry {
  const graph::OpDef* op;
  reference::Kernel reference;  // nullptr: `on_host` takes its place
  void (*cases)(device::Cases& to);
  // Of ops that talk to other ranks: the kernel of all devices whose memory the host reads.
  device::BoundKernel (*on_host)(const device::BindRequest& request) = nullptr;
};
std::span<const CatalogueEntry> catalogue();

}  // namespace strata::ops
