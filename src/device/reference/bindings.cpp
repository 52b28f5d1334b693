// The table of plain kernels. All of them are called in one way: with the operands' types and places.
#include <vector>

#include "base/error.h"
#include "device/expert_rounds.h"
#include "device/plan.h"
#include "device/reference/bindings.h"
#include "kernels/reference/call.h"
#include "ops/catalogue.h"
#include "ops/expert_parallel.h"

namespace strata::device {
namespace {

struct ReferencePlan {
  reference::Kernel kernel;
  reference::Call call;  // without places
};

reference::Array array_of(const graph::Value& value) {
  return {nullptr, value.dtype, value.shape, value.segments};
}

// The rows of all files.
const std::vector<reference::Row>& rows() {
  static const std::vector<reference::Row> kRows = [] {
    std::vector<reference::Row> all;
    for (const auto part :
         {reference::activation_kernels(), reference::attention_kernels(), reference::capacity_kernels(),
          reference::context_attention_kernels(),
          reference::cross_attention_kernels(), reference::experts_kernels(),
          reference::latent_attention_kernels(), reference::linear_kernels(), reference::loss_kernels(),
          reference::qk_norm_kernels(), reference::router_kernels(), reference::routers_kernels(),
          reference::rows_kernels(), reference::update_kernels(), reference::update_shard_kernels()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    for (const ops::CatalogueEntry& entry : ops::catalogue()) all.push_back({entry.op, entry.reference});
    return all;
  }();
  return kRows;
}

reference::Kernel kernel_of(const graph::OpDef& op) {
  for (const reference::Row& row : rows()) {
    if (row.op == &op) return row.kernel;
  }
  throw InternalError("op {} has no reference kernel", op.name);
}

BoundKernel plain(const BindRequest& request) {
  const graph::Node& node = request.view.node;
  ReferencePlan plan{kernel_of(*node.op), {{}, {}, node.attrs}};
  for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i)
    plan.call.in.push_back(request.view.has(i) ? array_of(request.view.in(i)) : reference::Array{});
  for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o) {
    plan.call.out.push_back(request.view.has_out(o) ? array_of(request.view.out(o)) : reference::Array{});
    plan.call.out.back().accumulate = request.accumulate[static_cast<size_t>(o)];
  }
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& [kernel, shapes] = plan_of<ReferencePlan>(held);
        reference::Call call = shapes;
        for (reference::Array& in : call.in) in.data = *p++;
        for (reference::Array& out : call.out) out.data = *p++;
        kernel(call);
      },
      std::move(plan));
}

}  // namespace

std::span<const Binding> reference_bindings() {
  static const std::vector<Binding> kTable = [] {
    std::vector<Binding> table;
    for (const reference::Row& row : rows()) table.push_back({row.op, plain});
    const auto rounds = [](const BindRequest& request) {
      return bind_expert_rounds(request, reference_bindings());
    };
    for (const graph::OpDef* op :
         {&ops::kExpertParallel, &ops::kExpertParallelGradInput, &ops::kExpertParallelGradWeight})
      table.push_back({op, rounds});
    return table;
  }();
  return kTable;
}

}  // namespace strata::device
