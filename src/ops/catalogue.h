// Every op of this program with its reference kernel and its cases.
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
  // For ops that exchange data with other ranks: the kernel of all devices whose memory the host reads.
  device::BoundKernel (*on_host)(const device::BindRequest& request) = nullptr;
};
std::span<const CatalogueEntry> catalogue();

}  // namespace strata::ops
