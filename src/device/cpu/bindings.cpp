// The CPU's binding table.
#include "device/cpu/bindings.h"

#include "device/cpu/bind.h"
#include "device/cpu/cpu.h"
#include "ops/clamp/clamp.h"

namespace strata::device {

std::span<const Binding> cpu_bindings() {
  static const std::vector<Binding> kTable = [] {
    std::vector<Binding> table{
        row<ops::Clamp>(Cpu{}),
        row<ops::ClampGrad>(Cpu{}),
        row<ops::ClampedGated>(Cpu{}),
        row<ops::ClampedGatedGrad>(Cpu{}),
    };
    for (const auto rows :
         {cpu_bind::attention_bindings(), cpu_bind::capacity_bindings(), 
          cpu_bind::context_bindings(), cpu_bind::cross_bindings(), cpu_bind::elementwise_bindings(),
          cpu_bind::experts_bindings(), cpu_bind::gemm_bindings(), cpu_bind::latent_bindings(),
          cpu_bind::loss_bindings(), cpu_bind::router_bindings(), cpu_bind::routers_bindings(),
          cpu_bind::update_bindings(), cpu_bind::update_shard_bindings()}) {
      table.insert(table.end(), rows.begin(), rows.end());
    }
    return table;
  }();
  return kTable;
}

}  // namespace strata::device
