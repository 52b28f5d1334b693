// The table of plain kernels. All of them are called in one way: with the operands' types and places.
#include <vector>

#include "device/plan.h"
#include "device/reference/bindings.h"
#include "kernels/reference/call.h"
#include "ops/catalogue.h"

namespace strata::device {
namespace {

struct ReferencePlan {
  reference::Kernel kernel;
  reference::Call call;  // without places
};

reference::Array array_of(const graph::Value& value) {
  return {nullptr, value.dtype, value.shape, value.segments};
}

BoundKernel plain(const BindRequest& request, reference::Kernel kernel) {
  const graph::Node& node = request.view.node;
  ReferencePlan plan{kernel, {{}, {}, node.attrs}};
  for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i)
    plan.call.in.push_back(request.view.has(i) ? array_of(request.view.in(i)) : reference::Array{});
  for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o) {
    plan.call.out.push_back(request.view.has_out(o) ? array_of(request.view.out(o)) : reference::Array{});
    plan.call.out.back().accumulate = request.accumulate[static_cast<size_t>(o)];
  }
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& [run, shapes] = plan_of<ReferencePlan>(held);
        reference::Call call = shapes;
        for (reference::Array& in : call.in) in.data = *p++;
        for (reference::Array& out : call.out) out.data = *p++;
        run(call);
      },
      std::move(plan));
}

}  // namespace

std::span<const Binding> reference_bindings() {
  static const std::vector<Binding> kTable = [] {
    std::vector<Binding> table;
    for (const ops::CatalogueEntry& entry : ops::catalogue()) {
      if (entry.reference == nullptr) {
        table.push_back({entry.op, entry.on_host});
      } else {
        table.push_back({entry.op, [kernel = entry.reference](const BindRequest& request) {
                           return plain(request, kernel);
                         }});
      }
    }
    return table;
  }();
  return kTable;
}

}  // namespace strata::device
